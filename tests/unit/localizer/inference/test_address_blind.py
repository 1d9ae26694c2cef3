"""Cables that let others pass than the 5-tuples that are cut off are hardly cut."""

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.facts.anomalies import NO_LATE, Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.inference.address_blind import (
    KNOWN,
    LOSSES,
    MOST_HALVES,
    Doubts,
    chance_of_each,
    find_doubts,
    is_no_cut,
    of_a_cable,
    of_a_share,
)
from localizer.inference.detection_lag import MOST, Shown
from localizer.inference.good_flows import GoodFlows
from localizer.inference.search import FLOW_SEVERITIES
from localizer.network.directions import Directions
from localizer.network.flow_index import FlowIndex
from localizer.network.replies import ReplyWays
from localizer.network.topology import Topology
from schemas.enums import AnomalyKind
from schemas.ids import FlowId
from tests.unit.localizer.made import START, link, small_fabric

UP, DOWN = "l0--s0", "l1--s0"
LONG: Final = 10
flows_lost = st.lists(st.integers(3, 30), min_size=1, max_size=12)
shares = st.lists(st.floats(0.05, 0.98), max_size=12)


def way(src: int, dst: int, spine: int = 0) -> tuple[str, ...]:
    """Return what a 5-tuple crosses between the RNICs of two leaves."""
    return (
        f"r{src}", f"l{src}", f"l{src}--s{spine}", f"s{spine}", f"l{dst}--s{spine}", f"l{dst}",
        f"r{dst}",
    )  # fmt: skip


def bad(
    key: FlowId, *, kind: AnomalyKind = AnomalyKind.CONNECTIVITY, lost: int = LONG, passed: int = 0
) -> BadFlow:
    """Return a 5-tuple that is cut off; lost probes have passed so many of its components."""
    symptom = Symptom(
        kind=kind, agent_id="a", onset_ns=START, onset_at=START, seen_ns=START, last_ns=START,
        sent=lost, lost=lost, rtt_ns=None, baseline_ns=None, host_delay_ns=None,
        prober_late=NO_LATE, responder_late=NO_LATE,
    )  # fmt: skip
    crossed = way(int(key[0][1]), int(key[1][1]))[passed:]
    return BadFlow(
        key=key, symptoms=(symptom,), components=crossed, prober="a", responder="b", open=True
    )


def doubts(
    flows: Sequence[BadFlow], well: Sequence[FlowId], fabric: Topology | None = None
) -> Doubts:
    """Return what is doubted where the others of one spine are well."""
    index, fabric = FlowIndex(), fabric or small_fabric()
    keys = [flow.key for flow in flows]
    for key in (*keys, *well):
        index.set_flow(key, way(int(key[0][1]), int(key[1][1])), "a", "b")
    good = GoodFlows.of(index, keys, [])
    places = Directions(index, fabric, ReplyWays(fabric, index))
    shown = Shown(MOST["cut"])
    return find_doubts(
        list(flows), good, shown, places, lambda key, _: way(int(key[0][1]), int(key[1][1]))
    )


def there(*numbers: int) -> list[FlowId]:
    """Return 5-tuples from the first leaf to the second one."""
    return [("e0", "e1", number) for number in numbers]


def back(*numbers: int) -> list[FlowId]:
    """Return 5-tuples from the second leaf to the first one."""
    return [("e1", "e0", number) for number in numbers]


def test_both_cables_are_doubted_where_others_pass_the_same_way() -> None:
    """Three of six are lost behind a leaf: neither cable reads which."""
    cut = [bad(key) for key in there(0, 1, 2)]
    found = doubts(cut, there(3, 4, 5))
    chance = chance_of_each([LONG] * 3, np.full(3, KNOWN))
    assert chance < 0.1
    assert [flow.doubted for flow in found.bad] == [((UP, chance), (DOWN, chance))] * 3
    assert found.contested == {UP, DOWN}


def test_what_goes_the_other_way_says_nothing() -> None:
    """A cable may be cut in one direction."""
    cut = [bad(key) for key in there(0, 1, 2)]
    found = doubts(cut, back(0, 1, 2))
    assert found == Doubts(cut)


@pytest.mark.parametrize("kind", [AnomalyKind.LOSS, AnomalyKind.STRAY_LOSS])
def test_a_cable_that_loses_a_share_is_not_doubted(kind: AnomalyKind) -> None:
    """It cuts 5-tuples off by chance, and others look well meanwhile."""
    flows = [*(bad(key) for key in there(0, 1, 2)), bad(("e0", "e1", 9), kind=kind)]
    assert doubts(flows, there(3, 4, 5)) == Doubts(flows)


def test_parallel_cables_choose_by_addresses() -> None:
    """Traces show one of them on all ways."""
    fabric = small_fabric()
    fabric.set_component(replace(link("l0", "s0"), component_id="l0--s0#2"))
    found = doubts([bad(key) for key in there(0, 1, 2)], there(3, 4, 5), fabric)
    assert {cable for flow in found.bad for cable, _ in flow.doubted} == {DOWN}


def test_what_lost_probes_have_passed_is_not_doubted_again() -> None:
    """It is no candidate of that 5-tuple any more."""
    cut = [bad(key, passed=3) for key in there(0, 1, 2)]
    found = doubts(cut, there(3, 4, 5))
    assert {cable for flow in found.bad for cable, _ in flow.doubted} == {DOWN}


def test_at_first_a_loss_of_most_packets_explains_it_as_well() -> None:
    """After three losses in a row each, others may just have been lucky: that is worth a wait."""
    found = doubts([bad(key, lost=3) for key in there(0, 1, 2)], there(3, 4))
    late = doubts([bad(key) for key in there(0, 1, 2)], there(3, 4))
    assert found.contested == {UP, DOWN}
    for early, then in zip(found.bad, late.bad, strict=True):
        assert dict(early.doubted).get(UP, 1.0) > dict(then.doubted)[UP]


def test_few_that_are_well_do_not_clear_a_cable_that_cuts_many() -> None:
    """Their paths may have changed since they were traced."""
    assert not is_no_cut(200, 1)
    assert chance_of_each([LONG] * 200, np.full(2, KNOWN)) == 1.0


@given(lost=flows_lost, lags=shares)
def test_likelihoods_are_those_of_a_loop(lost: list[int], lags: list[float]) -> None:
    """Packet by packet and 5-tuple by 5-tuple."""

    def of_loss(p: float) -> float:
        whole = 0.0
        for count in lost:
            for _ in range(count):
                whole += log(p)
        unseen = 1.0
        for _ in range(min(lost) - 2):
            unseen *= 1.0 - p * p * p
        for lag in lags:
            whole += log(1.0 - lag + lag * unseen)
        return whole

    def of_share(s: float) -> float:
        return sum(log(s) for _ in lost) + sum(log(1.0 - lag * s) for lag in lags)

    assert of_a_cable(lost, np.array(lags)) == pytest.approx(max(map(of_loss, LOSSES)))
    assert of_a_share(len(lost), np.array(lags)) == pytest.approx(
        max(map(of_share, FLOW_SEVERITIES))
    )


@given(lost=flows_lost, lags=shares, data=st.data())
def test_the_chance_is_a_power_of_a_half_in_whatever_order(
    lost: list[int], lags: list[float], data: st.DataObject
) -> None:
    """So that rows that are alike stay alike; 1 if none of the direction is well."""
    chance = chance_of_each(lost, np.array(lags))
    assert chance in {0.5**halves for halves in range(MOST_HALVES + 1)}
    other = data.draw(st.permutations(lost)), np.array(data.draw(st.permutations(lags)))
    assert chance_of_each(*other) == chance
    assert chance_of_each(lost, np.empty(0)) == 1.0
