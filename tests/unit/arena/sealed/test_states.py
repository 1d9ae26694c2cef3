"""Readers of states."""

from arena.sealed.plan import Plan, Reader, StateSteps, Stray
from arena.sealed.schedule import steady
from schemas.records import ComponentState
from schemas.topics import COMPONENT_STATE
from tests.unit.arena.sealed.small import START_NS, cluster_where, single, world_of


def states_of(plan: Plan, component: str, attribute: str, duration_s: int) -> list[ComponentState]:
    """Return the records of one attribute of a component."""
    key = f"{component}|{attribute}"
    records = world_of(cluster_where(single), plan, duration_s).records()
    return [t.record for t in records if t.topic == COMPONENT_STATE.name and t.key == key]


def second_of(at_us: int) -> float:
    """Return a time of a record in seconds of the world."""
    return at_us / 1e6 - START_NS / 1e9


def test_a_change_is_published_at_the_next_reading_with_its_time() -> None:
    """And again when it is over; in between everything comes once a minute."""
    rnic = cluster_where(single).rnic_name(0)
    steps = ((20.3, "down"), (40.2, None))
    plan = Plan(states=[StateSteps(component=rnic, attribute="port_state", steps=steps)])
    seen = states_of(plan, rnic, "port_state", 70)
    assert [record.text for record in seen] == ["active", "down", "active", "active"]
    begin_s, end_s = (second_of(record.changed_at) for record in seen[1:3])
    assert 20.3 <= begin_s <= 25.4
    assert 40.2 <= end_s <= 45.3
    assert seen[2].changed_at == seen[3].changed_at


def test_what_cannot_be_read_has_a_reason_and_no_value() -> None:
    """Neither text nor number."""
    rnic = cluster_where(single).rnic_name(0)
    steps = ((5.0, ""),)
    plan = Plan(states=[StateSteps(component=rnic, attribute="pcie_width", steps=steps)])
    last = states_of(plan, rnic, "pcie_width", 20)[-1]
    assert (last.text, last.number) == (None, None)
    assert last.missing_reason


def test_a_reader_that_restarts_has_forgotten_since_when() -> None:
    """It publishes nothing while it is away, then everything as if it had just begun."""
    cluster = cluster_where(single)
    switch = cluster.fabric.nodes[cluster.fabric.rnics].name
    plan = Plan(reader_pauses=[(Reader.COLLECTOR, steady(40.0, 100.0))])
    seen = states_of(plan, switch, "congestion_control", 160)
    observed = [second_of(record.observed_at) for record in seen]
    assert not [at_s for at_s in observed if 40.0 <= at_s < 100.0]
    after = next(record for record in seen if second_of(record.observed_at) >= 100.0)
    assert after.changed_at == after.observed_at


def test_a_second_reader_contradicts_until_the_first_reads_again() -> None:
    """Both write under one key, each in its own name."""
    rnic = cluster_where(single).rnic_name(0)
    stray = Stray(
        component=rnic, attribute="device", value="gone", times_s=(30.0,), source="inventory-sync"
    )
    seen = states_of(Plan(strays=[stray]), rnic, "device", 80)
    texts = [record.text for record in seen]
    assert texts == ["present", "gone", "present"]
    assert len({record.source for record in seen}) == 2
