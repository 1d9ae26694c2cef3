"""Which kind of fault it is."""

import pytest

from localizer.facts.findings import CHANCE_NS, Findings
from localizer.facts.overlay import FlowTables
from localizer.facts.states import StateBook
from localizer.network.topology import Topology
from localizer.verdict.kind_model import KindModel, LikeliestKind, Symptoms
from schemas.enums import AnomalyFamily, ComponentKind, Layer
from schemas.records import Component, ComponentState, FlowEntry, FlowTable
from schemas.units import SECOND_NS
from tests.unit.localizer.facts.test_states import LATE, LOSS, NOW, book, state

BEGIN = NOW - SECOND_NS


def graph(cables: int = 1) -> Topology:
    """Return a host with an RNIC, its endpoint, and cables from its ToR to spines."""
    made = Topology()
    for name, kind, parent, a, b in (
        ("host:h", ComponentKind.HOST, None, None, None),
        ("vswitch:h", ComponentKind.VSWITCH, "host:h", None, None),
        ("rnic", ComponentKind.RNIC, "host:h", None, None),
        ("vtep", ComponentKind.VTEP, "rnic", None, None),
        ("ep", ComponentKind.ENDPOINT, "rnic", None, None),
        ("tor", ComponentKind.SWITCH, None, None, None),
        ("cable", ComponentKind.LINK, None, "rnic", "tor"),
        *((f"up{n}", ComponentKind.LINK, None, "tor", f"spine{n}") for n in range(1, cables)),
    ):
        made.set_component(
            Component(cluster="c", component_id=name, kind=kind, layer=Layer.UNDERLAY,
                      parent=parent, a=a, b=b, updated_at=1, addresses=())
        )  # fmt: skip
    return made


def model(*states: ComponentState, on: Topology | None = None) -> KindModel:
    """Return one over the graph."""
    on = on or graph()
    known = book(*states)
    return KindModel(on, known, Findings(on, known, FlowTables(on)))


def lost(*, cut: float = 1.0, bad: float = 1.0, at: int = BEGIN, returned: int = 0) -> Symptoms:
    """Return symptoms of a component that loses packets."""
    return Symptoms(family=LOSS, cut_share=cut, bad_share=bad, spans=((at, at),), returned=returned)


def late(*, sudden: bool = True, at: int = BEGIN) -> Symptoms:
    """Return symptoms of a component that delays packets."""
    return Symptoms(family=LATE, sudden=sudden, spans=((at, at),))


def told(found: LikeliestKind) -> tuple[str, str]:
    """Return kind and component."""
    return found.kind.name, found.component_id


@pytest.mark.parametrize(
    ("component", "cut", "bad", "name"),
    [
        ("cable", 1.0, 1.0, "connectivity"),
        ("cable", 0.2, 1.0, "packet_loss"),
        ("tor", 1.0, 1.0, "switch_down"),
        ("tor", 1.0, 0.4, "connectivity"),
        ("rnic", 0.9, 0.9, "rnic_unreachable"),
        ("vswitch:h", 0.0, 1.0, "packet_loss"),
    ],
)
def test_loss_is_named_by_how_much_gets_through(
    component: str, cut: float, bad: float, name: str
) -> None:
    """All cut on all paths: down; all cut on some: connectivity; else loss."""
    assert model().find(component, lost(cut=cut, bad=bad)).kind.name == name


def test_latency_is_named_by_how_it_rose() -> None:
    """At once, or over hours."""
    assert model().find("cable", late()).kind.name == "high_latency"
    assert model().find("cable", late(sudden=False)).kind.name == "latency_drift"


@pytest.mark.parametrize("blamed", ["cable", "rnic"])
@pytest.mark.parametrize(
    ("shown", "cut", "kind"),
    [
        (state("rnic", "port_state", "down"), 1.0, "port_down"),
        (state("cable", "crc_errors_per_s", 9.0), 0.0, "crc_error"),
        (state("ep", "container", "crashed"), 1.0, "container_crash"),
    ],
)
def test_what_probes_cannot_tell_apart_the_states_can(
    blamed: str, shown: ComponentState, cut: float, kind: str
) -> None:
    """A cable, its RNIC and the endpoint on it are crossed by the same packets."""
    found = model(shown).find(blamed, lost(cut=cut))
    assert told(found) == (kind, shown.component_id)
    assert found.fresh


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
    assert told(model(state(shown, attribute, value)).find(shown, late())) == (kind, shown)


def test_an_old_state_of_a_neighbour_says_nothing() -> None:
    """Of the component itself it names the kind, and says that it is old."""
    long_after = lost(at=NOW + CHANCE_NS)
    down = state("rnic", "port_state", "down")
    assert told(model(down).find("cable", long_after)) == ("connectivity", "cable")
    found = model(down).find("rnic", long_after)
    assert told(found) == ("port_down", "rnic")
    assert not found.fresh
    assert "already before" in found.facts[0]


def test_a_state_that_comes_later_than_the_next_reading_is_another_event() -> None:
    """The port of a cable that loses packets is switched off to mend it."""
    up = [state("cable", "port_state", "up", at=NOW + i * SECOND_NS) for i in range(60)]
    down = state("cable", "port_state", "down", at=NOW + 60 * SECOND_NS)
    assert model(*up, down).find("cable", lost(cut=0.2)).kind.name == "packet_loss"


def test_the_kind_follows_from_what_probes_show_too() -> None:
    """CRC errors lose a share: they are no reason for a cable whose port is down."""
    crc = state("cable", "crc_errors_per_s", 9.0)
    down = state("cable", "port_state", "down")
    assert model(crc, down).find("cable", lost(cut=0.0)).kind.name == "crc_error"
    assert model(crc, down).find("cable", lost(cut=1.0)).kind.name == "port_down"


def test_a_kind_explains_the_states_that_it_makes() -> None:
    """What flaps is down now and then; a device that is gone has no port."""
    down, flaps = state("rnic", "port_state", "down"), state("rnic", "link_flaps", 4.0)
    gone = state("rnic", "device", "gone")
    for cut in (0.3, 1.0):
        assert model(down, flaps).find("rnic", lost(cut=cut)).kind.name == "port_flapping"
    assert model(down, gone).find("rnic", lost()).kind.name == "device_gone"


def test_what_comes_back_again_and_again_flaps() -> None:
    """Probes alone can tell; once may be the evidence that faded."""
    assert model().find("cable", lost(returned=1)).kind.name == "connectivity"
    assert model().find("cable", lost(returned=2)).kind.name == "port_flapping"
    assert model().find("tor", lost(returned=2)).kind.name == "switch_down"


def test_loss_that_shows_again_is_no_flap() -> None:
    """Luck, bursts and traffic decide when a share is lost; CRC errors name it all the same."""
    for returned in range(4):
        assert model().find("cable", lost(cut=0.0, returned=returned)).kind.name == "packet_loss"
    crc = state("cable", "crc_errors_per_s", 9.0)
    assert model(crc).find("cable", lost(cut=0.05, returned=1)).kind.name == "crc_error"
    assert model(crc).find("cable", lost(cut=0.8, returned=2)).kind.name == "port_flapping"


@pytest.mark.parametrize("blamed", ["up1", "up1#2", "up1#3"])
def test_of_parallel_cables_a_state_says_which_it_is(blamed: str) -> None:
    """No trace tells which of them a packet took; another cable of the switch is no such one."""
    on = graph(3)
    for name in ("up1#2", "up1#3"):
        on.set_component(
            Component(cluster="c", component_id=name, kind=ComponentKind.LINK,
                      layer=Layer.UNDERLAY, a="spine1", b="tor", updated_at=1, addresses=())
        )  # fmt: skip
    down = state("up1#2", "port_state", "down")
    assert told(model(down, on=on).find(blamed, lost())) == ("port_down", "up1#2")
    assert told(model(down, on=on).find("up2", lost())) == ("connectivity", "up2")
    assert model(state("up1#2", "maintenance", "drained"), on=on).in_maintenance(blamed)


def test_a_counter_of_a_switch_names_the_kind_at_its_cable() -> None:
    """It does not say which cable; and nothing if it is as old, or the switch has a fault."""
    pauses = state("tor", "pause_frames_per_s", 50_000.0)
    assert told(model(pauses).find("cable", lost())) == ("pfc_deadlock", "cable")
    for found in (
        model(pauses).find("cable", lost(at=NOW + CHANCE_NS)),
        model(pauses).find("cable", lost(), frozenset({"tor"})),
    ):
        assert told(found) == ("connectivity", "cable")


def test_a_switch_whose_ports_go_down_is_down_itself() -> None:
    """Most of those that were read since then; others may not have been read yet."""
    before = [state(f"up{n}", "port_state", "up", at=NOW - 60 * SECOND_NS) for n in range(1, 4)]
    down = [state(name, "port_state", "down") for name in ("cable", "up1")]
    found = model(*before, *down, on=graph(4)).find("tor", lost())
    assert told(found) == ("switch_down", "tor")
    assert len(found.facts) == 2


@pytest.mark.parametrize(
    ("attribute", "number", "symptoms", "kind"),
    [
        ("egress_utilization", 0.97, late(), "congestion"),
        ("discards_per_s", 50.0, lost(cut=0.0), "buffer_loss"),
    ],
)
def test_the_one_port_of_a_switch_that_shows_why_is_blamed(
    attribute: str, number: float, symptoms: Symptoms, kind: str
) -> None:
    """Replies that come another way make it look like the switch."""
    shown = state("cable", attribute, number)
    ways = [frozenset({"tor", "cable"})]
    assert told(model(shown).find("tor", symptoms, crossed=ways)) == (kind, "cable")
    # Not if something is bad that cannot cross it, or if it is at fault besides.
    other = [*ways, frozenset({"tor"})]
    assert model(shown).find("tor", symptoms, crossed=other).component_id == "tor"
    beside = frozenset({"cable"})
    assert model(shown).find("tor", symptoms, beside, ways).component_id == "tor"


def table(at: int, offloaded: bool) -> FlowTable:
    """Return the table of a host, with one entry of its RNIC in hardware or not."""
    entry = FlowEntry(node="vtep", dst="e", next_hop="vtep2", offloaded=offloaded)
    return FlowTable(cluster="c", host_id="host:h", captured_at=at // 1000, entries=(entry,))


def offloads(*tables: FlowTable) -> KindModel:
    """Return a model that has read tables."""
    on = graph()
    read = FlowTables(on)
    for one in tables:
        read.set_table(one)
    return KindModel(on, StateBook(), Findings(on, StateBook(), read))


@pytest.mark.parametrize("blamed", ["vtep", "rnic", "cable"])
def test_entries_that_are_not_offloaded_name_the_kind(blamed: str) -> None:
    """At the VTEP that holds them, its RNIC, and the cable of that; only of latency."""
    before, after = table(NOW - 30 * SECOND_NS, True), table(NOW, False)
    assert offloads(before, after).find(blamed, late()).kind.name == "not_offloaded"
    assert offloads(before).find(blamed, late()).kind.name == "high_latency"
    assert offloads(before, after).find(blamed, lost(cut=0)).kind.name == "packet_loss"


def test_entries_that_leave_the_hardware_again_are_evicted() -> None:
    """Also while all are back; an hour later that is over."""
    tables = [
        table(NOW + i * 30 * SECOND_NS, offloaded)
        for i, offloaded in enumerate((True, False, True, False, True))
    ]
    assert offloads(*tables[:3]).find("rnic", late()).kind.name == "high_latency"
    assert offloads(*tables[:4]).find("rnic", late()).kind.name == "repetitive_offload"
    assert offloads(*tables).find("rnic", late()).kind.name == "repetitive_offload"
    last = table(NOW + 3_600 * SECOND_NS, True)
    assert offloads(*tables, last).find("rnic", late()).kind.name == "high_latency"


@pytest.mark.parametrize("marked", ["rnic", "cable", "host:h"])
def test_maintenance_covers_what_it_touches(marked: str) -> None:
    """The RNIC's host, its cable, itself; not the switch at the other end."""
    made = model(state(marked, "maintenance", "drained"))
    assert made.in_maintenance("rnic")
    assert not made.in_maintenance("tor")
    assert not model(state(marked, "maintenance", "none")).in_maintenance("rnic")


def test_families_are_apart() -> None:
    """A state that explains latency says nothing of loss."""
    slow = state("rnic", "transport", "udp")
    assert model(slow).find("rnic", lost()).kind.name == "rnic_unreachable"
    assert AnomalyFamily.LOSS is LOSS


def test_what_a_rule_of_a_switch_drops_is_the_switchs_fault() -> None:
    """A rule for one pair looks like a fault of its cable, which few others cross."""
    crossed = frozenset({"rnic", "cable", "tor"})
    made = model(state("tor", "acl_denied_per_s", 0.0, at=NOW - 20 * SECOND_NS),
                 state("tor", "acl_denied_per_s", 500.0))  # fmt: skip
    seen = lost(bad=0.1)
    for blamed in ("cable", "rnic"):
        found = made.find(blamed, seen, crossed=[crossed, crossed])
        assert (*told(found), found.fresh) == ("acl_error", "tor", True)
    # A 5-tuple that does not cross it, a switch with another fault, a rule of long before.
    beside = made.find("cable", seen, crossed=[crossed, frozenset({"rnic", "cable"})])
    assert told(beside) == ("connectivity", "cable")
    assert told(made.find("cable", seen, frozenset({"tor"}), [crossed]))[1] == "cable"
    later = lost(bad=0.1, at=NOW + 3600 * SECOND_NS)
    assert told(made.find("cable", later, crossed=[crossed])) == ("connectivity", "cable")


def test_a_rule_of_a_switch_is_no_evidence_for_its_cables() -> None:
    """Pause frames may be of any of its ports; an access list is of none."""
    topology = graph()
    spans = [(BEGIN, BEGIN)]
    for attribute, speaks in (("pause_frames_per_s", True), ("acl_denied_per_s", False)):
        known = book(state("tor", attribute, 0.0, at=NOW - 20 * SECOND_NS),
                     state("tor", attribute, 50_000.0))  # fmt: skip
        findings = Findings(topology, known, FlowTables(topology))
        assert (findings.evidence("cable", LOSS, spans) > 0) is speaks
        assert findings.evidence("tor", LOSS, spans) > 0
