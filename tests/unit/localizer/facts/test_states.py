"""States of components: what is out of order, and since when."""

import pytest

from localizer.facts.states import (
    HEARD_PERIODS,
    MAX_READERS,
    PERIODS,
    READER_KEEP_NS,
    RULES,
    USUAL_PERIOD_NS,
    Finding,
    StateBook,
)
from localizer.verdict.catalogue import KINDS, Shows
from schemas.enums import AnomalyFamily
from schemas.ids import state_id
from schemas.records import ComponentState
from schemas.units import SECOND_NS

NOW = 1_000 * SECOND_NS
LOSS, LATE = AnomalyFamily.LOSS, AnomalyFamily.LATENCY


def state(
    component: str,
    attribute: str,
    value: str | float | None,
    *,
    at: int = NOW,
    changed: int | None = None,
    source: str = "t",
) -> ComponentState:
    """Return a state that was read at a time."""
    return ComponentState(
        cluster="c", state_id=state_id(component, attribute), component_id=component,
        attribute=attribute, text=value if isinstance(value, str) else None,
        number=value if isinstance(value, float) else None,
        changed_at=(at if changed is None else changed) // 1000, observed_at=at // 1000,
        source=source,
    )  # fmt: skip


def book(*states: ComponentState) -> StateBook:
    """Return a book with these states, in that order; each arrives when it was read."""
    made = StateBook()
    for one in states:
        made.set_state(one, one.observed_at * 1000)
    return made


def port(made: StateBook) -> Finding:
    """Return the one finding of a component that loses packets."""
    (found,) = made.findings("x", LOSS)
    return found


@pytest.mark.parametrize(
    ("attribute", "values", "family", "found"),
    [
        ("port_state", ["up"], LOSS, False),
        ("port_state", ["down"], LOSS, True),
        ("port_state", ["down"], LATE, False),
        ("port_state", ["down", "up"], LOSS, False),
        ("port_state", [None], LOSS, False),
        ("crc_errors_per_s", [0.0], LOSS, False),
        ("crc_errors_per_s", [0.0, 40.0], LOSS, True),
        ("pcie_width", [8.0], LATE, False),
        ("pcie_width", [16.0, 8.0], LATE, True),
        ("pcie_width", [8.0, 16.0], LATE, False),
        ("gid_table", ["a"], LOSS, False),
        ("gid_table", ["a", "b"], LOSS, True),
        ("gid_table", ["a", None], LOSS, False),
        ("gid_table", ["a", None, "a"], LOSS, False),
        ("gid_table", ["a", None, None, "b"], LOSS, True),
        ("pcie_width", [16.0, None], LATE, False),
        ("pcie_width", [16.0, None, 8.0], LATE, True),
        ("gpudirect", ["dma-buf"], LATE, False),
        ("transport", ["rdma"], LATE, False),
        ("transport", ["rdma", "udp"], LATE, True),
        ("transport", ["rdma", None], LATE, False),
        ("flow_evictions_per_s", [0.033], LATE, False),
        ("flow_evictions_per_s", [0.0, 3.0], LATE, True),
        ("colour", ["red"], LOSS, False),
    ],
)
def test_what_is_out_of_order(
    attribute: str, values: list[str | float | None], family: AnomalyFamily, found: bool
) -> None:
    """Words that are not usual, numbers that are too great, or smaller than before."""
    made = book(*(state("x", attribute, v, at=NOW + i) for i, v in enumerate(values)))
    assert bool(made.findings("x", family)) is found


def test_a_change_lies_between_two_readings() -> None:
    """Whatever the period of the reader is, and however late its record comes."""
    for period_s in (5, 30, 60):
        period = period_s * SECOND_NS
        made = book(*(state("x", "port_state", "up", at=NOW + i * period) for i in range(4)))
        read = NOW + 4 * period
        made.set_state(state("x", "port_state", "down", at=read), read + 10 * SECOND_NS)
        assert (port(made).before_ns, port(made).since_ns) == (read - period, read)


def test_a_missed_reading_widens_what_is_accepted_and_a_long_silence_does_not() -> None:
    """A reader that writes changes only was silent for an hour, and read all the time."""
    for missed, periods in ((1, 2), (60, PERIODS)):
        made = book(*(state("x", "port_state", "up", at=NOW + i * SECOND_NS) for i in range(4)))
        read = NOW + (4 + missed) * SECOND_NS
        made.set_state(state("x", "port_state", "down", at=read), read)
        assert port(made).since_ns - port(made).before_ns == periods * SECOND_NS


def test_the_first_reading_says_since_when() -> None:
    """Nothing is known of the reader's period: the usual one counts."""
    made = book(state("x", "port_state", "down", at=NOW, changed=NOW - SECOND_NS))
    assert port(made).since_ns == NOW - SECOND_NS
    assert port(made).before_ns == port(made).since_ns - PERIODS * USUAL_PERIOD_NS


def test_a_rate_is_out_of_order_since_it_passed_its_bound() -> None:
    """A cable always has some errors: `changed_at` says since when there are any at all."""
    made = book(
        *(
            state("x", "crc_errors_per_s", rate, at=NOW + i * SECOND_NS, changed=NOW)
            for i, rate in enumerate((0.02, 0.03, 5_000.0, 6_000.0))
        )
    )
    assert port(made).since_ns == NOW + 2 * SECOND_NS
    assert port(made).before_ns == NOW + SECOND_NS


def test_a_reader_that_restarts_changes_nothing() -> None:
    """It says that all has been so since it began; what it says is the same."""
    made = book(state("x", "port_state", "up"), state("x", "port_state", "down", at=2 * NOW))
    made.set_state(state("x", "port_state", "down", at=3 * NOW), 3 * NOW)
    assert port(made).since_ns == 2 * NOW


def test_a_reader_that_denies_it_disputes_a_finding() -> None:
    """If it looked later; what it said before is no contradiction."""
    made = book(
        state("x", "port_state", "up", at=NOW, source="switch"),
        state("x", "port_state", "down", at=NOW + SECOND_NS, source="agent"),
    )
    assert not port(made).disputed
    later = NOW + 2 * SECOND_NS
    made.set_state(state("x", "port_state", "up", at=later, source="switch"), later)
    assert port(made).disputed
    later += SECOND_NS
    made.set_state(state("x", "port_state", "down", at=later, source="switch"), later)
    assert not port(made).disputed
    made.remove_state("x|port_state")
    assert (made.findings("x", LOSS), len(made)) == ([], 0)


def test_a_repeated_state_keeps_its_begin_and_a_removed_one_is_gone() -> None:
    """Readers write once a minute what has not changed."""
    made = book(
        state("x", "port_state", "down", at=NOW), state("x", "port_state", "down", at=2 * NOW)
    )
    version = made.version
    assert port(made).since_ns == NOW
    made.set_state(state("x", "port_state", "down", at=3 * NOW), 3 * NOW)
    assert made.version == version
    made.remove_state("x|port_state")
    made.remove_state("y|port_state")
    assert made.findings("x", LOSS) == []


def test_what_was_read_since_a_time() -> None:
    """A reader that says that it does not know has not read."""
    made = book(state("x", "port_state", "up", at=NOW))
    assert made.read_since("x", "port_state", NOW - 1)
    assert not made.read_since("x", "port_state", NOW)
    assert not made.read_since("y", "port_state", 0)
    made.set_state(state("x", "port_state", None, at=2 * NOW), 2 * NOW)
    assert not made.read_since("x", "port_state", 0)


def test_a_reader_that_was_replaced_is_forgotten_once_it_is_silent_for_long() -> None:
    """Else what it said last would be believed, or contradict, for ever."""
    made = book(state("x", "port_state", "down", source="collector-1"))
    later = NOW + READER_KEEP_NS
    made.set_state(state("x", "port_state", "up", at=later, source="collector-2"), later)
    assert port(made).disputed
    later += 1
    made.set_state(state("x", "port_state", "up", at=later, source="collector-2"), later)
    assert (made.findings("x", LOSS), len(made)) == ([], 1)


def test_readers_of_an_attribute_are_bounded() -> None:
    """Anybody may write under any name; those that were heard last are followed."""
    made = book(*(state("x", "port_state", "down", at=NOW + i, source=f"{i}") for i in range(50)))
    assert len(made) == MAX_READERS
    made.remove_state("x|port_state")
    assert len(made) == 0


def test_whoever_wrote_last_says_whether_an_operator_is_at_work() -> None:
    """One marks a host, and another takes the mark away."""
    marked = state("x", "maintenance", "drain", at=NOW, source="alice")
    assert book(marked).in_maintenance("x")
    cleared = state("x", "maintenance", "none", at=NOW + SECOND_NS, source="bob")
    assert not book(marked, cleared).in_maintenance("x")


def test_every_rule_names_a_kind_of_its_family() -> None:
    """What loses packets is no latency, and probes see something of each."""
    for rule in RULES:
        assert KINDS[rule.kind].shows is not Shows.NOTHING
        assert (KINDS[rule.kind].group == "latency") is (rule.family is LATE)


def test_what_is_not_as_configured_is_a_fault_once_it_was_read_twice() -> None:
    """Not for a moment, not against another reader, and not when nobody reads it any more."""
    made = book(state("x", "transport", "rdma", at=NOW), state("y", "port_state", "down", at=NOW))
    assert made.all_well
    began = NOW + 20 * SECOND_NS
    made.set_state(state("x", "transport", "udp", at=began), began)
    assert not made.all_well
    assert made.faults(began) == []
    again = began + 20 * SECOND_NS
    made.set_state(state("x", "transport", "udp", at=again, changed=began), again)
    (found,) = made.faults(again)
    assert (found.component_id, found.kind, found.since_ns) == ("x", "not_using_rdma", began)
    made.set_state(state("x", "transport", "rdma", at=again, source="other"), again)
    assert made.faults(again) == []
    late = again + READER_KEEP_NS + SECOND_NS
    assert made.faults(late) == []
    assert made.all_well
    made.set_state(state("x", "transport", "udp", at=late, changed=began), late)
    assert [f.since_ns for f in made.faults(late)] == [began]
    made.set_state(state("x", "transport", "rdma", at=late + 1, changed=late), late + SECOND_NS)
    assert made.faults(late + SECOND_NS) == []
    assert made.all_well


def test_a_fault_lasts_as_long_as_all_who_are_heard_say_so() -> None:
    """Who has missed two repetitions is heard no more; who missed one is."""
    soon, later = NOW + SECOND_NS, NOW + HEARD_PERIODS * USUAL_PERIOD_NS + SECOND_NS
    down = state("x", "port_state", "down")
    assert book(down).lasts("x", "port_down", soon)
    assert book(down).lasts("x", "port_down", later - USUAL_PERIOD_NS + 5 * SECOND_NS)
    assert not book(down).lasts("x", "port_down", later)
    assert not book(down).lasts("x", "port_down", soon, since_ns=soon)
    assert not book(down).lasts("x", "device_gone", soon)
    assert not book(down).lasts("y", "port_down", soon)
    assert not book(down, state("x", "port_state", "up", source="u")).lasts("x", "port_down", soon)
    again = state("x", "port_state", "down", at=later)
    assert book(down, state("x", "port_state", "up", source="u"), again).lasts(
        "x", "port_down", later, since_ns=later
    )
    up = state("x", "port_state", "up", at=NOW - SECOND_NS)
    assert book(up, down).lasts("x", "port_down", soon, changed=True)
    assert not book(down).lasts("x", "port_down", soon, changed=True)
    # Counters say what was, not what is.
    assert not book(state("x", "crc_errors_per_s", 9.0)).lasts("x", "crc_error", soon)
