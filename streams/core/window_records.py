"""Closed windows in the order of `probe.window.v1`: columns to judge, records to publish."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Int64s
from schemas.enums import Transport
from schemas.ids import path_id
from schemas.records import PathWindow
from schemas.units import US_NS
from schemas.version import VERSION
from streams.columns.quantities import COLUMNS, FEATURES, NONE, OBSERVED
from streams.columns.rounds import TRANSPORTS, FlowKey
from streams.core.windows import ClosedWindow
from streams.detectors.recent import RecentProbes

FEATURE_PLACES: Final = [COLUMNS.index(name) for name in FEATURES]
MEDIAN_PLACES: Final = [COLUMNS.index(name) for name in OBSERVED]
OF_TRANSPORT: Final = tuple(Transport(name) for name in TRANSPORTS)


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """The closed windows of one index, sorted by path, flow and agent; all of one length.

    Attributes
    ----------
    start_at, end_at : microseconds
    closed_ms : arrival that closed them, milliseconds
    rows : (n,) int64; rows of the 5-tuples in `streams.detectors.recent`, until one is retired
    key_of : gives the 5-tuple of a row
    values : (n, len(COLUMNS)) int64; `NONE` where no probe answered or nothing was measured
    sent, ok, repeats : (n,) int64
    transports : (n,) int8; of the last probe, places in TRANSPORTS
    """

    cluster: str
    start_at: int
    end_at: int
    closed_ms: int
    rows: Int64s
    key_of: Callable[[int], FlowKey]
    values: Int64s
    sent: Int64s
    ok: Int64s
    repeats: Int64s
    transports: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def features(self) -> Int64s:
        """The seven features, (n, 7)."""
        out: Int64s = self.values.take(FEATURE_PLACES, axis=1)
        return out

    @property
    def medians(self) -> Int64s:
        """The medians of other quantities, (n, len(OBSERVED))."""
        out: Int64s = self.values.take(MEDIAN_PLACES, axis=1)
        return out

    def parts(self, length: int) -> Iterator[Self]:
        """Yield so many of them at a time."""
        if 0 < len(self) <= length:
            yield self
            return
        for first in range(0, len(self), length):
            here = slice(first, first + length)
            yield replace(
                self,
                rows=self.rows[here],
                values=self.values[here],
                sent=self.sent[here],
                ok=self.ok[here],
                repeats=self.repeats[here],
                transports=self.transports[here],
            )

    def record(self, place: int) -> PathWindow:
        """Return one of the windows as a record."""
        agent, src, dst, flow = self.key_of(int(self.rows[place]))
        statistics = {
            name: None if value == NONE else value
            for name, value in zip(COLUMNS, self.values[place].tolist(), strict=True)
        }
        sent, ok = int(self.sent[place]), int(self.ok[place])
        return PathWindow(
            cluster=self.cluster,
            path_id=path_id(src, dst),
            src=src,
            dst=dst,
            flow=flow,
            agent_id=agent,
            transport=OF_TRANSPORT[self.transports[place]],
            window_start_at=self.start_at,
            window_end_at=self.end_at,
            sent=sent,
            ok=ok,
            lost=sent - ok,
            duplicate_results=int(self.repeats[place]),
            producer_version=VERSION,
            **statistics,
        )

    def records(self) -> list[PathWindow]:
        """Return all of them as records."""
        return [self.record(place) for place in range(len(self))]


def window_batch(
    window: ClosedWindow, recent: RecentProbes, cluster: str, window_ns: int, closed_ms: int
) -> WindowBatch:
    """Return the closed windows of an index, sorted; their rows are those of `recent`."""
    order = np.argsort(recent.rank(window.rows))
    rows = window.rows[order]
    return WindowBatch(
        cluster=cluster,
        start_at=window.index * window_ns // US_NS,
        end_at=(window.index + 1) * window_ns // US_NS,
        closed_ms=closed_ms,
        rows=rows,
        key_of=recent.flows.key,
        values=window.values[order],
        sent=window.sent[order],
        ok=window.ok[order],
        repeats=window.repeats[order],
        transports=recent.flows["transport"][rows],
    )
