"""Slow changes: half-hour blocks of log round-trip times, tested against earlier blocks.

The round trips of a healthy path are log-normal, so the logarithms are normal.
A block's location is estimated from the logarithms of its windows' medians
(the median of a log-normal is exp(mu)); their scatter *between* windows gives
its standard error. These are batch means: they hold up when neighbouring
probes are correlated, where the error of single probes would be far too small,
and one wild probe moves nothing. Block k is tested by Welch's z against blocks
k-1, k-2 and k-3 (T+0.5 h, T+1 h, T+1.5 h with half-hour blocks), one-sided.

Blocks sit on the event-time grid and nothing older than five of them is kept:
a restart reads them from `probe.window.v1`.
"""

from dataclasses import dataclass
from math import exp, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from schemas.columns.arrays import Int64s
from streams.columns.rounds import FlowKey
from streams.columns.table import Column, Table
from streams.detectors.levels import logarithms

# Earlier blocks that a block is compared with.
REFERENCES: Final = 3
# One more than a new block needs: the last one can be looked at again.
BLOCKS: Final = REFERENCES + 2
NEVER: Final = -(2**62)
# False alarms per 5-tuple and block, all comparisons together, where blocks
# differ by chance only. An effect is needed beside it.
FALSE_ALARMS_PER_BLOCK: Final = 1e-4
# Least share of its windows that a block needs.
MIN_FILLED: Final = 1 / 3
# Least windows whatever the length of a block: a scatter needs some.
MIN_WINDOWS: Final = 8
# Variance floor of log medians: 0.5 %. A path calmer than that is not known better.
MIN_SCATTER: Final = 0.005
# Least relative rise, and share of the windows' absolute least effect: a lasting
# change matters sooner than a passing one.
EFFECT_RATIO: Final = 0.10
EFFECT_SHARE: Final = 0.5


@dataclass(slots=True)
class Block:
    """Sums over the log medians of a block's windows."""

    index: int
    effect_ns: float = 0.0
    windows: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Add one window's log median."""
        self.windows += 1
        self.total += value
        self.squares += value * value

    @property
    def mean(self) -> float:
        """Estimate of mu."""
        return self.total / self.windows

    @property
    def error_squared(self) -> float:
        """Squared standard error of `mean`, not below the floor."""
        spread = max(self.squares / self.windows - self.mean**2, 0.0)
        unbiased = spread * self.windows / (self.windows - 1)
        return max(unbiased, MIN_SCATTER**2) / self.windows


@dataclass(frozen=True, slots=True)
class Shift:
    """A block that is slower than an earlier one, by at least `least_ns`."""

    z: float
    least_ns: float
    median_ns: int
    reference_ns: int


def z_threshold(windows: int) -> float:
    """Return the bound for Welch's z with that many windows in the smaller block.

    Student's t with `windows` - 1 degrees of freedom: the conservative choice
    for Welch's statistic; the level is split over the comparisons.
    """
    return -float(stdtrit(windows - 1, FALSE_ALARMS_PER_BLOCK / REFERENCES))


def compare(block: Block, reference: Block, least_windows: int) -> Shift | None:
    """Return how much slower `block` is than `reference`, None where it is not."""
    fewer = min(block.windows, reference.windows)
    if fewer < least_windows:
        return None
    z = (block.mean - reference.mean) / sqrt(block.error_squared + reference.error_squared)
    bound = z_threshold(fewer)
    median_ns, reference_ns = exp(block.mean), exp(reference.mean)
    least = max(EFFECT_SHARE * block.effect_ns, EFFECT_RATIO * reference_ns)
    if z <= bound or median_ns - reference_ns < least:
        return None
    return Shift(z, least, round(median_ns), round(reference_ns))


class Trend:
    """Blocks of all 5-tuples of a partition.

    Parameters
    ----------
    windows_per_block
        Short windows in a block; 0: the test is off.
    """

    def __init__(self, windows_per_block: int) -> None:
        self.windows_per_block = windows_per_block
        self._least = max(MIN_WINDOWS, round(MIN_FILLED * windows_per_block))
        self.table: Table[FlowKey] = Table(
            {
                "block": Column(np.int64, NEVER, (BLOCKS,)),
                "windows": Column(np.int32, 0, (BLOCKS,)),
                "effect_ns": Column(np.float64, 0.0, (BLOCKS,)),
                "total": Column(np.float64, 0.0, (BLOCKS,)),
                "squares": Column(np.float64, 0.0, (BLOCKS,)),
            }
        )

    def __len__(self) -> int:
        return len(self.table)

    def add_all(
        self, rows: Int64s, window: int, p50_ns: Int64s, effects_ns: NDArray[np.float64]
    ) -> None:
        """Take in the medians of a closed window of different 5-tuples, by their rows of `table`.

        Windows of a 5-tuple come in order. `effects_ns` are the absolute least effects of
        windows for their transports.
        """
        if not self.windows_per_block:
            return
        block = window // self.windows_per_block
        place = block % BLOCKS
        begun = self.table["block"][rows, place] == block
        if not begun.all():
            new = rows[~begun]
            self.table["block"][new, place] = block
            self.table["effect_ns"][new, place] = effects_ns[~begun]
            for name in ("windows", "total", "squares"):
                self.table[name][new, place] = 0
        values = logarithms(p50_ns)
        self.table["windows"][rows, place] += 1
        self.table["total"][rows, place] += values
        self.table["squares"][rows, place] += values * values

    def shift(self, key: FlowKey, index: int) -> Shift | None:
        """Return the strongest shift of block `index` against those before, None for none."""
        block = self._block(key, index)
        if block is None:
            return None
        found = [
            shift
            for back in range(1, REFERENCES + 1)
            if (reference := self._block(key, index - back)) is not None
            and (shift := compare(block, reference, self._least)) is not None
        ]
        return max(found, key=lambda shift: shift.z, default=None)

    def keys(self, index: int) -> list[FlowKey]:
        """Return the 5-tuples that have block `index`, sorted."""
        rows = self.table.rows()
        here = rows[self.table["block"][rows, index % BLOCKS] == index]
        return sorted(map(self.table.key, here.tolist()))

    def forget(self, index: int) -> None:
        """Drop the 5-tuples that no block from `index` on is compared with."""
        rows = self.table.rows()
        newest = self.table["block"][rows].max(axis=1, initial=NEVER)
        for row in rows[newest < index - REFERENCES - 1].tolist():
            self.table.remove(self.table.key(row))

    def _block(self, key: FlowKey, index: int) -> Block | None:
        row, place = self.table.find(key), index % BLOCKS
        if row is None or self.table["block"][row, place] != index:
            return None
        return Block(
            index=index,
            effect_ns=float(self.table["effect_ns"][row, place]),
            windows=int(self.table["windows"][row, place]),
            total=float(self.table["total"][row, place]),
            squares=float(self.table["squares"][row, place]),
        )
