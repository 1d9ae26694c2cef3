"""What travels with a committed offset."""

from dataclasses import replace

import pytest

from schemas.units import SECOND_NS
from streams.core.anchors import ANCHOR_STEP_NS, Anchor, Anchors
from streams.core.checkpoint import Checkpoint
from streams.core.clock import ClockState

POINT = Checkpoint(
    offset=77,
    lookback=Anchor(12, ClockState(17 * 10**17, 18 * 10**17)),
    closed_ns=9,
    window_ns=10,
    window_offset=3,
    anomaly_offset=4,
)  # fmt: skip


def test_metadata_brings_everything_back_and_fits() -> None:
    """Written and read, the checkpoint is the same, within the broker's 4,096 bytes."""
    assert Checkpoint.parse(77, POINT.metadata()) == POINT
    assert len(POINT.metadata().encode()) < 4096


@pytest.mark.parametrize(
    "text",
    [None, "", "{}", "[]", "leader", '{"format":2}', '{"format":1}',
     '{"format":2,"lookback":1,"clock":[1],"closed_ns":0,"window_ns":1,"outputs":[0,0]}'],
)  # fmt: skip
def test_foreign_metadata_is_none(text: str | None) -> None:
    """What another program committed is no checkpoint, and no error."""
    assert Checkpoint.parse(1, text) is None


def test_checkpoint_of_the_first_release_keeps_its_windows() -> None:
    """Its clock is of no use; what it closed counts as windows of another length."""
    former = '{"format":1,"lookback":12,"clock":[17,18,0,"",0],"closed_ns":9,"outputs":[3,4]}'
    expected = replace(POINT, lookback=Anchor(12, ClockState()), window_ns=0)
    assert Checkpoint.parse(77, former) == expected


def test_anchor_lies_a_horizon_back_and_no_more() -> None:
    """The look-back begins at least a horizon of active time ago, at most a step earlier."""
    horizon_ns = 60 * SECOND_NS
    anchors = Anchors(horizon_ns, Anchor(0, ClockState()))
    for offset in range(500):
        # A pause of an hour, in the middle.
        paused_ns = 3600 * SECOND_NS if offset >= 250 else 0
        clock = ClockState((1000 + offset) * SECOND_NS + paused_ns, paused_ns)
        anchors.note(offset, clock)
        start = anchors.start(clock)
        if offset <= 60:
            assert start.offset == 0
        else:
            back_ns = clock.active_ns - start.clock.active_ns
            assert horizon_ns <= back_ns <= horizon_ns + ANCHOR_STEP_NS
            assert start.offset == (start.clock.active_ns // SECOND_NS) - 1000


def test_stalled_time_keeps_the_anchor() -> None:
    """While arrival stands still, the look-back must still hold what made it."""
    anchors = Anchors(10 * SECOND_NS, Anchor(0, ClockState()))
    clock = ClockState(1000 * SECOND_NS)
    for offset in range(100):
        anchors.note(offset, clock)
    assert anchors.start(clock).offset == 0
