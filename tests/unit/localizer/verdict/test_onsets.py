"""What has cut off 5-tuples at one time did not cut off those that were answered for longer."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.facts.anomalies import Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.facts.roster import Roster
from localizer.verdict.catalogue import LATENCY
from localizer.verdict.catalogue import LOSS as LOSS_GROUP
from localizer.verdict.incident import Incident
from localizer.verdict.onsets import NEW_PAIR_NS, SAMPLING_NS, apart, broken_later, never_well
from schemas.enums import AnomalyKind
from schemas.units import SECOND_NS, ns_to_us
from tests.unit.localizer.made import START, pinglist

CUT, LOSS = AnomalyKind.CONNECTIVITY, AnomalyKind.LOSS


def bad(number: int, at_s: float, responder: str, kind: AnomalyKind = CUT) -> BadFlow:
    """Return a 5-tuple to an agent through the leaf of all, that is bad since a time."""
    onset_ns = START + round(at_s * SECOND_NS)
    symptom = Symptom(
        kind=kind, agent_id="a", onset_ns=onset_ns, onset_at=onset_ns // 1000,
        seen_ns=onset_ns + SECOND_NS, last_ns=onset_ns + SECOND_NS, sent=9, lost=3, rtt_ns=None,
        baseline_ns=None, host_delay_ns=None,
    )  # fmt: skip
    return BadFlow(
        key=("e", responder, number), symptoms=(symptom,), components=("leaf", f"vsw:{responder}"),
        prober="a", responder=responder, open=True,
    )  # fmt: skip


def test_agents_that_are_upgraded_one_after_another_have_no_leaf_in_common() -> None:
    """Each is away for a few seconds; all are below one leaf, which cuts what it cuts at once."""
    first = [bad(n, 0.2 * n, "b") for n in range(3)]
    second = [bad(9 + n, 6 + 0.2 * n, "c") for n in range(4)]
    found = apart([*first, *second], frozenset())
    assert [flow.passed_before for flow in found] == [{"leaf"}] * 3 + [frozenset()] * 4
    # It is known when an open fault began, and what crosses it dates nothing else.
    assert apart([*first, *second], frozenset({"leaf"})) == [*first, *second]
    assert apart([*first, *second], frozenset({"vsw:b"})) == [*first, *second]
    # Where single probes are lost as well, three in a row are chance.
    lossy = [bad(20, 3, "d", LOSS), *first, *second]
    assert apart(lossy, frozenset()) == lossy


@given(st.lists(st.floats(0, SAMPLING_NS / SECOND_NS), max_size=8))
def test_what_is_cut_off_together_stays_one_cut(at_s: list[float]) -> None:
    """Within the time that sampling takes nothing is noted."""
    flows = [bad(n, at, f"r{n % 2}") for n, at in enumerate(at_s)]
    assert apart(flows, frozenset()) == flows


@pytest.mark.parametrize("kind", ["acs_ats_wrong", "high_latency"])
def test_what_a_state_has_named_is_no_part_of_a_later_fault(kind: str) -> None:
    """A host's second RNIC turns late minutes after the first: that is no fault of the host's."""
    late = AnomalyKind.LATENCY
    first = [replace(bad(n, 0, "b", late), components=("vsw", "rnic:0")) for n in range(3)]
    second = [replace(bad(9 + n, 200, "b", late), components=("vsw", "rnic:1")) for n in range(3)]
    fault = SimpleNamespace(
        group=LATENCY, event=SimpleNamespace(fault_kind=kind), began_ns=START + 20 * SECOND_NS,
        first=frozenset(flow.key for flow in first), components=frozenset({"rnic:0"}),
    )  # fmt: skip
    found = broken_later([*first, *second], cast(Incident, fault), START + 210 * SECOND_NS)
    # Small rises show on one 5-tuple after another: without a state it may be the host.
    passed = {"vsw"} if kind == "acs_ats_wrong" else set()
    assert [flow.passed_before for flow in found] == [passed] * 3 + [frozenset()] * 3


def test_what_was_never_well_was_let_pass_by_nobody() -> None:
    """An agent gets its list back while a spine is down: what is cut off at once has that cause."""
    roster = Roster()
    roster.now_ns = START
    listed = pinglist("a", [("e", "b"), ("e", "c")])
    roster.set_pinglist("a", replace(listed, updated_at=ns_to_us(START)))
    soon = NEW_PAIR_NS // SECOND_NS
    flows = [bad(0, 5, "b"), bad(1, soon, "c"), bad(2, soon + 1, "b"), bad(3, 5, "elsewhere")]
    new = never_well(flows, roster)
    assert new == {flow.key for flow in flows[:2]}
    fault = SimpleNamespace(
        group=LOSS_GROUP, event=SimpleNamespace(fault_kind="switch_down"),
        began_ns=START - 100 * SECOND_NS, components=frozenset({"spine"}),
        first=frozenset({("e", "d", 9)}),
    )  # fmt: skip
    old = bad(9, -100, "d")
    for unproven, passed in (({*new, *(f.key for f in flows)}, set()), (new, {"leaf"})):
        found = broken_later([old, *flows], cast(Incident, fault), START, frozenset(unproven))
        assert found[0].passed_before == passed
