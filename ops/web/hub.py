"""Streams of documents: one is made for all who look at the same page, and sent as it changes."""

import asyncio
import contextlib
import json
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ops.view.cluster import ClusterView
from ops.web.pages.page import Document, Page, UnknownItemError, Wanted, merge_patch
from ops.web.positions import to_text
from ops.web.source import Source, nothing

LOG: Final = logging.getLogger(__name__)
# What is shown grows old without any record: agents fall silent.
TICK_S: Final = 1.0
# Bursts of records become one change: ten documents a second at most, and where documents take
# long (a cluster of 5,000 agents: 0.1 s) so few that they take a tenth of a processor.
LEAST_GAP_S: Final = 0.1
GAP_FOR_WORK: Final = 9
# Changes that a browser that comes back may have missed and still gets one by one.
KEPT_CHANGES: Final = 64
# Changes that a slow browser may be behind before it gets the whole document again.
MAX_WAITING: Final = 16


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream, as `text/event-stream` has it; `id` are the positions behind it."""

    event: str
    data: str
    id: str | None = None


@dataclass(slots=True, eq=False)
class _Viewer:
    """A browser that looks at a channel."""

    waiting: deque[StreamEvent] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    whole: bool = True

    def put(self, event: StreamEvent) -> None:
        if len(self.waiting) >= MAX_WAITING:
            # The document is a state: whoever gets it whole has missed nothing.
            self.waiting.clear()
            self.whole = True
        if not self.whole:
            self.waiting.append(event)
        self.wake.set()


@dataclass(slots=True)
class _Channel:
    """A page with its parameters, and those who look at it."""

    page: Page
    params: dict[str, str]
    document: Document | None = None
    text: str = ""
    id: str = ""
    changes: deque[tuple[str, StreamEvent]] = field(default_factory=deque)
    viewers: set[_Viewer] = field(default_factory=set)
    made_s: float = -math.inf


class Hub:
    """Makes documents and hands them to all who look.

    Parameters
    ----------
    source
        Where they come from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._channels: dict[tuple[str, tuple[tuple[str, str], ...]], _Channel] = {}
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._trouble: dict[str, Any] = {}

    def notify(self) -> None:
        """Say that something came; from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._changed.set)

    async def run(self) -> None:
        """Send what changes, for ever."""
        self._loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), TICK_S)
            self._changed.clear()
            began_s = time.thread_time()
            trouble = self._told_trouble()
            if trouble != self._trouble:
                self._trouble = trouble
                event = StreamEvent("trouble", _json(trouble))
                for channel in self._channels.values():
                    for viewer in channel.viewers:
                        viewer.put(event)
            if self._source.ready:
                for channel in list(self._channels.values()):
                    if time.monotonic() - channel.made_s >= channel.page.least_gap_s:
                        self._refresh(channel)
            work_s = time.thread_time() - began_s
            await asyncio.sleep(max(LEAST_GAP_S, GAP_FOR_WORK * work_s))

    async def stream(
        self, page: Page, params: dict[str, str], after: str
    ) -> AsyncIterator[StreamEvent]:
        """Yield the document, and then its changes.

        Parameters
        ----------
        page, params
            What to show.
        after
            Id of the last event that the browser has; what follows it is sent if it is known
            still, else the whole document.
        """
        key = (page.name, tuple(sorted(params.items())))
        channel = self._channels.setdefault(key, _Channel(page, params))
        viewer = _Viewer()
        channel.viewers.add(viewer)
        try:
            yield StreamEvent("trouble", _json(self._told_trouble()))
            missed = self._missed(channel, after)
            if missed is not None:
                viewer.whole = False
                viewer.waiting.extend(missed)
                viewer.wake.set()
            if self._source.ready:
                if time.monotonic() - channel.made_s >= channel.page.least_gap_s:
                    self._refresh(channel)
                viewer.wake.set()
            while True:
                await viewer.wake.wait()
                viewer.wake.clear()
                if viewer.whole and channel.document is not None:
                    viewer.whole = False
                    viewer.waiting.clear()
                    yield StreamEvent("state", channel.text, channel.id)
                while viewer.waiting:
                    yield viewer.waiting.popleft()
        finally:
            channel.viewers.discard(viewer)
            if not channel.viewers:
                self._channels.pop(key, None)

    def document(self, page: Page, params: dict[str, str], at_ms: int | None = None) -> Document:
        """Return a page's document once.

        Raises
        ------
        UnknownItemError
            If it is of something that is not there.
        """
        return self._source.look(_maker(page, params), at_ms, _wanted(page, params))[0]

    def _refresh(self, channel: _Channel) -> None:
        channel.made_s = time.monotonic()
        document, text, identity = self._made(channel)
        before = channel.document
        if document == before:
            return
        channel.document, channel.text, channel.id = document, text, identity
        if before is not None:
            event = StreamEvent("patch", _json(merge_patch(before, document)), identity)
            channel.changes.append((identity, event))
            if len(channel.changes) > KEPT_CHANGES:
                channel.changes.popleft()
            for viewer in channel.viewers:
                viewer.put(event)
        else:
            for viewer in channel.viewers:
                viewer.whole = True
                viewer.wake.set()

    def _made(self, channel: _Channel) -> tuple[Document, str, str]:
        """Return a page's document, the same as JSON, and the id of what it is made from."""
        try:
            page, params = channel.page, channel.params
            document, identity = self._source.look(
                _maker(page, params), wanted=_wanted(page, params)
            )
            return document, _json(document), identity
        except UnknownItemError as error:
            document = {"unknown": {"what": str(error), "todo": error.todo}}
        except Exception as error:
            # One page that fails must not be the end of all others.
            LOG.exception("page %s failed", channel.page.name)
            what = f"this page failed: {type(error).__name__}"
            document = {"unknown": {"what": what, "todo": "the server's log says where"}}
        return document, _json(document), ""

    def _missed(self, channel: _Channel, after: str) -> list[StreamEvent] | None:
        """Return the changes after an event; None if it is not known any more."""
        if not after:
            return None
        ids = [known for known, _ in channel.changes]
        if after in ids:
            # The last one of that id: what follows was not seen.
            at = len(ids) - ids[::-1].index(after)
            return [event for _, event in list(channel.changes)[at:]]
        return None

    def _told_trouble(self) -> dict[str, Any]:
        trouble = self._source.trouble
        told: dict[str, Any] = {} if trouble is None else asdict(trouble)
        return {**told, "ready": self._source.ready}


def _maker(
    page: Page, params: dict[str, str]
) -> Callable[[ClusterView, int], tuple[Document, str]]:
    def make(view: ClusterView, now_ms: int) -> tuple[Document, str]:
        return page.document(view, params, now_ms), f"{now_ms}@{to_text(view.positions)}"

    return make


def _wanted(page: Page, params: dict[str, str]) -> Callable[[ClusterView], Wanted]:
    named = page.wanted
    return nothing if named is None else lambda view: named(view, params)


def _json(document: Document) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
