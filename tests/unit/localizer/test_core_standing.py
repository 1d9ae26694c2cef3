"""What states say of faults that probes show no more, or cannot place: over a simulated lab."""

from schemas import topics
from schemas.enums import ComponentKind
from schemas.records import FaultEvent
from tests.unit.localizer.made import component
from tests.unit.localizer.simlab import START, SimLab

LINK = "link:leaf:p0-0--spine:0"
OTHER = f"{LINK}#2"
WARM_S = 70


def warm() -> SimLab:
    """Return a lab that has run for a while; a second cable joins the same switches."""
    lab = SimLab(seed=3)
    twin = component(OTHER, ComponentKind.LINK, a="leaf:p0-0", b="spine:0", addresses=())
    lab.write(topics.TOPOLOGY.name, OTHER, twin, START)
    for at_s in (0, 60):
        for name in (LINK, OTHER):
            lab.read_port(name, "active", read_s=at_s, at_s=at_s + 2)
    lab.run(WARM_S)
    return lab


def cut(lab: SimLab, seconds: float) -> None:
    """Cut the cable, until routes lead around it."""
    lab.effects.links[LINK] = (1.0, 0)
    lab.run(seconds)
    del lab.effects.links[LINK]


def told(events: list[FaultEvent]) -> list[tuple[int, str, str, str, int]]:
    """Return second, state, kind, component and number of bad 5-tuples, of one fault."""
    assert len({e.fault_id for e in events}) <= 1
    began_us = START // 1000 + WARM_S * 1_000_000
    return [
        (
            (e.event_at - began_us) // 1_000_000,
            e.state.value,
            e.fault_kind,
            e.component_id,
            min(1, e.bad_paths),
        )
        for e in events
    ]


def test_a_port_that_routes_lead_around_stays_a_fault_until_it_is_up() -> None:
    """Its reader comes after the fault seemed to be over; no probe is lost any more."""
    lab = warm()
    cut(lab, 6)
    lab.run(34)
    lab.read_port(LINK, "down", read_s=WARM_S + 20, at_s=WARM_S + 22)
    lab.read_port(LINK, "active", read_s=WARM_S + 35, at_s=WARM_S + 36)
    assert told(lab.verdicts()) == [
        (1, "OPEN", "connectivity", LINK, 1),
        (12, "RESOLVED", "connectivity", LINK, 0),
        (22, "UPDATED", "port_down", LINK, 0),
        (36, "RESOLVED", "port_down", LINK, 0),
    ]


def test_a_port_that_is_known_to_be_down_is_not_over_until_it_is_read_as_up() -> None:
    """Its reader came in time."""
    lab = warm()
    cut(lab, 6)
    lab.run(34)
    lab.read_port(LINK, "down", read_s=WARM_S + 2, at_s=WARM_S + 3)
    lab.read_port(LINK, "active", read_s=WARM_S + 32, at_s=WARM_S + 33)
    assert told(lab.verdicts()) == [
        (1, "OPEN", "connectivity", LINK, 1),
        (3, "UPDATED", "port_down", LINK, 1),
        (12, "UPDATED", "port_down", LINK, 0),
        (33, "RESOLVED", "port_down", LINK, 0),
    ]


def test_what_was_read_before_the_end_and_comes_after_it_opens_nothing_again() -> None:
    """The port may be up again by then."""
    lab = warm()
    cut(lab, 6)
    lab.run(34)
    lab.read_port(LINK, "down", read_s=WARM_S + 2, at_s=WARM_S + 20)
    assert [at for at, *_ in told(lab.verdicts())] == [1, 12]


def test_a_reader_that_is_heard_no_more_holds_no_fault_open() -> None:
    """Two repetitions of everything may be missed."""
    lab = warm()
    cut(lab, 6)
    lab.run(250)
    lab.read_port(LINK, "down", read_s=WARM_S + 2, at_s=WARM_S + 3)
    last = told(lab.verdicts())[-1]
    assert last[1:3] == ("RESOLVED", "port_down")
    assert 183 <= last[0] <= 186


def test_a_reader_that_misses_a_repetition_or_is_replaced_holds_the_fault_open() -> None:
    """A new agent reads the port as down from its first reading on."""
    lab = warm()
    cut(lab, 6)
    lab.run(400)
    for at_s in (2, 62, 188):
        lab.read_port(LINK, "down", read_s=WARM_S + at_s, at_s=WARM_S + at_s + 1)
    for at_s in (260, 320, 380):
        lab.read_port(LINK, "down", read_s=WARM_S + at_s, at_s=WARM_S + at_s + 1, source="u")
    assert [state for _, state, *_ in told(lab.verdicts())] == ["OPEN", "UPDATED", "UPDATED"]


def test_a_reader_that_is_heard_again_holds_the_fault_open_again() -> None:
    """Nothing was repaired while it was away."""
    lab = warm()
    cut(lab, 6)
    lab.run(300)
    for at_s in (2, 250):
        lab.read_port(LINK, "down", read_s=WARM_S + at_s, at_s=WARM_S + at_s + 1)
    assert [(at, state) for at, state, *_ in told(lab.verdicts())[-2:]] == [
        (184, "RESOLVED"),
        (252, "UPDATED"),
    ]


def test_a_fault_that_stands_names_whom_it_hit() -> None:
    """A silence of the task goes on, and the job's page lists it."""
    lab = warm()
    cut(lab, 6)
    lab.run(34)
    lab.read_port(LINK, "down", read_s=WARM_S + 2, at_s=WARM_S + 3)
    assert {event.tasks for event in lab.verdicts()} == {("job1",)}


def test_a_fault_that_stands_and_loses_packets_again_is_the_same_fault() -> None:
    """What is cut off again and again flaps: that it is up for long enough probes show."""
    lab = warm()
    cut(lab, 6)
    lab.run(20)
    cut(lab, 6)
    lab.run(20)
    lab.read_port(LINK, "down", read_s=WARM_S + 2, at_s=WARM_S + 3)
    assert told(lab.verdicts()) == [
        (1, "OPEN", "connectivity", LINK, 1),
        (3, "UPDATED", "port_down", LINK, 1),
        (12, "UPDATED", "port_down", LINK, 0),
        (27, "UPDATED", "port_flapping", LINK, 1),
        (41, "RESOLVED", "port_flapping", LINK, 0),
    ]


def test_of_parallel_cables_the_state_says_which_it_is() -> None:
    """No trace tells them apart: one stands for both on paths."""
    for at_s in (3, 50):
        lab = warm()
        cut(lab, 60)
        lab.run(20)
        lab.read_port(OTHER, "down", read_s=WARM_S + at_s - 1, at_s=WARM_S + at_s)
        lab.read_port(OTHER, "active", read_s=WARM_S + 62, at_s=WARM_S + 63)
        assert told(lab.verdicts()) == [
            (1, "OPEN", "connectivity", LINK, 1),
            (at_s, "UPDATED", "port_down", OTHER, 1),
            (66, "RESOLVED", "port_down", OTHER, 0),
        ]
