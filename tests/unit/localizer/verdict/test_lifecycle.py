"""Faults over time."""

from copy import deepcopy
from dataclasses import replace

import pytest

from localizer.config import CoreConfig
from localizer.verdict.catalogue import KINDS
from localizer.verdict.claims import Claim
from localizer.verdict.incident import TRANSITIONS, Trigger, fault_id, opened, resolve
from localizer.verdict.lifecycle import Lifecycle, Situation
from schemas.enums import ComponentKind, FaultLifecycle, Layer
from schemas.ids import FlowId
from schemas.records import FaultEvent
from schemas.units import SECOND_NS, ns_to_us
from tests.unit.localizer.made import START

CONFIG = CoreConfig(cluster="lab", flap_ns=20 * SECOND_NS)
OPEN, UPDATED, RESOLVED = FaultLifecycle.OPEN, FaultLifecycle.UPDATED, FaultLifecycle.RESOLVED


def keys(count: int, first: int = 0) -> frozenset[FlowId]:
    """Return so many 5-tuples."""
    return frozenset(("e0", "e1", flow) for flow in range(first, first + count))


def claim(
    component: str = "A", flows: frozenset[FlowId] = keys(4), kind: str = "connectivity"
) -> Claim:
    """Return a decided claim that is ready; change it by `replace`."""
    return Claim(
        component_id=component, component_kind=ComponentKind.LINK, layer=Layer.UNDERLAY,
        kind=KINDS[kind], decided=True, confidence=0.95, candidates=((component, 0.95),),
        keys=flows, bad=len(flows), good=3, onset_ns=START, tasks=("t",), evidence=("seen",),
        ready=True,
    )  # fmt: skip


class Life:
    """A life cycle with a clock of its own: `step` lets time pass."""

    def __init__(self) -> None:
        self.now = START
        self.lifecycle = Lifecycle(CONFIG)

    def step(
        self,
        *claims: Claim,
        seconds: float = 1.0,
        bad: frozenset[FlowId] | None = None,
        replyless: frozenset[FlowId] = frozenset(),
    ) -> list[FaultEvent]:
        """Return the transitions of one decision; what is bad is what is claimed, unless given."""
        self.now += round(seconds * SECOND_NS)
        wrong = frozenset[FlowId]().union(*(c.keys for c in claims)) if bad is None else bad
        situation = Situation(
            bad_loss=wrong, bad_latency=wrong,
            crossing=lambda components, group: wrong if components and group else frozenset(),
            unexplained=0, replyless=replyless,
        )  # fmt: skip
        return self.lifecycle.step(list(claims), situation, self.now)


def test_a_fault_opens_and_resolves() -> None:
    """One id, seq from 1, times in order; resolved after three quiet seconds."""
    life = Life()
    (first,) = life.step(claim())
    assert (first.state, first.seq, first.component_id) == (OPEN, 1, "A")
    assert (first.onset_at, first.opened_at) == (ns_to_us(START), first.event_at)
    assert life.step(claim()) == []
    assert life.step() == []
    assert life.step(seconds=2) == []
    (last,) = life.step()
    assert (last.state, last.seq, last.fault_id) == (RESOLVED, 2, first.fault_id)
    assert last.resolved_at == last.event_at == first.event_at + 5_000_000
    assert (last.bad_paths, last.component_id, last.decided) == (0, "A", True)


def test_a_claim_that_is_not_ready_opens_nothing() -> None:
    """The evidence is followed, but nobody is paged."""
    life = Life()
    assert life.step(replace(claim(), ready=False)) == []
    assert life.lifecycle.open_faults() == []


def test_evidence_that_stays_keeps_it_open_without_a_claim() -> None:
    """Its own 5-tuples are still bad, though nothing blames it at the moment."""
    life = Life()
    life.step(claim())
    for _ in range(10):
        assert life.step(bad=keys(1)) == []
    assert [e.state for e in life.step(seconds=1)] == []
    assert [e.state for e in life.step(seconds=3)] == [RESOLVED]


def test_a_fault_that_returns_is_the_same_fault() -> None:
    """Within the damping time it is UPDATED with a flap, and must be quiet for longer then."""
    life = Life()
    (first,) = life.step(claim())
    life.step()
    (gone,) = life.step(seconds=3)
    (back,) = life.step(claim(), seconds=10)
    assert gone.state is RESOLVED
    assert (back.state, back.fault_id, back.flaps, back.seq) == (UPDATED, first.fault_id, 1, 3)
    assert back.resolved_at is None
    life.step()
    assert life.step(seconds=3) == []
    assert [e.state for e in life.step(seconds=3)] == [RESOLVED]


@pytest.mark.parametrize(("lasts_s", "one"), [(20, True), (90, False)])
def test_a_delay_that_comes_and_goes_is_one_fault(lasts_s: int, one: bool) -> None:
    """Nobody repairs it within a minute; after longer it is another fault."""
    life = Life()
    (first,) = life.step(claim(kind="high_latency"))
    life.step(claim(kind="high_latency"), seconds=lasts_s)
    life.step()
    (gone,) = life.step(seconds=3)
    assert gone.state is RESOLVED
    (again,) = life.step(claim(kind="high_latency"), seconds=100)
    assert (again.fault_id == first.fault_id) is one


def test_after_the_damping_time_it_is_another_fault() -> None:
    """A new id; and never the old one again, though the evidence says the same onset."""
    life = Life()
    (first,) = life.step(claim())
    life.step(claim(), seconds=20)
    life.step()
    life.step(seconds=3)
    (again,) = life.step(claim(), seconds=21)
    assert again.state is OPEN
    assert again.fault_id != first.fault_id


def test_what_a_port_cut_off_for_seconds_comes_back_as_the_same_fault_for_minutes() -> None:
    """Nobody repaired it. A switch does not flap, and a share of packets has a rule of its own."""
    for place, kind, same in (
        (ComponentKind.LINK, "connectivity", True),
        (ComponentKind.RNIC, "rnic_unreachable", True),
        (ComponentKind.SWITCH, "switch_down", False),
    ):
        life = Life()
        said = replace(claim(kind=kind), component_kind=place)
        (first,) = life.step(said)
        life.step(said, seconds=6)
        life.step()
        life.step(seconds=3)
        assert life.lifecycle.returned("A", life.now + 100 * SECOND_NS) == 1
        (again,) = life.step(said, seconds=150)
        assert (again.fault_id == first.fault_id) is same
        assert again.flaps == int(same)


def test_a_fault_elsewhere_is_not_the_one_that_a_port_ended_by_itself() -> None:
    """Also where that port is one of its candidates: a fault of minutes ago has no share in it."""
    said = replace(claim(kind="port_down"), component_kind=ComponentKind.LINK)
    life = Life()
    (first,) = life.step(said)
    life.step(said, seconds=6)
    life.step()
    life.step(seconds=3)
    other = replace(
        claim("rnic", keys(4, first=50)), decided=False, confidence=0.5,
        candidates=(("rnic", 0.5), ("link", 0.48), ("A", 0.02)),
    )  # fmt: skip
    (second,) = life.step(other, seconds=150)
    assert (second.state, second.component_id) == (OPEN, "rnic")
    assert second.fault_id != first.fault_id


@pytest.mark.parametrize("quiet_s", [0, 30])
def test_a_host_that_went_down_was_the_cut_of_its_rnics(quiet_s: int) -> None:
    """One fault with a better answer, though the cut is over; what began earlier is another one."""
    down = replace(
        claim("host", keys(5), "host_down"), component_kind=ComponentKind.HOST,
        onset_ns=START + SECOND_NS,
    )  # fmt: skip
    life = Life()
    (first,) = life.step(claim("rnic", keys(4)))
    if quiet_s:
        life.step()
        assert [e.state for e in life.step(seconds=3)] == [RESOLVED]
    (second,) = life.step(down, seconds=1 + quiet_s // 2)
    assert (second.fault_id, second.component_id) == (first.fault_id, "host")
    assert second.fault_kind == "host_down"
    for other in (
        replace(down, onset_ns=START + 60 * SECOND_NS),
        replace(down, keys=keys(4, first=50)),
        replace(down, kind=KINDS["agent_dead"]),
    ):
        life = Life()
        life.step(claim("rnic", keys(4)))
        (second,) = life.step(other)
        assert (second.state, second.component_id) == (OPEN, "host")


def test_a_leak_that_shows_again_within_ten_minutes_is_the_same_and_no_flapping_port() -> None:
    """A share of packets is lost as traffic comes and goes; only what returns soon flaps."""
    life = Life()
    (first,) = life.step(claim(kind="packet_loss"))
    life.step()
    life.step(seconds=3)
    (back,) = life.step(claim(kind="packet_loss"), seconds=300)
    assert (back.fault_id, back.flaps) == (first.fault_id, 1)
    assert life.lifecycle.returned("A", life.now) == 0
    life.step()
    life.step(seconds=6)
    (soon,) = life.step(claim(kind="packet_loss"), seconds=5)
    assert (soon.fault_id, soon.flaps) == (first.fault_id, 2)
    assert life.lifecycle.returned("A", life.now) == 1


def test_a_leak_at_a_candidate_of_an_undecided_one_answers_it_though_other_5_tuples_lose() -> None:
    """One fault, which gets a place; a leak elsewhere is another one."""
    life = Life()
    vague = replace(
        claim(kind="packet_loss"), decided=False, confidence=0.5,
        candidates=(("A", 0.5), ("B", 0.4)),
    )  # fmt: skip
    (first,) = life.step(vague)
    there = claim("B", keys(3, first=5), "packet_loss")
    (second,) = life.step(there, bad=keys(1))
    assert (second.fault_id, second.component_id, second.decided) == (first.fault_id, "B", True)
    (other,) = life.step(there, claim("C", keys(3, first=8), "packet_loss"))
    assert (other.state, other.component_id) == (OPEN, "C")


def test_a_claim_for_what_another_fault_is_made_of_answers_no_leak_elsewhere() -> None:
    """A switch that discards packets may account for the leak of its cable, told long ago."""
    life = Life()
    (old,) = life.step(claim("cable", keys(11), "packet_loss"))
    lost = keys(6, first=50)
    vague = replace(
        claim("vsw", lost, "packet_loss"), decided=False, confidence=0.5,
        candidates=(("vsw", 0.5), ("switch", 0.4)),
    )  # fmt: skip
    (leak,) = life.step(vague, bad=keys(11), seconds=60)
    switch = replace(claim("switch", keys(13), "packet_loss"), replies=lost)
    assert life.step(switch, bad=keys(13) | lost) == []
    # Of what is nobody's yet it is the better answer.
    own = replace(switch, keys=keys(13, first=30))
    (found,) = life.step(own, bad=keys(11) | own.keys | lost)
    assert (found.fault_id, found.component_id) == (leak.fault_id, "switch")
    assert old.fault_id != leak.fault_id


def test_an_undecided_fault_is_refined_not_doubled() -> None:
    """When the evidence decides for another candidate, the same fault says so."""
    life = Life()
    vague = replace(claim(), decided=False, confidence=0.5, candidates=(("A", 0.5), ("B", 0.5)))
    (first,) = life.step(vague)
    assert not first.decided
    assert [c.component_id for c in first.candidates] == ["A", "B"]
    (second,) = life.step(claim("B"))
    assert (second.fault_id, second.state, second.component_id) == (first.fault_id, UPDATED, "B")
    assert second.decided
    assert len(life.lifecycle.open_faults()) == 1


def test_a_young_link_becomes_its_switch() -> None:
    """More of the same evidence names the whole; the fault stays one."""
    life = Life()
    (first,) = life.step(claim("link", keys(3)))
    (second,) = life.step(claim("switch", keys(12)))
    assert (second.fault_id, second.component_id) == (first.fault_id, "switch")


def test_a_young_switch_becomes_the_cable_where_its_replies_are_lost() -> None:
    """Its own 5-tuples lose replies only, and do not cross the cable themselves."""
    life = Life()
    lost, own = keys(6), keys(13, first=100)
    (first,) = life.step(claim("switch", lost))
    cable = claim("cable", own)
    assert life.step(cable, bad=lost | own, replyless=lost)[0].state is OPEN
    life = Life()
    (first,) = life.step(claim("switch", lost))
    near = replace(cable, near=frozenset({"switch"}))
    (second,) = life.step(near, bad=lost | own, replyless=lost)
    assert (second.fault_id, second.component_id) == (first.fault_id, "cable")


def test_what_is_left_of_an_agents_fault_is_no_fault_of_the_network() -> None:
    """The agent answers again; the 5-tuples that are cleared last are no cut of their cable."""
    life = Life()
    silent = replace(
        claim("agent", keys(12), "agent_unresponsive"), component_kind=ComponentKind.AGENT,
        layer=Layer.HOST,
    )  # fmt: skip
    assert life.step(silent)[0].component_id == "agent"
    assert life.step(bad=keys(4)) == []
    left = claim("cable", keys(4))
    assert life.step(left) == []
    later = replace(left, onset_ns=life.now)
    assert [event.component_id for event in life.step(later)] == ["cable"]


def test_what_windows_still_tell_of_a_fault_is_no_latency_elsewhere() -> None:
    """An agent restarted and took back what was told; until its windows close it comes again."""
    life = Life()
    slow = claim("rnic", keys(12), "high_latency")
    assert [event.component_id for event in life.step(slow)] == ["rnic"]
    life.step()
    assert [event.state for event in life.step(seconds=3)] == [RESOLVED]
    left = claim("switch", keys(9), "high_latency")
    assert life.step(left, seconds=5) == []
    # More than the fault had, what began since, and what lasts is news.
    for news in (replace(left, keys=keys(13)), replace(left, onset_ns=life.now + SECOND_NS)):
        other = deepcopy(life)
        assert [event.component_id for event in other.step(news)] == ["switch"]
    assert life.step(left, seconds=40) == []
    assert [event.component_id for event in life.step(left, seconds=20)] == ["switch"]


def test_what_the_height_has_shown_stays_while_a_fault_clears() -> None:
    """Fewer witnesses tell the component less surely: neither confidence nor candidates change."""
    life = Life()
    life.step(claim(flows=keys(9)))
    fading = replace(claim(flows=keys(2)), confidence=0.6, candidates=(("A", 0.6), ("B", 0.4)))
    assert life.step(fading, seconds=11) == []
    (last,) = life.step(replace(fading, kind=KINDS["port_down"]), seconds=11)
    assert (last.fault_kind, last.confidence, last.bad_paths) == ("port_down", 0.95, 9)
    assert [c.component_id for c in last.candidates] == ["A"]


def test_an_old_decided_fault_is_not_renamed() -> None:
    """After its youth, the same 5-tuples under another name change nothing."""
    life = Life()
    life.step(claim("A"))
    life.step(claim("A"), seconds=40)
    assert life.step(claim("B")) == []


def test_news_beside_an_old_fault_is_a_fault_of_its_own() -> None:
    """Another component with 5-tuples that nobody explained yet opens."""
    life = Life()
    life.step(claim("A"))
    life.step(claim("A"), seconds=40)
    (second,) = life.step(claim("A"), claim("B", keys(4, first=100)))
    assert (second.state, second.component_id) == (OPEN, "B")


def test_what_was_decided_stays_decided() -> None:
    """A moment of doubt is no update."""
    life = Life()
    life.step(claim())
    doubt = replace(claim(), decided=False, confidence=0.6)
    assert life.step(doubt, seconds=30) == []


def test_small_changes_are_not_told_and_large_ones_seldom() -> None:
    """Half as many more bad 5-tuples is worth an update, ten seconds apart."""
    life = Life()
    life.step(claim(flows=keys(10)))
    assert life.step(claim(flows=keys(12)), seconds=15) == []
    (update,) = life.step(claim(flows=keys(20)), seconds=15)
    assert (update.state, update.bad_paths) == (UPDATED, 20)
    assert life.step(claim(flows=keys(40)), seconds=5) == []
    assert len(life.step(claim(flows=keys(40)), seconds=5)) == 1


def test_a_changed_kind_is_told_at_once() -> None:
    """From partial to total: kind and severity matter to who is paged."""
    life = Life()
    life.step(claim(kind="packet_loss"))
    (update,) = life.step(claim(kind="connectivity"))
    assert (update.fault_kind, update.severity) == ("connectivity", "critical")


def test_a_proof_from_the_tables_replaces_a_guess() -> None:
    """A virtual switch blamed for loss gets the missing entry as its kind, not the reverse."""
    life = Life()
    life.step(claim("vsw", kind="packet_loss"))
    (update,) = life.step(claim("vsw", kind="flow_missing"))
    assert update.fault_kind == "flow_missing"
    assert life.step(claim("vsw", kind="connectivity"), seconds=20) == []


def test_latency_on_a_lossy_component_is_no_second_fault() -> None:
    """Late as well as lossy: one fault, named by the graver kind."""
    life = Life()
    life.step(claim("A"))
    assert life.step(claim("A"), claim("A", kind="high_latency"), seconds=20) == []


def test_a_dead_agent_stays_open_while_it_is_claimed() -> None:
    """Its fault needs no bad 5-tuple; how many there are is no news."""
    life = Life()
    life.step(claim("agent", frozenset(), "agent_dead"))
    assert life.step(claim("agent", frozenset(), "agent_dead"), seconds=60) == []
    assert life.step(claim("agent", kind="agent_dead"), seconds=60) == []
    life.step()
    assert [e.state for e in life.step(seconds=3)] == [RESOLVED]


def test_a_flapping_port_is_one_fault_though_it_is_well_for_minutes() -> None:
    """It returns long after the damping time, also when a flap does not tell it from its cable."""
    life = Life()
    port = replace(
        claim("rnic", kind="port_flapping"), near=frozenset({"cable"}),
        component_kind=ComponentKind.RNIC,
    )  # fmt: skip
    (first,) = life.step(port)
    life.step()
    life.step(seconds=4)
    cable = replace(
        claim("cable", kind="port_flapping"), decided=False,
        candidates=(("cable", 0.56), ("rnic", 0.42)), near=frozenset({"rnic"}),
    )  # fmt: skip
    (back,) = life.step(cable, seconds=100)
    assert (back.fault_id, back.component_id, back.decided) == (first.fault_id, "rnic", True)
    assert back.flaps == 1
    # While it is open, too, however sure the cable looks this time.
    assert life.step(replace(cable, decided=True), seconds=2) == []
    life.step()
    life.step(seconds=10)
    (other,) = life.step(port, seconds=200)
    assert other.fault_id != first.fault_id


def test_what_explains_an_agents_silence_takes_its_fault_over() -> None:
    """One id: the warning becomes what is critical."""
    life = Life()
    (first,) = life.step(claim("agent", frozenset(), "agent_dead"))
    down = replace(claim("host", frozenset(), "host_down"), replaces=frozenset({"agent", "b"}))
    (second,) = life.step(down)
    assert (second.fault_id, second.component_id) == (first.fault_id, "host")
    assert (second.fault_kind, second.severity) == ("host_down", "critical")
    assert life.step(down, seconds=60) == []


def test_forced_transitions_are_not_said_again() -> None:
    """What a former process published is taken over; the next seq follows on."""
    life = Life()
    (first,) = life.step(claim())
    other = Life()
    other.lifecycle.force(first)
    other.lifecycle.force(first)
    assert other.step(claim()) == []
    assert other.step() == []
    (gone,) = other.step(seconds=3)
    assert (gone.fault_id, gone.seq, gone.state) == (first.fault_id, 2, RESOLVED)


def test_what_the_table_does_not_hold_cannot_happen() -> None:
    """A resolved fault cannot be resolved; every state has a way on."""
    incident = opened("lab", claim(), START)
    resolve(incident, START)
    with pytest.raises(ValueError, match="cannot happen"):
        resolve(incident, START)
    ways = {state for state, _ in TRANSITIONS}
    assert ways == {None, OPEN, UPDATED, RESOLVED}
    assert TRANSITIONS[None, Trigger.OPENED] is OPEN


def test_ids_differ_by_everything_that_makes_a_fault() -> None:
    """Cluster, component, group, onset and opening all count."""
    base = {"onset_ns": START, "opened_ns": START}
    ids = {
        fault_id("lab", "A", "loss", **base),
        fault_id("other", "A", "loss", **base),
        fault_id("lab", "B", "loss", **base),
        fault_id("lab", "A", "latency", **base),
        fault_id("lab", "A", "loss", onset_ns=START + SECOND_NS, opened_ns=START),
        fault_id("lab", "A", "loss", onset_ns=START, opened_ns=START + SECOND_NS),
    }
    assert len(ids) == 6


def test_old_resolved_faults_are_forgotten() -> None:
    """State does not grow with the number of past faults."""
    life = Life()
    for place in range(5):
        life.step(claim(f"A{place}"), seconds=300)
        life.step()
        life.step(seconds=3)
    assert len(life.lifecycle.resolved_faults()) == 1


@pytest.mark.parametrize(
    ("first", "later", "bad", "told"),
    [
        ("connectivity", "switch_down", 9, "switch_down"),
        ("switch_down", "connectivity", 2, "switch_down"),
        ("connectivity", "packet_loss", 2, "connectivity"),
        ("connectivity", "port_down", 2, "port_down"),
        ("port_down", "connectivity", 9, "port_down"),
        ("port_down", "crc_error", 2, "port_down"),
        ("port_down", "crc_error", 9, "crc_error"),
        ("port_down", "port_flapping", 2, "port_flapping"),
    ],
)
def test_a_fault_keeps_the_kind_that_it_had_at_its_fullest(
    first: str, later: str, bad: int, told: str
) -> None:
    """More is known, or more of it is bad: another kind; while it or its state clears: not."""
    life = Life()
    life.step(claim(kind=first))
    life.step(claim(kind=later, flows=keys(bad)), seconds=11)
    (fault,) = life.lifecycle.open_faults()
    assert fault.event.fault_kind == told


def test_what_was_undecided_may_come_back_with_a_better_answer() -> None:
    """A flapping port: first the cable or the RNIC, then its state says which."""
    life = Life()
    unsure = replace(claim(), decided=False, candidates=(("A", 0.57), ("B", 0.43)))
    (first,) = life.step(unsure)
    life.step()
    life.step(seconds=3)
    (back,) = life.step(claim("B", kind="port_flapping"), seconds=5)
    assert (back.fault_id, back.component_id, back.flaps) == (first.fault_id, "B", 1)
    life.step()
    life.step(seconds=7)
    (other,) = life.step(claim("C"), seconds=5)
    assert other.fault_id != first.fault_id


@pytest.mark.parametrize(
    ("kind", "decided", "place", "flows", "seconds", "same"),
    [("repetitive_offload", False, "B", keys(3), 80, True),
     ("repetitive_offload", True, "B", keys(3), 80, False),
     ("repetitive_offload", False, "C", keys(3), 80, False),
     ("repetitive_offload", False, "E", keys(3), 80, False),
     ("repetitive_offload", False, "B", keys(3, first=20), 80, False),
     ("repetitive_offload", False, "B", keys(3), 900, False),
     ("not_offloaded", False, "B", keys(3), 50, False)],
)  # fmt: skip
def test_evictions_that_are_back_before_their_state_is_read_are_no_second_fault(
    *, kind: str, decided: bool, place: str, flows: frozenset[FlowId], seconds: float, same: bool
) -> None:
    """Late 5-tuples tell the RNIC that was weighed when the state told its virtual switch."""
    life = Life()
    told = replace(
        claim(kind=kind),
        confidence=0.97, candidates=(("A", 0.97), ("B", 0.5), ("E", 0.02)),
    )  # fmt: skip
    (first,) = life.step(told)
    life.step()
    life.step(seconds=3)
    late = replace(
        claim(place, flows, kind="high_latency"), onset_ns=life.now + 4 * SECOND_NS,
        decided=decided, confidence=0.57, candidates=((place, 0.57), ("D", 0.43)),
    )  # fmt: skip
    (back,) = life.step(late, seconds=seconds)
    assert (back.fault_id == first.fault_id) is same
    if same:
        assert (back.component_id, back.fault_kind, back.flaps) == ("A", "repetitive_offload", 1)


def test_a_shadow_next_door_is_no_second_fault() -> None:
    """Joined to what is at fault and begun with it; later or elsewhere it is one."""
    life = Life()
    life.step(claim("A", keys(4)))
    shadow = replace(claim("B", keys(4, first=9)), near=frozenset("A"))
    assert life.step(claim("A", keys(4)), shadow) == []
    later = replace(shadow, onset_ns=START + 9 * SECOND_NS)
    assert [e.component_id for e in life.step(claim("A", keys(4)), later)] == ["B"]
    far = replace(shadow, component_id="C", near=frozenset("Z"), keys=keys(4, first=20))
    assert [e.component_id for e in life.step(claim("A", keys(4)), later, far)] == ["C"]


def test_the_last_late_paths_of_a_delay_that_ends_are_no_second_fault() -> None:
    """Undecided between other places and where it is, and late since it began; else they are."""
    slow = replace(
        claim("A", keys(8), kind="high_latency"), decided=False, confidence=0.4,
        candidates=(("A", 0.4), ("A'", 0.4)),
    )  # fmt: skip
    rest = replace(
        claim("B", keys(4, first=20), kind="high_latency"), decided=False, confidence=0.3,
        candidates=(("B", 0.3), ("A'", 0.1)),
    )  # fmt: skip
    for other in (
        replace(rest, decided=True),
        replace(rest, onset_ns=START + 9 * SECOND_NS),
        replace(rest, onset_ns=START - 9 * SECOND_NS),
        replace(rest, keys=keys(8, first=20)),
        replace(rest, candidates=(("B", 0.3), ("C", 0.3))),
    ):
        life = Life()
        life.step(slow)
        assert life.step(rest, seconds=90) == []
        assert [e.component_id for e in life.step(other)] == ["B"]


def test_what_is_left_of_the_replies_that_a_leak_lost_is_no_fault() -> None:
    """The counts of a minute show it when those of the leak's own 5-tuples show nothing more."""
    replies = keys(4, first=9)
    own = claim("A", keys(6), kind="packet_loss")
    leak = replace(own, replies=replies)
    rest = replace(claim("B", replies, kind="packet_loss"), onset_ns=START + 40 * SECOND_NS)
    for first, other, seconds in (
        (leak, rest, CONFIG.aftermath_ns // SECOND_NS),
        (leak, replace(rest, kind=KINDS["connectivity"]), 1),
        (leak, replace(rest, kind=KINDS["crc_error"]), 1),
        (leak, replace(rest, keys=keys(5, first=9), bad=5), 1),
        (leak, replace(rest, onset_ns=START + 900 * SECOND_NS), 1),
        (own, rest, 1),
        (replace(leak, kind=KINDS["connectivity"]), rest, 1),
    ):
        life = Life()
        life.step(first)
        life.step(first, seconds=60, bad=keys(20))
        life.step(bad=replies)
        assert [e.state for e in life.step(seconds=3, bad=replies)] == [RESOLVED]
        if first is leak:
            assert life.step(rest, seconds=1) == []
        assert [e.component_id for e in life.step(other, seconds=seconds)] == ["B"]


def test_what_began_later_is_no_better_answer_for_an_undecided_fault() -> None:
    """While the old fault clears, the 5-tuples that are left are those a later one hits, too."""
    life = Life()
    unsure = replace(claim("A", keys(8)), decided=False, confidence=0.6)
    (first,) = life.step(unsure)
    life.step(unsure, seconds=200)
    left = keys(3)
    later = replace(claim("B", left), onset_ns=START + 190 * SECOND_NS)
    assert life.step(later, bad=left) == []
    since_then = replace(later, onset_ns=START + SECOND_NS)
    (better,) = life.step(since_then, bad=left)
    assert (better.fault_id, better.component_id) == (first.fault_id, "B")


def test_partial_loss_shows_late_and_is_a_better_answer_all_the_same() -> None:
    """It hits one 5-tuple after another."""
    life = Life()
    unsure = replace(claim("A", kind="packet_loss"), decided=False, confidence=0.6)
    (first,) = life.step(unsure)
    life.step(unsure, seconds=200)
    later = replace(claim("B", kind="packet_loss"), onset_ns=START + 190 * SECOND_NS)
    (better,) = life.step(later)
    assert (better.fault_id, better.component_id) == (first.fault_id, "B")


def test_a_fault_elsewhere_that_loses_the_replies_is_the_better_answer() -> None:
    """A spine drops what goes to one RNIC: probes from there cross other spines, and look lost."""
    forward, replies = keys(4), keys(7, first=4)
    life = Life()
    (first,) = life.step(replace(claim("rnic", forward | replies), decided=False))
    spine = claim("spine", forward)
    assert life.step(spine, bad=forward | replies) == []
    leaf = replace(spine, replies=replies, near=frozenset({"rnic"}))
    assert life.step(leaf, bad=forward | replies) == []
    # Replies are lost from the beginning: what may lose them long after it is another fault.
    late = Life()
    late.step(replace(claim("rnic", forward | replies), decided=False))
    late.step(seconds=CONFIG.refine_ns / SECOND_NS, bad=forward | replies)
    assert late.step(replace(spine, replies=replies), bad=forward | replies) == []
    (better,) = life.step(replace(spine, replies=replies), bad=forward | replies)
    assert (better.fault_id, better.state, better.component_id) == (
        first.fault_id, UPDATED, "spine",
    )  # fmt: skip


def test_a_state_names_the_place_of_an_open_fault_however_late() -> None:
    """A decided cable is its RNIC's once a state says so, and stays that."""
    life = Life()
    (first,) = life.step(claim("cable"))
    named = replace(claim("rnic", kind="port_down"), cause="cable")
    (better,) = life.step(named, seconds=100)
    assert (better.fault_id, better.state, better.component_id) == (first.fault_id, UPDATED, "rnic")
    assert life.step(replace(named, component_id="cable", cause=None), seconds=20) == []
    other = replace(claim("cable", kind="device_gone"), cause=None)
    assert [e.component_id for e in life.step(replace(other, component_id="rnic"))] == ["rnic"]


def test_where_a_state_names_two_places_the_decided_one_is_told() -> None:
    """The same counter is out of order at a cable and at its RNIC; traces decide in the end."""
    life = Life()
    life.step(replace(claim("cable", kind="crc_error"), decided=False, confidence=0.57))
    rnic = replace(claim("rnic", kind="crc_error"), cause="cable")
    assert life.step(replace(rnic, decided=False, confidence=0.57), seconds=20) == []
    (better,) = life.step(rnic, seconds=20)
    assert (better.component_id, better.decided) == ("rnic", True)
    assert life.step(replace(rnic, component_id="cable", cause=None), seconds=20) == []


def test_what_a_state_says_is_still_there_is_over_for_the_evidence() -> None:
    """It is open, but explains nothing; what shows there again is the same fault."""
    life = Life()
    life.step(claim("A", kind="port_down"))
    standing = replace(claim("A", frozenset(), "port_down"), bad=0)
    situation = Situation(
        bad_loss=frozenset(), bad_latency=frozenset(), crossing=lambda *_: frozenset(),
        unexplained=0, standing=lambda _: standing,
    )  # fmt: skip
    life.step()
    (held,) = life.lifecycle.step([], situation, life.now + 3 * SECOND_NS)
    assert (held.state, held.bad_paths, held.flaps) == (UPDATED, 0, 0)
    assert life.lifecycle.open_faults() == []
    (over,) = life.lifecycle.resolved_faults()
    assert over.open
    assert over.over_ns == life.now + 3 * SECOND_NS
    assert life.lifecycle.step([], situation, life.now + 500 * SECOND_NS) == []
    (again,) = life.step(claim("A", kind="port_down"), seconds=501)
    assert (again.fault_id, again.flaps) == (held.fault_id, 1)
    follower = Lifecycle(CONFIG)
    for event in (held, again):
        follower.force(event)
        assert bool(follower.open_faults()) is (event is again)
