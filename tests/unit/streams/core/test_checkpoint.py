"""What travels with a committed offset."""

from dataclasses import replace

import pytest

from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.core.anchors import (
    ANCHOR_STEP_NS,
    Anchor,
    Anchors,
    agents_horizon_ns,
    probes_horizon_ns,
)
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
    config = DetectionConfig()
    probes_ns, agents_ns = probes_horizon_ns(config), agents_horizon_ns(config)
    anchors = Anchors(config, Anchor(0, ClockState()))
    for offset in range(1_000):
        # A pause of an hour, in the middle.
        paused_ns = 3600 * SECOND_NS if offset >= 500 else 0
        clock = ClockState((1000 + offset) * SECOND_NS + paused_ns, paused_ns)
        anchors.note(offset, clock)
        for silence_s in (None, 1, 170, 200, 1_000):
            needed_ns = None if silence_s is None else clock.active_ns - silence_s * SECOND_NS
            start = anchors.start(clock, needed_ns)
            least_ns = min(max(probes_ns, (silence_s or 0) * SECOND_NS), agents_ns)
            if offset * SECOND_NS <= least_ns:
                assert start.offset == 0
                continue
            back_ns = clock.active_ns - start.clock.active_ns
            # That of the round itself may be behind it.
            assert least_ns <= back_ns <= least_ns + ANCHOR_STEP_NS + 1
            if needed_ns is not None and silence_s != 1_000:
                assert start.clock.active_ns < needed_ns
            assert start.offset == (start.clock.active_ns // SECOND_NS) - 1000


def test_stalled_time_keeps_the_anchor() -> None:
    """While arrival stands still, the look-back must still hold what made it."""
    anchors = Anchors(DetectionConfig(), Anchor(0, ClockState()))
    clock = ClockState(1000 * SECOND_NS)
    for offset in range(100):
        anchors.note(offset, clock)
    assert anchors.start(clock, None).offset == 0
