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

from collections import defaultdict
from collections.abc import Container, Sequence, Set
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from schemas.columns.arrays import Floats, Int32s, Int64s
from schemas.columns.compiled import compiled
from schemas.enums import AnomalyKind
from streams.columns.rounds import FlowKey
from streams.columns.table import Column, Table
from streams.config import DetectionConfig
from streams.detectors.base import (
    P50,
    Decision,
    Evidence,
    FalseAlarmRate,
    FeatureBatch,
    FirstOpen,
    Moved,
    WindowDetector,
    least_effects_ns,
)

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
# A block with fewer than it needs begins anew after a gap of more windows than this. So 5-tuples of
# containers that lived for minutes need not be kept for hours.
GAP_WINDOWS: Final = 12
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

    Examples
    --------
    >>> round(z_threshold(60), 2)
    4.29
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


class _BlockArrays(NamedTuple):
    """Columns of `Trend.table`, which a kernel changes."""

    latest: Int64s
    block: Int64s
    windows: Int32s
    effect_ns: Floats
    total: Floats
    squares: Floats


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
                # Index of the latest window.
                "latest": Column(np.int64, NEVER),
                "block": Column(np.int64, NEVER, (BLOCKS,)),
                "windows": Column(np.int32, 0, (BLOCKS,)),
                "effect_ns": Column(np.float64, 0.0, (BLOCKS,)),
                "total": Column(np.float64, 0.0, (BLOCKS,)),
                "squares": Column(np.float64, 0.0, (BLOCKS,)),
            }
        )

    def __len__(self) -> int:
        return len(self.table)

    def observe(self, rows: Int64s, window: int, p50_ns: Int64s, effects_ns: Floats) -> None:
        """Observe closed windows of different 5-tuples; windows of a 5-tuple come in order.

        Parameters
        ----------
        rows : (n,) int64
            Their rows of `table`.
        window
            Index of the windows.
        p50_ns : (n,) int64
            Their medians.
        effects_ns : (n,) float64
            Absolute least effects of their transports.
        """
        if not self.windows_per_block:
            return
        block = window // self.windows_per_block
        columns = _BlockArrays(*(self.table[name] for name in _BlockArrays._fields))
        _observe(*columns, rows, window, block, block % BLOCKS, self._least, p50_ns, effects_ns)

    def shift(self, key: FlowKey, index: int) -> Shift | None:
        """Return the strongest shift of block `index` against those before, None for none."""
        block = self._block(key, index)
        if block is None:
            return None
        shifts = [
            shift
            for back in range(1, REFERENCES + 1)
            if (reference := self._block(key, index - back)) is not None
            and (shift := compare(block, reference, self._least)) is not None
        ]
        return max(shifts, key=lambda shift: shift.z, default=None)

    def keys(self, index: int) -> list[FlowKey]:
        """Return the 5-tuples that have block `index`, sorted."""
        rows = self.table.rows()
        here = rows[self.table["block"][rows, index % BLOCKS] == index]
        return sorted(map(self.table.key, here.tolist()))

    def forget(self, first_open: FirstOpen, but: Container[FlowKey] = ()) -> None:
        """Drop the 5-tuples that no block is compared with any more.

        Parameters
        ----------
        but
            These are kept.
        """
        self._forget_short(first_open, but)
        rows = self.table.rows()
        newest = np.empty(len(rows), np.int64)
        _newest(self.table["block"], rows, newest)
        # Few lie behind the others; only theirs are looked at one by one.
        behind = newest < newest.max(initial=NEVER) - REFERENCES
        for row, block in zip(rows[behind].tolist(), newest[behind].tolist(), strict=True):
            key = self.table.key(row)
            # The last block that has ended is compared with those before it.
            ended = first_open(key[0]) // self.windows_per_block - 1
            if block < ended - REFERENCES - 1:
                self.table.remove(key)

    def _forget_short(self, first_open: FirstOpen, but: Container[FlowKey]) -> None:
        """Drop 5-tuples whose blocks have all too few windows, and would begin anew."""
        rows = self.table.rows()
        latest = self.table["latest"][rows]
        # Few are silent; only theirs are looked at one by one.
        silent = latest < latest.max(initial=NEVER) - GAP_WINDOWS
        rows, latest = rows[silent], latest[silent]
        short = self.table["windows"][rows].max(axis=1, initial=0) < self._least
        for row, window in zip(rows[short].tolist(), latest[short].tolist(), strict=True):
            key = self.table.key(row)
            if key not in but and window < first_open(key[0]) - GAP_WINDOWS:
                self.table.remove(key)

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


class TrendDetector(WindowDetector):
    """Compares each block with those before it when the block's last window has closed."""

    kind: ClassVar = AnomalyKind.LATENCY_TREND
    name: ClassVar = "lognormal_z"
    unit: ClassVar = "ns"
    reference: ClassVar = "Welch, The generalization of Student's problem, Biometrika 1947"
    background_history: ClassVar = True

    def __init__(self, config: DetectionConfig) -> None:
        super().__init__(config)
        self.trend = Trend(config.trend_ns // config.window_ns)
        self._least_ns = least_effects_ns(config)

    def __len__(self) -> int:
        return len(self.trend)

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the rate of Welch's test alone; an effect is needed as well."""
        del config
        return FalseAlarmRate(FALSE_ALARMS_PER_BLOCK, "block of a 5-tuple")

    @property
    def history_ns(self) -> int:
        """How far back published windows matter."""
        return (REFERENCES + 2) * self.config.trend_ns

    @property
    def windows_per_decision(self) -> int:
        """Windows in a block."""
        return self.trend.windows_per_block

    def observe_windows(self, windows: FeatureBatch) -> list[Decision]:
        """Add windows to their block; nothing is decided before its end."""
        if self.trend.windows_per_block:
            self.trend.observe(
                windows.rows(self.trend.table, create=True),
                windows.index,
                np.ascontiguousarray(windows.features_ns[:, P50]),
                self._least_ns[windows.transports],
            )
        return []

    def restore_windows(self, windows: FeatureBatch) -> None:
        """Add published windows to their block."""
        self.observe_windows(windows)

    def end_restore(self, first_open: FirstOpen, newest: Sequence[FeatureBatch] = ()) -> None:
        """Set the evidence of open anomalies from the last block that has ended."""
        del newest
        if self.trend.windows_per_block:
            for anomaly in self.open_in_order():
                block = first_open(anomaly.key[0]) // self.trend.windows_per_block - 1
                shift = self.trend.shift(anomaly.key, block)
                if shift is not None:
                    self._update(anomaly, _shift_evidence(shift))

    def observe_closed(self, moved: Moved) -> list[Decision]:
        """Decide on the blocks whose last window has closed."""
        per_block = self.trend.windows_per_block
        if not per_block:
            return []
        ended: dict[int, set[str]] = defaultdict(set)
        for agent, (before, after) in moved.items():
            first = before // per_block
            # Windows that close together lie close together: later blocks are empty.
            for block in range(first, min(after // per_block, first + 2)):
                ended[block].add(agent)
        return [
            decision for block in sorted(ended) for decision in self._decide(block, ended[block])
        ]

    def forget_old(self, first_open: FirstOpen) -> None:
        """Forget 5-tuples whose blocks are older than any that is compared."""
        if self.trend.windows_per_block:
            self.trend.forget(first_open, self.open)

    def _decide(self, block: int, agents: Set[str]) -> list[Decision]:
        start_ns, end_ns = block * self.config.trend_ns, (block + 1) * self.config.trend_ns
        decisions = []
        for key in self.trend.keys(block):
            if key[0] not in agents:
                continue
            anomaly, shift = self.open.get(key), self.trend.shift(key, block)
            if shift is not None and anomaly is None:
                decisions.append(self._begin(key, start_ns, end_ns, _shift_evidence(shift)))
            elif shift is not None and anomaly is not None:
                self._update(anomaly, _shift_evidence(shift))
            elif anomaly is not None:
                decisions.append(self._end(anomaly, end_ns))
        return decisions


def _shift_evidence(shift: Shift) -> Evidence:
    return Evidence(
        value=float(shift.median_ns),
        reference=float(shift.reference_ns),
        threshold=shift.reference_ns + shift.least_ns,
        rtt_p50_ns=shift.median_ns,
        baseline_p50_ns=shift.reference_ns,
    )


@compiled
def _observe(
    latest: NDArray[np.int64],
    block_of: NDArray[np.int64],
    windows: NDArray[np.int32],
    effect_ns: NDArray[np.float64],
    total: NDArray[np.float64],
    squares: NDArray[np.float64],
    rows: NDArray[np.int64],
    window: int,
    block: int,
    place: int,
    least: int,
    p50_ns: NDArray[np.int64],
    effects_ns: NDArray[np.float64],
) -> None:
    """Add a window of each row to its block.

    The C library computes the logarithms, and not numpy, whose last bit depends on the processor.
    """
    for number in range(len(rows)):
        row = rows[number]
        broken = windows[row, place] < least and window - latest[row] > GAP_WINDOWS
        latest[row] = window
        if broken or block_of[row, place] != block:
            block_of[row, place] = block
            effect_ns[row, place] = effects_ns[number]
            windows[row, place] = 0
            total[row, place] = 0.0
            squares[row, place] = 0.0
        value = log(max(p50_ns[number], 1))
        windows[row, place] += 1
        total[row, place] += value
        squares[row, place] += value * value


@compiled
def _newest(
    block_of: NDArray[np.int64], rows: NDArray[np.int64], newest: NDArray[np.int64]
) -> None:
    """Write the newest block of each row."""
    for number in range(len(rows)):
        block = NEVER
        for place in range(BLOCKS):
            block = max(block, block_of[rows[number], place])
        newest[number] = block
