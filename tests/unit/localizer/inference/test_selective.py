"""Switches that drop one endpoint's packets are told from those that lose a share of all."""

from collections.abc import Callable, Mapping
from math import exp, log
from typing import Final

import pytest

from localizer.facts.anomalies import NO_LATE, Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.inference.detection_lag import Shown
from localizer.inference.good_flows import GoodFlows
from localizer.inference.search import FLOW_SEVERITIES
from localizer.inference.selective import SEVERITY, selective_evidence
from localizer.network.flow_index import FlowIndex
from schemas.enums import AnomalyKind
from schemas.ids import FlowId
from tests.unit.localizer.made import START

SWITCH: Final = "spine"
ENDS: Final = [f"e{number}" for number in range(5)]
ALL: Final[list[FlowId]] = [(a, b, flow) for a in ENDS for b in ENDS if a != b for flow in (0, 1)]
Shares = Callable[[str, str], Mapping[str, float]]


def no_reply(src: str, dst: str) -> Mapping[str, float]:
    """Return what is known where replies never come back through the switch."""
    del src, dst
    return {}


def no_leaf(endpoint: str) -> frozenset[str]:
    """Return what an endpoint is joined to where the switch is far from all."""
    del endpoint
    return frozenset()


def half(src: str, dst: str) -> Mapping[str, float]:
    """Return what is known where every other reply comes back through it."""
    del src, dst
    return {SWITCH: 0.5}


def bad(key: FlowId, kind: AnomalyKind = AnomalyKind.CONNECTIVITY) -> BadFlow:
    """Return a 5-tuple that is cut off."""
    symptom = Symptom(
        kind=kind, agent_id="agent", onset_ns=START, onset_at=START, seen_ns=START, last_ns=START,
        sent=3, lost=3, rtt_ns=None, baseline_ns=None, host_delay_ns=None,
        prober_late=NO_LATE, responder_late=NO_LATE,
    )  # fmt: skip
    return BadFlow(
        key=key, symptoms=(symptom,), components=(SWITCH,), prober="agent", responder="other",
        open=True,
    )  # fmt: skip


def evidence(cut: list[FlowId], shares: Shares = no_reply, lag: float = 0.98) -> float:
    """Return the evidence for the switch when these of all its 5-tuples are cut off."""
    index = FlowIndex()
    for key in ALL:
        index.set_flow(key, (SWITCH,), f"agent-{key[0]}", f"agent-{key[1]}")
    good = GoodFlows.of(index, cut, [])
    flows = [bad(key) for key in cut]
    found = selective_evidence(
        good, shares, {SWITCH: flows}, Shown(lag), leaves=no_leaf, all_bad=flows, chance=0.002
    )
    return found.get(SWITCH, 0.0)


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("lag", [0.3, 0.98])
def test_it_is_the_likelihood_ratio_by_hand(direction: int, lag: float) -> None:
    """One of five endpoints, or one more, in one of two directions, against the best share."""
    cut = [key for key in ALL if key[direction] == "e3"]
    share = max(s ** len(cut) * (1 - lag * s) ** (len(ALL) - len(cut)) for s in FLOW_SEVERITIES)
    by_hand = log(SEVERITY ** len(cut) / 12 / share)
    assert evidence(cut, lag=lag) == pytest.approx(by_hand)
    assert by_hand > 0


def test_lost_replies_belong_to_it_as_often_as_they_come_back_that_way() -> None:
    """Of eight probes from the endpoint, half find their way back through the switch."""
    to = [key for key in ALL if key[1] == "e3"]
    back = [key for key in ALL if key[0] == "e3"]
    ratios = [evidence(to + back[:count], half) for count in (0, 4, 8)]
    assert all(ratio > 0 for ratio in ratios)
    assert evidence(to + back[:4]) == 0
    # As likely with each number of them, as far as the model of a share goes.
    chance = exp(evidence(to, half) - evidence(to))
    assert chance == pytest.approx((1 - 0.98 * SEVERITY / 2) ** len(back))


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param([("e0", "e3", 0), ("e0", "e4", 0), ("e1", "e2", 0)], id="nothing in common"),
        pytest.param([key for key in ALL if key[1] == "e3"][:3], id="others to it are well"),
        pytest.param(ALL, id="all"),
    ],
)
def test_no_evidence_where_a_share_explains_as_much(cut: list[FlowId]) -> None:
    """So that nothing is taken from cables without a reason."""
    assert evidence(cut) == 0


def test_partial_loss_chooses_no_endpoint() -> None:
    """A route or an access list lets nothing through."""
    index = FlowIndex()
    for key in ALL:
        index.set_flow(key, (SWITCH,), f"agent-{key[0]}", f"agent-{key[1]}")
    cut = [key for key in ALL if key[1] == "e3"]
    flows = [bad(key, AnomalyKind.LOSS) for key in cut]
    good = GoodFlows.of(index, cut, [])
    found = selective_evidence(
        good, no_reply, {SWITCH: flows}, Shown(0.98), leaves=no_leaf, all_bad=flows, chance=0.002
    )
    assert found == {}


def test_replies_of_what_does_not_cross_it_belong_to_it_as_well() -> None:
    """Probes from the endpoint leave by another switch; every other one is lost on its way back."""
    index = FlowIndex()
    for key in ALL:
        index.set_flow(key, (SWITCH if key[2] else "other",), f"agent-{key[0]}", f"agent-{key[1]}")
    to = [key for key in ALL if key[1] == "e3" and key[2]]
    back = [key for key in ALL if key[0] == "e3" and not key[2]][:2]
    good = GoodFlows.of(index, to + back, [])
    all_bad = [bad(key) for key in to + back]

    def ratio_where_it_leaves(*switches: str) -> float:
        return selective_evidence(
            good, half, {SWITCH: all_bad[: len(to)]}, Shown(0.98),
            leaves=lambda e: frozenset(switches if e == "e3" else ()), all_bad=all_bad,
            chance=0.002,
        )[SWITCH]  # fmt: skip

    ratios = {True: ratio_where_it_leaves(SWITCH), False: ratio_where_it_leaves()}

    def by_chance_or(lost: float) -> float:
        return lost + (1 - lost) * 0.002

    crossing, count = len(ALL) // 2, len(back)
    share = max(
        s ** len(to) * by_chance_or(s / 2) ** count * (1 - 0.98 * s) ** (crossing - len(to))
        for s in FLOW_SEVERITIES
    )
    # Four probes to others leave by each switch; of those by the other two are well.
    well = (1 - 0.98 * SEVERITY / 2) ** (4 + 4 - count)
    one = SEVERITY ** len(to) * by_chance_or(SEVERITY / 2) ** count * well / 12
    assert ratios[False] == pytest.approx(log(one / share))
    # Of a leaf nothing but probes tells: the endpoint's cable there loses the same replies.
    assert ratios[True] == pytest.approx(
        log(SEVERITY ** len(to) / 12)
        - max(len(to) * log(s) + (crossing - len(to)) * log(1 - 0.98 * s) for s in FLOW_SEVERITIES)
        + 4 * log(1 - 0.98 * SEVERITY / 2)
    )
