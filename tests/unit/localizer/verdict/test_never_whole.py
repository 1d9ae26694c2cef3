"""What 5-tuples may cross that were never whole: the open fault beside which traces break off."""

import pytest

from localizer.facts.anomalies import Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.network.paths import PathBook
from localizer.verdict.never_whole import beside_faults
from schemas.enums import AnomalyKind
from schemas.units import SECOND_NS
from tests.unit.localizer.made import START, small_fabric, trace

KEY = ("e0", "e1", 0)


def bad(kind: AnomalyKind = AnomalyKind.CONNECTIVITY) -> BadFlow:
    """Return the 5-tuple of all traces here, cut off."""
    symptom = Symptom(
        kind=kind, agent_id="a", onset_ns=START, onset_at=START // 1000,
        seen_ns=START + SECOND_NS, last_ns=START + SECOND_NS, sent=9, lost=3, rtt_ns=None,
        baseline_ns=None, host_delay_ns=None,
    )  # fmt: skip
    return BadFlow(
        key=KEY, symptoms=(symptom,), components=("v0", "r0", "r1", "v1"), prober="a",
        responder="b", open=True,
    )  # fmt: skip


def added(faulty: set[str], *shown: str, kind: AnomalyKind = AnomalyKind.CONNECTIVITY) -> set[str]:
    """Return what is added to the 5-tuple after traces that broke off, or ended in `e1`."""
    topology = small_fabric(spines=2)
    paths = PathBook(topology)
    for second, hops in enumerate(shown):
        paths.add_trace(trace(hops, at=START + second * SECOND_NS, complete="e1" in hops.split()))
    (flow,) = beside_faults([bad(kind)], frozenset(faulty), paths, topology)
    return set(flow.components) - set(bad().components)


@pytest.mark.parametrize("faulty", ["s0", "l0", "l0--s0"])
def test_a_fault_beside_the_last_hop_may_be_on_the_way(faulty: str) -> None:
    """A spine next to it, the switch itself, or the cable between."""
    assert added({faulty, "l1--r1"}, "v0 r0 l0 -") == {faulty}


def test_what_is_not_beside_it_is_not() -> None:
    """No trace, none that anything answered, one that went past it, or a fault of one RNIC."""
    assert added({"s0"}) == set()
    assert added({"s0"}, "- -") == set()
    assert added({"s0"}, "v0 r0 -") == set()
    assert added({"l0--s0"}, "v0 r0 l0 s1 -") == set()
    assert added({"r0", "l0--r0"}, "v0 r0 l0 -") == set()
    # Behind the target's leaf there are its own RNIC and virtual switch only.
    assert added({"s0"}, "v0 r0 l0 s1 l1 -") == set()


def test_the_latest_trace_counts() -> None:
    """By now it takes another way."""
    assert added({"s0"}, "v0 r0 l0 -", "v0 r0 l0 s1 l1 -") == set()


def test_of_what_was_whole_the_way_is_known() -> None:
    """Its way was another one; and what loses a share of its probes is no cut."""
    assert added({"s0"}, "v0 r0 l0 s1 l1 r1 v1 e1", "v0 r0 l0 -") == set()
    assert added({"s0"}, "v0 r0 l0 -", kind=AnomalyKind.LOSS) == set()
