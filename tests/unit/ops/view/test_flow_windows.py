"""Windows of 5-tuples in columns, against lists of records."""

import statistics
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ops.log.windows import LOST, P50, P99, PROBER, RESPONDER, SENT, columns_of
from ops.view.flow_windows import (
    BLOCK,
    BLOCKS,
    DEPTH,
    LEAST_WINDOWS,
    MISSING,
    FlowWindows,
    lower_medians,
)
from schemas.records import PathWindow
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import window


def at(turn: int, src: str = "h0", flow: int = 0, **change: Any) -> PathWindow:
    """Return the window of a turn."""
    return replace(window(src, "h1", flow, START_MS // 30_000 * 30_000 + 30_000 * turn), **change)


def median(values: list[int | None]) -> int | None:
    """Return the lower median of what was measured; None of too few."""
    known = [v for v in values if v is not None]
    return statistics.median_low(known) if len(known) >= LEAST_WINDOWS else None


LENGTH_US = 30_000_000


class Slow:
    """The same as `FlowWindows` of one 5-tuple, told by lists."""

    def __init__(self) -> None:
        self.windows: list[PathWindow] = []
        self.usual: dict[str, int | None] = {"p50_ns": None, "p99_ns": None}

    @property
    def kept(self) -> list[PathWindow]:
        """The windows of the last lengths."""
        last = self.windows[-1].window_end_at
        return [w for w in self.windows if w.window_end_at > last - DEPTH * LENGTH_US]

    def add(self, new: PathWindow) -> None:
        """Take a window."""
        if self.windows and new.window_end_at <= self.windows[-1].window_end_at:
            return
        if self.windows:
            for name in self.usual:
                blocks: dict[int, list[int | None]] = {}
                for w in self.windows:
                    blocks.setdefault(block_of(w), []).append(getattr(w, name))
                last = block_of(self.windows[-1])
                if block_of(new) == last:
                    del blocks[last]
                # Blocks count from the one whose end was noticed last.
                recent = max(blocks, default=0)
                known = [
                    m for b, values in blocks.items()
                    if b > max(recent, block_of(new) - 1) - BLOCKS
                    and (m := median(values)) is not None
                ]  # fmt: skip
                self.usual[name] = min(known, default=None)
                if not known:
                    self.usual[name] = median([getattr(w, name) for w in self.kept])
        self.windows.append(new)


def block_of(window: PathWindow) -> int:
    """Return the number of a window's block."""
    return window.window_start_at // (BLOCK * LENGTH_US)


TIMES = st.one_of(st.none(), st.integers(1, 10**6))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from((0, 1, 1, 1, 2, 13, 400)),
            TIMES,
            TIMES,
            st.integers(0, 30),
        ),
        max_size=80,
    )
)
def test_columns_hold_what_lists_hold(
    steps: list[tuple[int, int, int | None, int | None, int]],
) -> None:
    """Latest window, series and what is usual; late and doubled windows change nothing."""
    fast, slow = FlowWindows(limit=64), {flow: Slow() for flow in range(3)}
    turn = dict.fromkeys(slow, 0)
    for flow, forward, p50_ns, p99_ns, lost in steps:
        turn[flow] += forward
        one = at(turn[flow], flow=flow, p50_ns=p50_ns, p99_ns=p99_ns, lost=lost)
        fast.add(columns_of([one]))
        slow[flow].add(one)
    series = fast.copy().series("h0/r0", "h1/r0")
    assert set(series) == {flow for flow, s in slow.items() if s.windows}
    latest = fast.latest()
    for place, flow in enumerate(latest.flow):
        known, own = slow[int(flow)], series[int(flow)]
        assert own.end_at.tolist() == [w.window_end_at for w in known.kept]
        for column, name in ((P50, "p50_ns"), (P99, "p99_ns"), (SENT, "sent"), (LOST, "lost"),
                             (PROBER, "host_delay_p50_ns"),
                             (RESPONDER, "responder_delay_p50_ns")):  # fmt: skip
            told = [None if n == MISSING else n for n in own.numbers[:, column].tolist()]
            assert told == [getattr(w, name) for w in known.kept]
        assert own.usual_ns == (known.usual["p50_ns"], known.usual["p99_ns"])
        assert latest.end_at[place] == known.windows[-1].window_end_at
        assert latest.lost[place] == known.windows[-1].lost
        assert (latest.length_us == 30_000_000).all()


def test_the_usual_outlasts_an_hour_of_delay() -> None:
    """A fault of two hours is not what is usual."""
    windows = FlowWindows(limit=4)
    for turn in range(300):
        windows.add(columns_of([at(turn, p50_ns=16_000 if turn < 60 else 90_000)]))
    assert windows.series("h0/r0", "h1/r0")[0].usual_ns[0] == 16_000


def test_of_too_many_the_oldest_go() -> None:
    """As many as the limit are kept, whichever came in which order; what went is counted."""
    ways = []
    for order in (1, -1):
        windows = FlowWindows(limit=16)
        for number in range(40)[::order]:
            windows.add(columns_of([at(number, src=f"h{number}")]))
        assert len(windows) <= 16
        assert windows.dropped == 40 - len(windows)
        names = {windows.ends[place] for place in windows.latest().src}
        ways.append(names)
    assert {f"h{n}/r0" for n in range(27, 40)} <= ways[0]
    assert windows.generation > 0


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60), st.integers(0, 60))
def test_copies_stand_still(steps: list[tuple[int, bool]], split: int) -> None:
    """What is added to the one is not in the others, though they share columns."""
    whole, copies = FlowWindows(limit=64), []
    for turn, (host, copied) in enumerate(steps):
        if copied:
            copies.append((turn, whole.copy()))
        whole.add(columns_of([at(turn, src=f"h{host}")]))
    for turn, copy in copies:
        alone = FlowWindows(limit=64)
        for earlier, (host, _) in enumerate(steps[:turn]):
            alone.add(columns_of([at(earlier, src=f"h{host}")]))
        for later, (host, _) in enumerate(steps[turn : turn + split], turn):
            alone.add(columns_of([at(later, src=f"h{host}")]))
            copy.add(columns_of([at(later, src=f"h{host}")]))
        for host in range(3):
            one, other = (w.series(f"h{host}/r0", "h1/r0") for w in (alone, copy))
            assert set(one) == set(other)
            for flow, series in one.items():
                assert series.end_at.tolist() == other[flow].end_at.tolist()
                assert series.numbers.tolist() == other[flow].numbers.tolist()
                assert series.usual_ns == other[flow].usual_ns


def test_windows_of_another_length_begin_anew() -> None:
    """What was usual of 30 s is not held against 10 s."""
    windows = FlowWindows(limit=4)
    for turn in range(30):
        windows.add(columns_of([at(turn)]))
    short = at(40)
    windows.add(columns_of([replace(short, window_start_at=short.window_end_at - 10_000_000)]))
    found = windows.series("h0/r0", "h1/r0")[0]
    assert (len(found.end_at), found.usual_ns) == (1, (None, None))


def test_absurd_numbers_are_held_at_the_bounds() -> None:
    """A time beyond four seconds is kept as that."""
    windows = FlowWindows(limit=4)
    windows.add(columns_of([at(0, p50_ns=2**40, p99_ns=-5)]))
    numbers = windows.series("h0/r0", "h1/r0")[0].numbers[0]
    assert numbers[[P50, P99]].tolist() == [MISSING - 1, 0]


def test_a_median_of_too_few_is_not_known() -> None:
    """Two windows of three were not measured."""
    numbers = np.full((1, 3, 1), MISSING, np.uint32)
    numbers[0, 0, 0] = 5
    assert lower_medians(numbers).tolist() == [[MISSING]]
