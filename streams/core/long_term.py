"""The long-term test's blocks, also while a restart still reads the windows that go before.

Hours of windows are too many to read before a worker begins. They come beside its work; until
they are there, new windows wait, since a sum of floating-point numbers depends on their order.
Only the end of a block needs them, and waits for them: what is decided does not depend on when
they come.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from schemas.columns.arrays import Floats, Int64s
from streams.columns.rounds import FlowKey
from streams.columns.table import Links, Table
from streams.core.published import Rows, WindowColumns
from streams.detectors.lognormal import Trend


class Earlier(Protocol):
    """The earlier windows, on their way (`LongTerm.add_earlier`)."""

    def ready(self) -> bool:
        """Return whether all have come."""
        ...

    def wait(self) -> None:
        """Return when all have come."""
        ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    """New windows of one index; by their keys, since rows may be retired meanwhile."""

    index: int
    keys: list[FlowKey]
    p50_ns: Int64s
    least_ns: Floats


class LongTerm:
    """Takes windows into the blocks, in the order of their indices.

    Parameters
    ----------
    flows
        The 5-tuples whose rows `add` gets.
    """

    def __init__(self, trend: Trend, flows: Table[FlowKey]) -> None:
        self.trend = trend
        self._links = Links(flows, trend.table)
        self._flows = flows
        self._earlier: Earlier | None = None
        self._rows: Rows | None = None
        self._waiting: list[_Waiting] = []

    def expect(self, earlier: Earlier) -> None:
        """Let new windows wait until the earlier ones have come."""
        self._earlier = earlier

    def add(self, index: int, rows: Int64s, p50_ns: Int64s, least_ns: Floats) -> None:
        """Take the medians of one window of different 5-tuples, by their rows of `flows`."""
        if self._earlier is not None and self._earlier.ready():
            self.settle()
        if self._earlier is None:
            self.trend.add_all(self._links.make(rows), index, p50_ns, least_ns)
        elif self.trend.windows_per_block:
            keys = list(map(self._flows.key, rows.tolist()))
            self._waiting.append(_Waiting(index, keys, p50_ns, least_ns))

    def add_earlier(
        self, index: int, windows: WindowColumns, p50_ns: Int64s, least: Floats
    ) -> None:
        """Take published windows of one index, all read by one reader.

        While `expect` lasts, by the one thread that reads them: nobody else touches the blocks.
        """
        if not self.trend.windows_per_block:
            # Its rows would stay: no block ends that forgets them.
            return
        self._rows = self._rows or Rows(self.trend.table)
        self.trend.add_all(self._rows.of(windows), index, p50_ns, least)

    def settle(self) -> None:
        """Wait until the earlier windows have come; then take those that waited for them."""
        if self._earlier is None:
            return
        self._earlier.wait()
        self._earlier = self._rows = None
        waiting, self._waiting = self._waiting, []
        for some in waiting:
            rows = np.array(list(map(self.trend.table.row, some.keys)), np.int64)
            self.trend.add_all(rows, some.index, some.p50_ns, some.least_ns)
