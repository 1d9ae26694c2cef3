"""Which 5-tuples belong to a component that is slow again and again."""

from types import SimpleNamespace
from typing import cast

from localizer.facts.anomalies import Symptom
from localizer.facts.inputs import Sources
from localizer.inference.pooled_moments import BIN_NS
from localizer.network.directions import Directions, direction
from localizer.network.flow_index import FlowIndex
from localizer.network.replies import ReplyWays
from localizer.verdict.slow_moments import SlowMoments, _Moments
from schemas.enums import AnomalyKind
from schemas.ids import FlowId
from tests.unit.localizer.made import small_fabric


def symptom() -> Symptom:
    """Return one with a rise of 4 µs."""
    return Symptom(
        kind=AnomalyKind.BRIEF_LATENCY, agent_id="a", onset_ns=0, onset_at=0, seen_ns=0, last_ns=0,
        sent=12, lost=0, rtt_ns=14_000, baseline_ns=10_000, host_delay_ns=None,
    )  # fmt: skip


def test_what_is_late_by_chance_does_not_stay() -> None:
    """Of five moments one 5-tuple shows in three, one in one; a third is late in between only."""
    known = _Moments(log_chance=dict.fromkeys((1, 5, 9, 13, 17), -20.0))
    often, once, between = [("e0", "e1", flow) for flow in range(3)]
    for number in (1, 9, 17):
        known.note({often: symptom()}, number)
    known.note({once: symptom()}, 5)
    for number in (2, 6, 10):
        known.note({between: symptom()}, number)
    assert set(known.recurring()) == {often}
    assert known.events == 5


def test_what_is_late_by_an_open_fault_is_not_usual() -> None:
    """For none of the directions of its cable, either: else the next delay would be told later."""
    up, index = ("l0", "l0--s0", "s0", "l1--s0", "l1"), FlowIndex()
    path: dict[FlowId, tuple[str, ...]] = {("e0", "e1", n): up for n in range(9)}
    path |= {("e8", "e9", n): ("elsewhere",) for n in range(200)}
    for key, crossed in path.items():
        index.set_flow(key, crossed, "a", "b")
    fabric = small_fabric()
    places = Directions(index, fabric, ReplyWays(fabric, index))
    late: list[FlowId] = []
    known = SimpleNamespace(
        brief_latencies=SimpleNamespace(
            empty=False, by_family=lambda _: [(key, (symptom(),)) for key in late]
        ),
        roster=SimpleNamespace(has_left=lambda _: False),
        anomalies=SimpleNamespace(flows_of=lambda _: {}, set_pooled=lambda *_: None),
        paths=SimpleNamespace(components=lambda key, _: path[key]),
    )
    usual: dict[bool, set[float | None]] = {}
    for is_open in (False, True):
        tested = SlowMoments(cast(Sources, known))
        for number in range(10, 30):
            # Once by chance, and from the fifteenth bin on.
            late[:] = [("e0", "e1", 0)] if number == 10 or number >= 15 else []
            faulty = frozenset({"l0--s0"} if is_open and number >= 15 else ())
            tested.observe_time(number * BIN_NS, places, faulty)
        asked = "l0--s0", direction("l0--s0", "s0")
        usual[is_open] = {tested._usual.share(place, 30) for place in asked}
    assert usual == {False: {1 / 9}, True: {0.0}}
