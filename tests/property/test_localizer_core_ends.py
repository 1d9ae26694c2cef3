"""What is said while ends come and go is what a localizer says that makes all anew each time."""

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from localizer.facts.inputs import Event
from localizer.network import topology
from schemas import topics
from schemas.enums import ComponentKind
from schemas.records import FaultEvent
from schemas.units import MS_NS
from tests.property.test_localizer_core import history, run
from tests.unit.localizer.simlab import START

# Which endpoint, when, what: gone and registered no more, back as it was, or at another RNIC.
change = st.tuples(
    st.integers(0, 15),
    st.integers(1, 20 * 10**3),
    st.sampled_from(["gone", "back", "moved"]),
    st.sampled_from([topics.TOPOLOGY.name, topics.ENDPOINT.name]),
)


def churn(changes: list[tuple[int, int, str, str]]) -> tuple[tuple[Event, ...], int]:
    """Return the events of a lab with two faults, with changes of ends among them, and its end."""
    found, end, _ = history()
    ends = [e for e in found if e.topic == topics.TOPOLOGY.name
            and e.record.kind is ComponentKind.ENDPOINT]  # fmt: skip
    registered = {e.key: e for e in found if e.topic == topics.ENDPOINT.name}
    more = []
    for number, (which, at_ms, what, topic) in enumerate(changes):
        of, other = ends[which % len(ends)], ends[(which + 5) % len(ends)]
        record = of.record if topic == topics.TOPOLOGY.name else registered[of.key].record
        if what == "gone":
            record = None
        elif what == "moved" and topic == topics.TOPOLOGY.name:
            record = replace(record, parent=other.record.parent)
        elif what == "moved":
            record = replace(record, agent_id=registered[other.key].record.agent_id)
        at_ns = START + at_ms * MS_NS
        more.append(Event(at_ns, topic, of.key, 0, 10**6 + number, record))
    return (*found, *more), end


def said(events: tuple[Event, ...], end: int, most: int) -> list[FaultEvent]:
    """Return what a core says; with `most` 0 each change of an end is one of the fabric."""
    before, topology.MAX_LOOKED_UP = topology.MAX_LOOKED_UP, most  # type: ignore[misc]
    try:
        return run(events, [end])
    finally:
        topology.MAX_LOOKED_UP = before  # type: ignore[misc]


@settings(max_examples=8)
@given(st.lists(change, max_size=40))
@example([])
def test_ends_that_come_and_go_change_nothing_of_what_is_said(
    changes: list[tuple[int, int, str, str]],
) -> None:
    """Among two faults' anomalies and traces, transitions are the same to the last digit."""
    events, end = churn(changes)
    kept = said(events, end, topology.MAX_LOOKED_UP)
    # Nothing is said of ends that left before the faults.
    assert kept or changes
    assert kept == said(events, end, 0)
