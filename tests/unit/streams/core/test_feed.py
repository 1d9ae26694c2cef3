"""Rounds out of bounds: refused and counted by the kernel and one by one; the next ones go on."""

from typing import Any

import pytest

from schemas.bounds import BOUNDS, Bound, Measure
from schemas.codec import Codec
from schemas.topics import PROBE_ROUND
from schemas.units import MS_NS, SECOND_NS
from streams.config import DetectionConfig
from streams.core.feed import Feed, LogMessage
from tests.unit.schemas.valid import ARRIVAL_NS, mutated, probes_of
from tests.unit.streams.columns.rounds_read import OneByOne
from tests.unit.streams.worlds import CLUSTER, World, as_bytes, machine, round_datum

ROWS = [b for b in BOUNDS if b.topic == PROBE_ROUND.name and b.measure is not Measure.ITEMS]
BEFORE = 3


def rounds(seq: int) -> dict[str, Any]:
    """Return a valid round that begins a second later than the one before."""
    result = {
        "src": "a", "dst": "b", "flow": 0, "sent_offset_ns": 0, "transport": "UDP",
        "status": "OK", "rtt_ns": 1_000, "prober_delay_ns": 1, "responder_delay_ns": 1,
        "clock": "SOFTWARE",
    }  # fmt: skip
    return round_datum([result], ARRIVAL_NS + (seq - BEFORE) * SECOND_NS, seq)


def run(values: list[bytes], *, kernels: bool) -> tuple[list[Any], list[str], dict[str, int]]:
    """Process rounds that arrive when they begin; return outputs, errors and counts."""
    codec, held = Codec(), machine(DetectionConfig())
    feed = (Feed if kernels else OneByOne)(held, codec)
    outputs, errors = [], []
    for number, value in enumerate(values):
        arrival_ms = (ARRIVAL_NS + (number - BEFORE) * SECOND_NS) // MS_NS
        for processed in feed.process([LogMessage(value, number, arrival_ms)]):
            outputs += processed.outputs
            if processed.refused is not None:
                errors.append(f"{processed.refused.counter}: {processed.refused.error}")
    return as_bytes(outputs), errors, dict(held.counts)


@pytest.mark.parametrize("bound", ROWS, ids=[b.field for b in ROWS])
def test_out_of_bounds_is_refused_by_both_ways_and_the_next_go_on(bound: Bound) -> None:
    """The same outputs, errors and counts, and every valid round is processed."""
    codec = Codec()
    for value, allowed in probes_of(bound):
        datums = [rounds(seq) for seq in range(2 * BEFORE)]
        mutated(datums[BEFORE], bound, value)
        values = [codec.encode_datum(PROBE_ROUND, d) for d in datums]
        outputs, errors, counts = run(values, kernels=True)
        alone = run(values, kernels=False)
        assert (outputs, errors) == alone[:2]
        if allowed:
            continue
        (error,) = errors
        assert bound.field in error
        assert error.startswith(("invalid: ", "clock_ahead: "))
        assert counts["rounds"] == alone[2]["rounds"] == len(datums) - 1


def test_a_backlog_is_no_wrong_clock() -> None:
    """Rounds that arrive an hour late are processed by the kernel."""
    codec, held = Codec(), machine(DetectionConfig())
    feed = Feed(held, codec)
    # The first window of a backlog may have been closed before; its results are late.
    made = list(World().rounds(120))
    first_ms = made[0]["started_at"] // 1_000
    messages = [
        LogMessage(codec.encode_datum(PROBE_ROUND, d), n, first_ms + 3_600_000)
        for n, d in enumerate(made)
    ]
    assert made[0]["cluster"] == CLUSTER
    assert all(p.refused is None for p in feed.process(messages))
    assert held.counts["rounds_alone"] < len(made) / 2
