"""What each suspect accounts for, where several are at fault."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from localizer.facts.anomalies import Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.inference.causes import Cause, Reason
from localizer.inference.evidence import Evidence
from localizer.verdict.cases import ROUND_NS, Case, without_earlier, without_parts
from schemas.enums import AnomalyKind
from schemas.units import MS_NS, SECOND_NS
from tests.unit.localizer.made import START


def cut(number: int, at_s: float, *crossed: str) -> BadFlow:
    """Return a 5-tuple that is cut off since a time."""
    onset_ns = START + round(at_s * SECOND_NS)
    symptom = Symptom(
        kind=AnomalyKind.CONNECTIVITY, agent_id="a", onset_ns=onset_ns, onset_at=onset_ns // 1000,
        seen_ns=onset_ns + SECOND_NS, last_ns=onset_ns + SECOND_NS, sent=3, lost=3, rtt_ns=None,
        baseline_ns=None, host_delay_ns=None,
    )  # fmt: skip
    return BadFlow(
        key=("e0", "e1", number), symptoms=(symptom,), components=crossed, prober="a",
        responder="b", open=True,
    )  # fmt: skip


def through(*flows: BadFlow) -> dict[str, list[BadFlow]]:
    """Return the 5-tuples by what they cross."""
    names = sorted({c for flow in flows for c in flow.components})
    return {name: [f for f in flows if name in f.components] for name in names}


def test_what_was_bad_before_a_suspect_belongs_to_the_earlier_one() -> None:
    """An RNIC has been dead for long when a switch fails that most of its 5-tuples cross."""
    old, both, new = cut(0, 0.0, "rnic"), cut(1, 0.2, "rnic", "switch"), cut(2, 300.0, "switch")
    found = without_earlier(through(old, both, new))
    assert found["rnic"] == [old, both]
    assert found["switch"] == [new]


def test_what_begins_together_belongs_to_both() -> None:
    """Two that fail in the same round cannot be told apart by time."""
    one, both, other = cut(0, 0.0, "A"), cut(1, 0.1, "A", "B"), cut(2, 0.9, "B")
    assert without_earlier(through(one, both, other)) == through(one, both, other)


def test_a_suspect_with_nothing_of_its_own_keeps_what_it_has() -> None:
    """All of its 5-tuples cross others as well: nothing says when it began."""
    flows = cut(0, 0.0, "A"), cut(1, 0.0, "A", "B"), cut(2, 300.0, "A", "B")
    assert without_earlier(through(*flows)) == through(*flows)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sets(st.sampled_from("ABC"), min_size=1)), min_size=1)
)
def test_every_5_tuple_is_accounted_for(drawn: list[tuple[int, set[str]]]) -> None:
    """By one suspect at least; and what a suspect loses, it crosses together with an earlier."""
    flows = [cut(n, at, *sorted(crossed)) for n, (at, crossed) in enumerate(drawn)]
    before = through(*flows)
    after = without_earlier(before)
    assert {f.key for kept in after.values() for f in kept} == {f.key for f in flows}
    for name, kept in after.items():
        alone = [f.onset_ns for f in before[name] if f.components == (name,)]
        for gone in (f for f in before[name] if f not in kept):
            assert len(gone.components) > 1
            assert gone.onset_ns < min(alone) - ROUND_NS


def late(number: int, rise_ms: int, *crossed: str) -> BadFlow:
    """Return a 5-tuple whose round trips have risen by so much."""
    symptom = Symptom(
        kind=AnomalyKind.BRIEF_LATENCY, agent_id="a", onset_ns=START, onset_at=START // 1000,
        seen_ns=START, last_ns=START, sent=8, lost=0, rtt_ns=(1 + rise_ms) * MS_NS,
        baseline_ns=MS_NS, host_delay_ns=None,
    )  # fmt: skip
    return BadFlow(
        key=("e0", "e1", number), symptoms=(symptom,), components=crossed, prober="a",
        responder="b", open=True,
    )  # fmt: skip


def case(name: str, flows: list[BadFlow]) -> Case:
    """Return the case of a component: the late 5-tuples that cross it."""
    mine = tuple(flow for flow in flows if name in flow.components)
    return Case(
        evidence=cast(Evidence, None), cause=Cause.of(Reason.COMPONENT, name), shares=(),
        doubt=0.0, bad=mine, open=mine, good=0,
    )  # fmt: skip


def test_a_delay_that_is_the_whole_hosts_is_not_told_of_one_rnic() -> None:
    """Its 5-tuples are late as those of the others; where they are later, it is slow as well."""
    one = [late(n, 5, "host", "rnic") for n in range(12)]
    slower = [late(n, 9, "host", "rnic") for n in range(12)]
    others = [late(100 + n, 5 + n % 2, "host", "other") for n in range(12)]
    elsewhere = [late(200 + n, 5, "leaf") for n in range(4)]
    for flows, names in ((one, {"host", "leaf"}), (slower, {"host", "rnic", "leaf"})):
        all_late = [*flows, *others, *elsewhere]
        found = without_parts([case(name, all_late) for name in ("host", "rnic", "leaf")])
        assert {each.cause.name for each in found} == names
