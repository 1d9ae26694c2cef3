"""Streams of documents: one is made for all, nothing is missed, nothing comes twice."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ops.view.cluster import ClusterView
from ops.web.hub import MAX_WAITING, Hub, StreamEvent
from ops.web.pages.page import Document, Page, Params, UnknownItemError
from ops.web.source import Trouble
from schemas import topics as t
from tests.unit.ops.view_samples import Log, fault
from tests.unit.ops.web.held_source import HeldSource

MADE: list[str] = []


def document(view: ClusterView, params: Params, _now_ms: int) -> Document:
    """Return the ids of the faults."""
    MADE.append(str(params))
    if "wrong" in params:
        raise UnknownItemError("no such thing", "ask for another")
    if "broken" in params:
        return {"faults": {"x": float(params["broken"])}}
    return {"faults": {h.last.fault_id: h.last.seq for h in view.faults.open()}}


PAGE = Page(name="test", document=document)


class Browser:
    """Follows a stream as the page does."""

    def __init__(self, hub: Hub, params: dict[str, str] | None = None, after: str = "") -> None:
        self._stream = hub.stream(PAGE, params or {}, after)
        self.document: Any = None
        self.events: list[StreamEvent] = []
        self.last = after

    async def next(self) -> StreamEvent:
        """Take the next event but those on trouble."""
        while True:
            event = await asyncio.wait_for(anext(self._stream), 5)
            if event.event != "trouble":
                break
        self.events.append(event)
        self.last = event.id or self.last
        data = json.loads(event.data)
        if event.event == "state":
            self.document = data
        else:
            faults = {**self.document["faults"], **data["faults"]}
            self.document = {"faults": {k: v for k, v in faults.items() if v is not None}}
        return event

    async def leave(self) -> None:
        """Close the stream."""
        await self._stream.aclose()  # type: ignore[attr-defined]


@asynccontextmanager
async def running(source: HeldSource) -> AsyncIterator[Hub]:
    """Run a hub."""
    hub = Hub(source)
    task = asyncio.create_task(hub.run())
    await asyncio.sleep(0)
    try:
        yield hub
    finally:
        task.cancel()


def test_all_who_look_cost_one_document() -> None:
    """A hundred browsers get each change, which is made once."""

    async def run() -> None:
        source, log = HeldSource(), Log()
        async with running(source) as hub:
            browsers = [Browser(hub) for _ in range(100)]
            for browser in browsers:
                await browser.next()
            before = len(MADE)
            source.view.apply(log.seen(t.FAULT_EVENT, fault(1)))
            hub.notify()
            for browser in browsers:
                assert (await browser.next()).event == "patch"
            assert len(MADE) - before <= 2
            assert all(b.document == {"faults": {"f-1": 1}} for b in browsers)

    asyncio.run(run())


def test_a_browser_that_comes_back_gets_what_it_missed_once() -> None:
    """By the id of its last event; if that is not known any more, the whole document."""

    async def run() -> None:
        source, log = HeldSource(), Log()
        async with running(source) as hub:
            keeper, leaver = Browser(hub), Browser(hub)
            await keeper.next()
            await leaver.next()
            source.view.apply(log.seen(t.FAULT_EVENT, fault(1)))
            hub.notify()
            await keeper.next()
            await leaver.next()
            await leaver.leave()
            for number in (2, 3):
                event = fault(1, fault_id=f"f-{number}")
                source.view.apply(log.seen(t.FAULT_EVENT, event))
                hub.notify()
                await keeper.next()
            back = Browser(hub, after=leaver.last)
            back.document = leaver.document
            assert [(await back.next()).event for _ in range(2)] == ["patch", "patch"]
            assert back.document == keeper.document
            stranger = Browser(hub, after="7@some:0=1")
            assert (await stranger.next()).event == "state"
            assert stranger.document == keeper.document

    asyncio.run(run())


def test_a_slow_browser_gets_the_whole_document() -> None:
    """Its queue is bounded; the state it then gets holds all that it missed."""

    async def run() -> None:
        source, log = HeldSource(), Log()
        async with running(source) as hub:
            quick, slow = Browser(hub), Browser(hub)
            await quick.next()
            await slow.next()
            for number in range(MAX_WAITING + 5):
                event = fault(1, fault_id=f"f-{number}")
                source.view.apply(log.seen(t.FAULT_EVENT, event))
                hub.notify()
                await quick.next()
            assert (await slow.next()).event == "state"
            assert slow.document == quick.document

    asyncio.run(run())


def test_what_is_not_there_is_said_and_may_come() -> None:
    """A page of an unknown item is a document, too: it changes when the item comes."""

    async def run() -> None:
        async with running(HeldSource()) as hub:
            browser = Browser(hub, {"wrong": "1"})
            await browser.next()
            assert browser.document["unknown"]["todo"] == "ask for another"

    asyncio.run(run())


def test_a_page_that_fails_is_the_end_of_no_other() -> None:
    """It says so; the log says where."""

    async def run() -> None:
        source, log = HeldSource(), Log()
        async with running(source) as hub:
            good = Browser(hub)
            await good.next()
            for cause in ("nan", "no number"):
                bad = Browser(hub, {"broken": cause})
                await bad.next()
                assert "this page failed" in bad.document["unknown"]["what"]
            source.view.apply(log.seen(t.FAULT_EVENT, fault(1)))
            hub.notify()
            await good.next()
            assert good.document == {"faults": {"f-1": 1}}

    asyncio.run(run())


def test_trouble_of_the_source_reaches_the_browser() -> None:
    """And its end as well."""

    async def run() -> None:
        source = HeldSource()
        async with running(source) as hub:
            stream = hub.stream(PAGE, {}, "")
            first = await anext(stream)
            assert json.loads(first.data) == {"ready": True}
            assert (await anext(stream)).event == "state"
            source.trouble = Trouble(what="broker away", todo="start it", since_ms=1)
            hub.notify()
            told = await asyncio.wait_for(anext(stream), 5)
            assert json.loads(told.data)["what"] == "broker away"
            source.trouble = None
            hub.notify()
            told = await asyncio.wait_for(anext(stream), 5)
            assert json.loads(told.data) == {"ready": True}

    asyncio.run(run())


def test_nothing_is_shown_before_all_was_read() -> None:
    """Half a state would pass for a whole one."""

    async def run() -> None:
        source = HeldSource()
        source.ready = False
        async with running(source) as hub:
            browser = Browser(hub)
            waiting = asyncio.create_task(browser.next())
            await asyncio.sleep(0.3)
            assert not waiting.done()
            source.ready = True
            hub.notify()
            assert (await waiting).event == "state"

    asyncio.run(run())


def test_a_page_that_costs_much_is_made_less_often() -> None:
    """Whoever comes within the gap gets the document that is there."""

    async def run() -> None:
        source = HeldSource()
        hub = Hub(source)
        slow = Page(name="slow", document=document, least_gap_s=60.0)
        MADE.clear()
        streams = [hub.stream(slow, {}, "") for _ in range(3)]
        for stream in streams:
            kinds = [(await asyncio.wait_for(anext(stream), 5)).event for _ in range(2)]
            assert kinds == ["trouble", "state"]
        assert len(MADE) == 1

    asyncio.run(run())
