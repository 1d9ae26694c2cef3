"""Rounds through the kernel and rounds one by one: the same outputs, whatever comes."""

from itertools import pairwise
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import Codec
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.core import windows
from streams.core.feed import Feed
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output
from tests.property.test_streams_machine_partition import CONFIG, logs
from tests.unit.streams.columns.rounds_read import OneByOne, framed, raw_message
from tests.unit.streams.worlds import START_S, Datum, Fault, World, as_bytes, machine

BAD_VALUES = (b"", b"\x00", b"\xc3\x01" + bytes(40))
# A second of a window, so that few rounds close many.
SHORT = DetectionConfig(window_ns=4 * SECOND_NS, lateness_ns=2 * SECOND_NS)


def run(
    config: DetectionConfig, values: list[bytes], cuts: list[int], *, kernels: bool
) -> tuple[PartitionMachine, list[Output], list[tuple[int, str, str]]]:
    """Take values in batches; return the machine, its outputs, and what was refused."""
    m = machine(config)
    feed = (Feed if kernels else OneByOne)(m, Codec())
    messages = [raw_message(value, offset) for offset, value in enumerate(values)]
    outputs: list[Output] = []
    refused: list[tuple[int, str, str]] = []
    bounds = [0, *sorted({cut for cut in cuts if cut < len(messages)}), len(messages)]
    for begin, end in pairwise(bounds):
        for taken in feed.process(messages[begin:end]):
            outputs += taken.outputs
            if (bad := taken.refused) is not None:
                refused.append((int(bad.message.offset() or 0), bad.counter, str(bad.error)))
    return m, outputs, refused


def state(m: PartitionMachine) -> tuple[Any, ...]:
    """Return what a restart and the metrics see of a machine."""
    counts = {name: n for name, n in m.counts.items() if n and name != "rounds_alone"}
    told = [values.tolist() for values in m.tally.outcomes], m.tally.anomalies, m.tally.latest
    return m.clock, m.lookback, m.closed_ns, m.open_anomalies, counts, told, len(m.recent.flows)


def check(config: DetectionConfig, values: list[bytes], cuts: list[int]) -> PartitionMachine:
    """Compare both ways; return the machine that the kernel fed."""
    by_kernel, told, refused = run(config, values, cuts, kernels=True)
    alone, wanted, unwanted = run(config, values, cuts, kernels=False)
    assert as_bytes(told) == as_bytes(wanted)
    assert refused == unwanted
    assert state(by_kernel) == state(alone)
    return by_kernel


@settings(max_examples=50)
@given(log=logs(), cuts=st.lists(st.integers(1, 60), max_size=6), bad=st.integers(0, 3))
def test_disorder_and_lies(log: list[Datum], cuts: list[int], bad: int) -> None:
    """Steps back and ahead, repeats, losses, jumps of the clock, bytes that are no round."""
    values = [framed(datum) for datum in log]
    for number, value in enumerate(BAD_VALUES[:bad]):
        values.insert((7 * number + 3) % (len(values) + 1), value)
    check(CONFIG, values, cuts)


@settings(max_examples=10)  # each takes half a second
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.002, 0.05]),
    late=st.sampled_from([0.0, 0.05]),
    again=st.sampled_from([0.0, 0.05]),
    batch=st.integers(1, 200),
    large=st.sampled_from([0, windows.LARGE_BYTES]),
)
def test_worlds_of_some_agents(
    *, seed: int, loss: float, late: float, again: float, batch: int, large: int
) -> None:
    """Faults, churn of 5-tuples, silence and return, late and repeated rounds.

    Whether the slots of a window go back to the system at its end or not.
    """
    random = Random(seed)
    faults = [
        Fault(40, 60, frozenset({(0, 0), (0, 1)}), loss=1.0),
        Fault(70, 95, frozenset({(1, 0)}), delay_ns=4_000_000),
    ]
    log: list[tuple[float, Datum]] = []
    for n in range(4):
        world = World(seed=seed % 1000 + n, agent=f"agent-h{n}", base_loss=loss, flows=2 + n % 2,
                      late=late, faults=faults if n == 0 else [])  # fmt: skip
        for second, datum in enumerate(world.rounds(110)):
            if n == 3 and 20 <= second < 100 - seed % 30:
                continue
            if n == 2:
                # Another port each half minute: new 5-tuples come, old ones go.
                for r in datum["results"]:
                    r["flow"] += 10 * (second // 30)
            at = second + n / 5 + (random.choice([1, 3, 8]) if random.random() < late else 0)
            log.append((at, datum))
            if random.random() < again:
                log.append((at + random.choice([0.1, 2]), datum))
    log.sort(key=lambda pair: pair[0])
    values = [framed(datum) for _, datum in log]
    with patch.object(windows, "LARGE_BYTES", large):
        by_kernel = check(SHORT, values, list(range(batch, len(values), batch)))
    assert by_kernel.clock.arrival_ns is not None


def test_nearly_all_rounds_of_a_healthy_network_are_plain() -> None:
    """Only the first of each agent and those at an anchor go one by one."""
    worlds = [World(seed=n, agent=f"agent-h{n}").rounds(60) for n in range(20)]
    log = [datum for second in zip(*worlds, strict=True) for datum in second]
    fed = check(DetectionConfig(), [framed(d) for d in log], [100, 500])
    assert (fed.clock.arrival_ns or 0) // SECOND_NS == START_S + 59
    # Twenty first ones, and an anchor every 5 s.
    assert fed.counts["rounds_alone"] <= 20 + 60 / 5 + 1
    assert fed.counts["rounds"] == 20 * 60


def test_rounds_that_come_behind_later_ones_of_their_agent_are_plain() -> None:
    """Those with a lost probe wait for its timeout. What comes twice is not counted."""
    log: list[tuple[float, Datum]] = []
    for n in range(20):
        for second, datum in enumerate(World(seed=n, agent=f"agent-h{n}").rounds(60)):
            behind_s = 2.5 if (second + n) % 7 == 3 else 0.0
            log.append((second + n / 20 + behind_s, datum))
            if (second + n) % 14 == 3:
                log.append((second + n / 20 + 3, datum))
    log.sort(key=lambda pair: pair[0])
    fed = check(DetectionConfig(), [framed(datum) for _, datum in log], [100, 500])
    again = len(log) - 20 * 60
    assert again > 80
    assert fed.counts["duplicate"] >= again
    assert fed.counts["rounds_alone"] <= 20 + 63 / 5 + 1 + again


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), repeat=st.sampled_from([1, 5, 12]), batch=st.integers(1, 200))
def test_more_results_than_slots_and_values_beyond_them(seed: int, repeat: int, batch: int) -> None:
    """A 5-tuple probed many times a second, round trips and delays of seconds, new 5-tuples."""
    random = Random(seed)
    values = []
    for second, datum in enumerate(World(seed=seed % 1000, agent="agent-h0").rounds(70)):
        results = []
        for result in datum["results"]:
            if second % 30 == 20:
                result["flow"] += second
            for nth in range(repeat if result["flow"] == 0 else 1):
                slow = random.random() < 0.02 and result["rtt_ns"] is not None
                results.append(
                    result
                    | {"sent_offset_ns": result["sent_offset_ns"] + nth * 10_000_000}
                    | ({"rtt_ns": random.choice([2**31 - 2, 2**31, 5 * 10**9])} if slow else {})
                    | ({"responder_delay_ns": 2**40} if random.random() < 0.01 else {})
                )
        values.append(framed(datum | {"results": results}))
    check(DetectionConfig(), values, list(range(batch, len(values), batch)))
