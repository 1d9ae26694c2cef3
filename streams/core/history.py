"""Windows for the detectors: those that just closed, and published ones after a restart.

Hours of published windows, which the long-term test needs, are too many to read before a worker
begins. `BackgroundHistory` lets new windows wait until they have been read beside the work, since
a sum of floating-point numbers depends on their order. Only a decision waits for them, so that
what is decided does not depend on when they come.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from schemas.columns.arrays import Int64s
from schemas.columns.interpreter import NULL
from schemas.units import US_NS
from streams.columns.quantities import NONE
from streams.columns.rounds import FlowKey
from streams.columns.table import FIRST_ROWS, NO_ROW, Links, Table, grown
from streams.core.published import WindowColumns
from streams.core.window_records import WindowBatch
from streams.detectors.base import (
    MIN_ANSWERS,
    Decision,
    FeatureBatch,
    FirstOpen,
    WindowDetector,
)


class ProbedFlows:
    """5-tuples by their rows in `RecentProbes.flows`; rows in other tables are looked up once."""

    def __init__(self, flows: Table[FlowKey]) -> None:
        self._flows = flows
        self._links: dict[Table[FlowKey], Links[FlowKey]] = {}

    def key(self, number: int) -> FlowKey:
        """Return the 5-tuple of a row."""
        return self._flows.key(number)

    def numbers_of(self, keys: Iterable[FlowKey]) -> list[int]:
        """Return the rows of those 5-tuples that are still probed."""
        return [row for row in map(self._flows.find, keys) if row is not None]

    def rows(self, table: Table[FlowKey], numbers: Int64s, *, create: bool) -> Int64s:
        """Return their rows in a detector's table, which lives as long as this."""
        links = self._links.get(table)
        if links is None:
            links = self._links[table] = Links(self._flows, table)
        return links.make(numbers) if create else links.find(numbers)


class PublishedFlows:
    """5-tuples by the numbers that one reader of published windows gave them.

    Parameters
    ----------
    keys
        The reader's list of 5-tuples, which may grow.
    """

    def __init__(self, keys: Sequence[FlowKey]) -> None:
        self._keys = keys
        self._rows: dict[Table[FlowKey], Int64s] = {}
        self._opens = np.zeros(0, np.int64)
        # 5-tuples that were asked for, and their numbers among the first `_searched`.
        self._asked: set[FlowKey] = set()
        self._numbers: dict[FlowKey, int] = {}
        self._searched = 0

    def key(self, number: int) -> FlowKey:
        """Return the 5-tuple of a number."""
        return self._keys[number]

    def numbers_of(self, keys: Iterable[FlowKey]) -> list[int]:
        """Return the numbers of those 5-tuples that the reader has met."""
        wanted = set(keys)
        if not wanted <= self._asked:
            self._asked |= wanted
            self._searched = 0
        for number in range(self._searched, len(self._keys)):
            if self._keys[number] in self._asked:
                self._numbers[self._keys[number]] = number
        self._searched = len(self._keys)
        return [self._numbers[key] for key in wanted if key in self._numbers]

    def first_open(self, numbers: Int64s, of_agent: FirstOpen) -> Int64s:
        """Return the indices of their agents' first open windows, which stay meanwhile."""
        new = [of_agent(key[0]) for key in self._keys[len(self._opens) :]]
        if new:
            self._opens = np.concatenate((self._opens, np.array(new, np.int64)))
        out: Int64s = self._opens[numbers]
        return out

    def rows(self, table: Table[FlowKey], numbers: Int64s, *, create: bool) -> Int64s:
        """Return their rows in a detector's table, which loses no rows meanwhile."""
        rows = self._rows.get(table)
        if rows is None:
            rows = np.full(FIRST_ROWS, NO_ROW, np.int64)
        if len(self._keys) > len(rows):
            rows = grown(rows, 2 * len(self._keys), NO_ROW)
        self._rows[table] = rows
        for number in numbers[rows[numbers] == NO_ROW].tolist():
            key = self._keys[number]
            row = table.row(key) if create else table.find(key)
            rows[number] = NO_ROW if row is None else row
        out: Int64s = rows[numbers]
        return out


def closed_features(
    index: int, windows: WindowBatch, flows: ProbedFlows, length: int
) -> Iterator[FeatureBatch]:
    """Yield the windows of one index that detectors observe, up to `length` at a time."""
    for part in windows.parts(length):
        whole = FeatureBatch(
            index=index,
            flows=flows,
            numbers=part.rows,
            features_ns=part.features,
            answers=part.ok,
            sent=part.sent,
            medians_ns=part.medians,
            transports=part.transports,
        )
        answered = part.ok >= MIN_ANSWERS
        if answered.all():
            yield whole
        elif answered.any():
            yield whole.select(answered)


def published_features(
    part: WindowColumns, flows: PublishedFlows, window_ns: int
) -> Iterator[FeatureBatch]:
    """Yield the published windows that detectors observe, those of one index together.

    Windows of another length, from before a change of the settings, are left out.
    """
    answered = (part["ok"] >= MIN_ANSWERS) & (part.features != NULL).all(axis=1)
    part = part.take(answered)
    starts, ends = part["window_start_at"], part["window_end_at"]
    new = np.flatnonzero((starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])) + 1
    for begin, end in zip([0, *new.tolist()], [*new.tolist(), len(part)], strict=True):
        if begin == end:
            continue
        start_at, end_at = int(starts[begin]), int(ends[begin])
        index, rest = divmod(start_at * US_NS, window_ns)
        if rest or (end_at - start_at) * US_NS != window_ns:
            continue
        run = part.take(slice(begin, end))
        batch = FeatureBatch(
            index=index,
            flows=flows,
            numbers=run.numbers,
            features_ns=run.features,
            answers=run["ok"],
            sent=run["sent"],
            medians_ns=np.maximum(run.medians, NONE),
            transports=run["transport"],
        )
        if len(set(run.numbers.tolist())) == len(run):
            yield batch
        else:
            # Another writer's windows are among them: a 5-tuple has two. One by one, then.
            yield from (batch.select(np.array([place])) for place in range(len(batch)))


class Earlier(Protocol):
    """Published windows that are being read, and given to `BackgroundHistory.add_earlier`."""

    def ready(self) -> bool:
        """Return whether all have been read."""
        ...

    def wait(self) -> None:
        """Return when all have been read."""
        ...


class BackgroundHistory:
    """Gives a detector closed windows only after the published ones that come before them."""

    def __init__(self, detector: WindowDetector, window_ns: int) -> None:
        self.detector = detector
        self._window_ns = window_ns
        self._earlier: Earlier | None = None
        self._flows: PublishedFlows | None = None
        self._waiting: list[FeatureBatch] = []

    @property
    def settled(self) -> bool:
        """Whether no window waits, and none is being read."""
        return self._earlier is None

    def expect(self, earlier: Earlier) -> None:
        """Let new windows wait until the earlier ones have been read."""
        self._earlier = earlier

    def observe_windows(self, windows: FeatureBatch) -> list[Decision]:
        """Let the detector observe closed windows, or let them wait; it decides on neither."""
        if self._earlier is not None and self._earlier.ready():
            self.settle()
        if self._earlier is None:
            return self.detector.observe_windows(windows)
        # By their keys, since rows may be retired meanwhile.
        keys = [windows.key(place) for place in range(len(windows))]
        numbers = np.arange(len(keys))
        self._waiting.append(replace(windows, flows=PublishedFlows(keys), numbers=numbers))
        return []

    def add_earlier(self, part: WindowColumns) -> None:
        """Let the detector observe earlier windows, all read by one reader.

        For the one thread that reads them: nothing else uses the detector's history meanwhile.
        """
        self._flows = self._flows or PublishedFlows(part.keys)
        for windows in published_features(part, self._flows, self._window_ns):
            self.detector.restore_windows(windows)

    def settle(self) -> None:
        """Wait for the earlier windows; then let the detector observe those that wait."""
        if self._earlier is None:
            return
        self._earlier.wait()
        self._earlier = self._flows = None
        waiting, self._waiting = self._waiting, []
        for windows in waiting:
            self.detector.observe_windows(windows)
