"""States of components: what is out of order, what it names, what it decides."""

import pytest

from localizer.facts.overlay import FlowTables
from localizer.facts.states import AFTER_NS, BEFORE_NS, RULES, StateBook
from localizer.network.topology import Topology
from localizer.verdict.catalogue import KINDS
from localizer.verdict.refinement import Specifier
from schemas.enums import AnomalyFamily, ComponentKind, Layer
from schemas.ids import state_id
from schemas.records import Component, ComponentState, FlowEntry, FlowTable
from schemas.units import SECOND_NS

NOW = 1_000 * SECOND_NS
LOSS, LATE = AnomalyFamily.LOSS, AnomalyFamily.LATENCY


def state(
    component: str, attribute: str, value: str | float | None, *, at: int = NOW
) -> ComponentState:
    """Return a state."""
    return ComponentState(
        cluster="c", state_id=state_id(component, attribute), component_id=component,
        attribute=attribute, text=value if isinstance(value, str) else None,
        number=value if isinstance(value, float) else None,
        changed_at=at // 1000, observed_at=at // 1000, source="t",
    )  # fmt: skip


def book(*states: ComponentState) -> StateBook:
    """Return a book with these states, in that order."""
    made = StateBook()
    for one in states:
        made.set_state(one)
    return made


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


def test_fresh_is_what_began_about_then() -> None:
    """Two minutes before the first bad probe at most, half a minute after it."""
    made = book(state("x", "port_state", "down", at=NOW))
    assert made.fresh("x", LOSS, NOW - AFTER_NS)
    assert not made.fresh("x", LOSS, NOW - AFTER_NS - 1)
    assert made.fresh("x", LOSS, NOW - 5 * SECOND_NS)
    assert made.fresh("x", LOSS, NOW + BEFORE_NS)
    assert not made.fresh("x", LOSS, NOW + BEFORE_NS + 1)


def test_a_repeated_state_keeps_its_begin_and_a_removed_one_is_gone() -> None:
    """Readers write once a minute what has not changed."""
    made = book(
        state("x", "port_state", "down", at=NOW), state("x", "port_state", "down", at=2 * NOW)
    )
    version = made.version
    assert made.findings("x", LOSS)[0].since_ns == NOW
    made.set_state(state("x", "port_state", "down", at=3 * NOW))
    assert made.version == version
    made.remove_state("x|port_state")
    made.remove_state("y|port_state")
    assert made.findings("x", LOSS) == []


def graph() -> Topology:
    """Return a host with an RNIC, its endpoint and its cable to a ToR."""
    made = Topology()
    for name, kind, parent, a, b in (
        ("host:h", ComponentKind.HOST, None, None, None),
        ("vswitch:h", ComponentKind.VSWITCH, "host:h", None, None),
        ("rnic", ComponentKind.RNIC, "host:h", None, None),
        ("ep", ComponentKind.ENDPOINT, "rnic", None, None),
        ("tor", ComponentKind.SWITCH, None, None, None),
        ("cable", ComponentKind.LINK, None, "rnic", "tor"),
    ):
        made.set_component(
            Component(cluster="c", component_id=name, kind=kind, layer=Layer.UNDERLAY,
                      parent=parent, a=a, b=b, updated_at=1, addresses=())
        )  # fmt: skip
    return made


def specifier(*states: ComponentState, tables: FlowTables | None = None) -> Specifier:
    """Return one over the graph."""
    on = graph()
    return Specifier(on, book(*states), tables or FlowTables(on))


@pytest.mark.parametrize("blamed", ["cable", "rnic"])
@pytest.mark.parametrize(
    ("shown", "attribute", "value", "kind"),
    [
        ("rnic", "port_state", "down", "port_down"),
        ("cable", "crc_errors_per_s", 9.0, "crc_error"),
        ("ep", "container", "crashed", "container_crash"),
    ],
)
def test_what_probes_cannot_tell_apart_the_states_can(
    blamed: str, shown: str, attribute: str, value: str | float, kind: str
) -> None:
    """A cable, its RNIC and the endpoint on it are crossed by the same packets."""
    found = specifier(state(shown, attribute, value)).find(blamed, LOSS, NOW - SECOND_NS)
    assert found is not None
    assert (found.kind.name, found.component_id, found.fresh) == (kind, shown, True)


@pytest.mark.parametrize(
    ("shown", "attribute", "value", "kind"),
    [
        ("rnic", "transport", "udp", "not_using_rdma"),
        ("vswitch:h", "flow_evictions_per_s", 3.0, "repetitive_offload"),
    ],
)
def test_what_agents_tell_names_what_is_late(
    shown: str, attribute: str, value: str | float, kind: str
) -> None:
    """UDP where RDMA should be, and flows that hardware loses, where they are told."""
    found = specifier(state(shown, attribute, value)).find(shown, LATE, NOW - SECOND_NS)
    assert found is not None
    assert (found.kind.name, found.component_id) == (kind, shown)


def test_an_old_state_of_a_neighbour_says_nothing() -> None:
    """Of the component itself it names the kind, and says that it is old."""
    later = NOW + 2 * BEFORE_NS
    assert specifier(state("rnic", "port_state", "down")).find("cable", LOSS, later) is None
    found = specifier(state("rnic", "port_state", "down")).find("rnic", LOSS, later)
    assert found is not None
    assert not found.fresh
    assert "already before" in found.fact


def test_a_switch_all_of_whose_ports_go_down_is_blamed_itself() -> None:
    """Two cables that show it are the switch's own matter."""
    other = Component(
        cluster="c", component_id="cable2", kind=ComponentKind.LINK, layer=Layer.UNDERLAY,
        a="tor", b="spine", updated_at=1, addresses=(),
    )  # fmt: skip
    on = graph()
    on.set_component(other)
    states = book(state("cable", "port_state", "down"), state("cable2", "port_state", "down"))
    assert Specifier(on, states, FlowTables(on)).find("tor", LOSS, NOW) is None


@pytest.mark.parametrize(
    ("attribute", "number", "family", "kind"),
    [
        ("egress_utilization", 0.97, LATE, "congestion"),
        ("discards_per_s", 50.0, LOSS, "buffer_loss"),
    ],
)
def test_the_one_port_of_a_switch_that_shows_why_is_blamed(
    attribute: str, number: float, family: AnomalyFamily, kind: str
) -> None:
    """Replies that come another way make it look like the switch."""
    found = specifier(state("cable", attribute, number)).find("tor", family, NOW)
    assert found is not None
    assert (found.kind.name, found.component_id) == (kind, "cable")
    # Where the cable is at fault besides, its state says nothing of the switch.
    beside = frozenset({"cable"})
    assert specifier(state("cable", attribute, number)).find("tor", family, NOW, beside) is None
    assert specifier(state("cable", "egress_utilization", 0.5)).find("tor", LATE, NOW) is None


def test_entries_that_are_not_offloaded_name_the_virtual_switch() -> None:
    """Only latency, only where tables say so."""
    on = graph()
    tables = FlowTables(on)
    for at, offloaded in ((1, True), (NOW, False), (NOW + SECOND_NS, False)):
        entry = FlowEntry(node="vswitch:h", dst="e", next_hop="rnic", offloaded=offloaded)
        tables.set_table(
            FlowTable(cluster="c", host_id="host:h", captured_at=at // 1000, entries=(entry,))
        )
        found = Specifier(on, StateBook(), tables).find("vswitch:h", LATE, NOW)
        assert (found is not None) is not offloaded
    assert found is not None
    assert found.kind.name == "not_offloaded"
    assert found.fresh
    assert Specifier(on, StateBook(), tables).find("vswitch:h", LOSS, NOW) is None


@pytest.mark.parametrize("marked", ["rnic", "cable", "host:h"])
def test_maintenance_covers_what_it_touches(marked: str) -> None:
    """The RNIC's host, its cable, itself; not the switch at the other end."""
    made = specifier(state(marked, "maintenance", "drained"))
    assert made.in_maintenance("rnic")
    assert not made.in_maintenance("tor")
    assert not specifier(state(marked, "maintenance", "none")).in_maintenance("rnic")


def test_every_rule_names_a_kind_of_its_family() -> None:
    """What loses packets is no latency."""
    for rule in RULES:
        assert (KINDS[rule.kind].group == "latency") is (rule.family is LATE)
