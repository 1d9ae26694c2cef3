"""Components whose 5-tuples are late, before and while their fault is open."""

from types import SimpleNamespace
from typing import cast

import pytest

from localizer.facts.inputs import Sources
from localizer.network.directions import Directions
from localizer.network.flow_index import FlowIndex
from localizer.network.replies import ReplyWays
from localizer.verdict.slow_components import STEP_NS, SlowComponents
from schemas.ids import FlowId
from tests.unit.localizer.made import small_fabric

UP = ("l0", "l0--s0", "s0", "l1--s0", "l1")
FIRST_NS = 10 * STEP_NS


@pytest.mark.parametrize("each", [5, 6, 7, 9])
def test_a_cable_slow_in_one_direction_stays_so_while_its_fault_is_open(each: int) -> None:
    """All 5-tuples of one direction are late, as many go the other way; eight are by chance."""
    index = FlowIndex()
    path: dict[FlowId, tuple[str, ...]] = {}
    for number in range(each):
        path["e0", "e1", number], path["e1", "e0", number] = UP, UP[::-1]
    for number in range(400):
        path["e8", "e9", number] = (f"elsewhere{number % 40}",)
    for key, crossed in path.items():
        index.set_flow(key, crossed, "a", "b")
    fabric = small_fabric(spines=4)
    places = Directions(index, fabric, ReplyWays(fabric, index))
    late = [key for key in path if key[0] == "e0"] + [("e8", "e9", n) for n in range(8)]
    symptom = SimpleNamespace(is_probers=False, onset_ns=0)
    pooled: list[set[FlowId]] = []
    known = SimpleNamespace(
        weak_latencies=SimpleNamespace(
            empty=False, by_family=lambda _: [(key, (symptom,)) for key in late]
        ),
        roster=SimpleNamespace(has_left=lambda _: False),
        anomalies=SimpleNamespace(
            flows_of=lambda _: {}, set_pooled=lambda _, symptoms: pooled.append({*symptoms})
        ),
        paths=SimpleNamespace(components=lambda key, _: path[key]),
    )
    tested = SlowComponents(cast(Sources, known))
    tested.observe_time(FIRST_NS, places)
    for step in range(1, 5):
        tested.observe_time(FIRST_NS + step * STEP_NS, places, frozenset({"l0--s0"}))
    assert pooled == [{*late[:each]}] * 5
