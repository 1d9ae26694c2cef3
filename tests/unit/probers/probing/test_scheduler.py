"""Rounds and traces on a fake network with a manual clock: what is published, and when."""

from dataclasses import replace
from itertools import pairwise

import pytest

from probers.config.settings import AgentConfig, build_config
from probers.host.port import Link
from probers.probing.plan import FlowTarget, entropy_of
from probers.probing.rounds import RESOLUTION_NS, Round
from probers.probing.scheduler import ProbeScheduler
from probers.probing.trace import FinishedTrace
from probers.transports.base import Probe, Transport
from schemas.enums import ProbeStatus, TraceCause
from schemas.enums import Transport as TransportKind
from schemas.units import MS_NS, SECOND_NS
from tests.contract.misbehaviour import FakeNetwork, FakeTransport, Misbehaviour

SETTINGS = {"host_id": "h0", "timeout_ms": 100, "rnic": [{"rail": 0, "address": "10.0.0.1"}]}


class FakeRnic:
    """An RNIC whose port goes down when told to."""

    def __init__(self, transport: FakeTransport) -> None:
        self.transports: dict[TransportKind, Transport] = {TransportKind.UDP: transport}
        self.link = Link.UP
        self.next_link = Link.UP
        self.open = True

    def transport(self, kind: TransportKind) -> Transport | None:
        """Return the fake for UDP."""
        return self.transports.get(kind)

    @property
    def refused(self) -> ProbeStatus | None:
        """What a probe is without being sent."""
        return None if self.open and self.link is Link.UP else ProbeStatus.LINK_DOWN

    def read_link(self) -> Link:
        """Take over what the test has set."""
        self.link = self.next_link
        return self.link


class Rig:
    """One agent's probing with one RNIC, and a peer that answers."""

    def __init__(self, **settings: int) -> None:
        self.config: AgentConfig = build_config({}, {}, {**SETTINGS, **settings})
        self.network = FakeNetwork(1)
        self.clock = self.network.clock
        self.mine = FakeTransport(self.network)
        self.peer = FakeTransport(self.network)
        self.rnic = FakeRnic(self.mine)
        self.rounds: list[Round] = []
        self.traces: list[FinishedTrace] = []
        self.delays: list[int] = []
        self.probing = ProbeScheduler(
            self.config,
            self.clock,
            {"h0/r0": self.rnic},
            publish_round=self.rounds.append,
            publish_trace=self.traces.append,
            delay=self.delays.append,
        )

    def flows(self, count: int, kind: TransportKind = TransportKind.UDP) -> tuple[FlowTarget, ...]:
        """Return that many targets, all answered by the peer."""
        return tuple(
            FlowTarget(
                "h0/r0",
                f"w{n}/r0",
                0,
                self.peer.address,
                self.peer.port,
                kind,
                entropy_of("h0/r0", f"w{n}/r0", 0),
            )
            for n in range(count)
        )

    def follow(self, flows: tuple[FlowTarget, ...], version: int = 1) -> None:
        """Give the agent targets."""
        self.probing.follow(flows, version, self.clock.now())

    def run(self, for_ns: int, peer_answers: bool = True) -> None:
        """Let the agent work in steps of a millisecond."""
        for _ in range(for_ns // MS_NS):
            self.clock.advance(MS_NS)
            if peer_answers:
                self.peer.poll()
            self.probing.poll([self.mine])
            due_ns = self.probing.due_ns(self.clock.now())
            if due_ns is not None and due_ns <= self.clock.monotonic_ns:
                self.probing.run()


def test_every_target_is_probed_once_each_interval() -> None:
    """Three seconds: three rounds, numbered, each with one OK per target."""
    rig = Rig()
    rig.follow(rig.flows(20))
    rig.run(3_300 * MS_NS)
    assert [r.seq for r in rig.rounds] == [0, 1, 2]
    for done in rig.rounds:
        assert {r.dst for r in done.results()} == {f"w{n}/r0" for n in range(20)}
        assert all(r.status is ProbeStatus.OK for r in done.results())
    starts = [r.started.realtime_ns for r in rig.rounds]
    assert {b - a for a, b in pairwise(starts)} <= {SECOND_NS - MS_NS, SECOND_NS, SECOND_NS + MS_NS}
    assert len(rig.delays) >= 60


def test_a_round_starts_at_the_agents_own_place_in_the_second() -> None:
    """The start is the same part of every second, by the hash of the id."""
    rig = Rig()
    rig.follow(rig.flows(1))
    rig.run(5 * SECOND_NS)
    parts = {r.started.realtime_ns % SECOND_NS // (2 * MS_NS) for r in rig.rounds}
    assert len(rig.rounds) >= 4
    assert len(parts) <= 2


def test_a_dead_target_shows_three_losses_in_a_row_and_is_traced() -> None:
    """The probe and 2 confirmations, within the round; the trace for loss starts with the first."""
    rig = Rig()
    rig.follow(rig.flows(1))
    rig.run(1_200 * MS_NS)
    rig.traces.clear()
    rig.network.mangler.how = Misbehaviour(loss=1.0)
    rig.run(1_500 * MS_NS)
    results = rig.rounds[-1].results()
    assert [r.status for r in results] == [ProbeStatus.TIMEOUT] * 3
    gaps = [b.sent_offset_ns - a.sent_offset_ns for a, b in pairwise(results)]
    assert all(100 * MS_NS - RESOLUTION_NS < gap <= 105 * MS_NS for gap in gaps)
    assert [t.cause for t in rig.traces] == [TraceCause.LOSS]
    assert not rig.traces[0].complete


@pytest.mark.parametrize(
    ("kind", "traced"),
    [(TransportKind.UDP, True), (TransportKind.RDMA_UD, True), (TransportKind.TCP, False)],
)
def test_pairs_of_queue_pairs_are_traced_as_those_of_sockets(
    kind: TransportKind, traced: bool
) -> None:
    """RDMA as UDP; TCP connections are not."""
    rig = Rig()
    rig.rnic.transports = {kind: rig.mine}
    rig.network.nodes.append("10.1.0.1")
    rig.follow(rig.flows(1, kind))
    rig.run(1_200 * MS_NS)
    assert len(rig.rounds[-1].results()) == 1
    hops = [[h.address for h in trace.hops] for trace in rig.traces]
    assert hops == ([["10.1.0.1", rig.peer.address]] if traced else [])


def test_over_what_cannot_be_traced_a_loss_brings_no_trace() -> None:
    """Nothing is known of its path, so nothing is told: no empty trace either."""
    rig = Rig()
    rig.mine.untraced = "nobody answers"
    rig.follow(rig.flows(1))
    rig.run(1_200 * MS_NS)
    rig.network.mangler.how = Misbehaviour(loss=1.0)
    rig.run(1_500 * MS_NS)
    assert rig.rounds[-1].results()[0].status is ProbeStatus.TIMEOUT
    assert rig.traces == []


def test_one_lost_packet_is_one_loss_and_an_answer() -> None:
    """The confirmation tells a lost packet from a dead path."""
    rig = Rig()
    rig.follow(rig.flows(1))
    rig.run(1_200 * MS_NS)
    while not rig.probing.due_ns(rig.clock.now()) or rig.probing.idle:
        rig.network.mangler.how = Misbehaviour(loss=1.0)
        rig.run(MS_NS)
    rig.run(10 * MS_NS)
    rig.network.mangler.how = Misbehaviour()
    rig.run(900 * MS_NS)
    assert [r.status for r in rig.rounds[-1].results()] == [ProbeStatus.TIMEOUT, ProbeStatus.OK]


def test_with_the_own_link_down_nothing_is_sent_and_every_result_says_so() -> None:
    """LINK_DOWN, three times per target as for any loss, at once and without a trace."""
    rig = Rig()
    rig.follow(rig.flows(2))
    rig.run(1_200 * MS_NS)
    traced, answered = len(rig.traces), rig.peer.counts.answered
    rig.rnic.link = rig.rnic.next_link = Link.DOWN
    rig.run(1_200 * MS_NS)
    assert [r.status for r in rig.rounds[-1].results()] == [ProbeStatus.LINK_DOWN] * 6
    assert rig.peer.counts.answered == answered
    assert len(rig.traces) == traced


def test_a_probe_lost_because_the_own_link_went_down_is_link_down() -> None:
    """The state is read again when a probe is lost, before the network is blamed."""
    rig = Rig()
    rig.follow(rig.flows(1))
    rig.run(1_200 * MS_NS)
    rig.rnic.next_link = Link.DOWN
    rig.network.mangler.how = Misbehaviour(loss=1.0)
    rig.run(1_500 * MS_NS)
    assert {r.status for r in rig.rounds[-1].results()} == {ProbeStatus.LINK_DOWN}


def test_an_rnic_without_the_targets_transport_has_no_route_to_it() -> None:
    """A TCP target behind a gateway: a status, not silence."""
    rig = Rig()
    rig.follow(rig.flows(1, TransportKind.TCP))
    rig.run(1_300 * MS_NS)
    assert {r.status for r in rig.rounds[0].results()} == {ProbeStatus.NO_ROUTE}


def test_a_process_that_slept_does_not_take_its_absence_for_loss() -> None:
    """Replies that waited in the socket while the agent was not scheduled are OK."""
    rig = Rig()
    rig.follow(rig.flows(5))
    rig.run(1_200 * MS_NS)
    while rig.probing.idle:
        rig.run(MS_NS, peer_answers=False)
    rig.run(5 * MS_NS, peer_answers=False)
    rig.peer.poll()
    rig.network.deliver()
    # The fake has no kernel stamps: the sleep must be shorter than the timeout.
    rig.clock.advance(80 * MS_NS)
    rig.run(900 * MS_NS)
    assert {r.status for r in rig.rounds[-1].results()} == {ProbeStatus.OK}


@pytest.mark.parametrize("step_s", [-86_400, -2, 2, 86_400])
def test_a_clock_that_is_set_costs_no_result_and_no_wrong_time(step_s: int) -> None:
    """Rounds go on within an interval, results stay OK, RTTs stay what they were."""
    rig = Rig()
    rig.follow(rig.flows(5))
    rig.run(1_250 * MS_NS)
    rig.clock.step(step_s * SECOND_NS)
    before = len(rig.rounds)
    rig.run(3_100 * MS_NS)
    assert 3 <= len(rig.rounds) - before <= 5
    results = [r for done in rig.rounds for r in done.results()]
    assert all(r.status is ProbeStatus.OK for r in results)
    assert all(0 <= (r.rtt_ns or 0) <= 3 * MS_NS for r in results)
    assert all(0 <= r.sent_offset_ns < SECOND_NS for r in results)


def test_a_list_beyond_the_rate_is_probed_in_turns() -> None:
    """Five flows at two per round: every one within three rounds, and it is said."""
    rig = Rig(max_rate_hz=2)
    rig.mine.untraced = "traces would use the rate as well"
    rig.follow(rig.flows(5))
    rig.run(7 * SECOND_NS)
    assert rig.probing.plan.overloaded
    probed = [r.dst for done in rig.rounds[:5] for r in done.results()]
    assert all(len(done.results()) == 2 for done in rig.rounds)
    assert sorted(probed) == sorted(f"w{n}/r0" for n in range(5) for _ in range(2))


def test_a_round_fits_a_message_however_long_the_interval_is() -> None:
    """A minute at full rate would be 120,000 results: the plan stops at 5,000 flows."""
    rig = Rig(interval_ms=60_000, max_rate_hz=2_000)
    assert rig.probing.plan.capacity == 5_000


def test_a_transport_that_is_closed_ends_its_probes() -> None:
    """What was under way becomes LINK_DOWN; the round is published."""
    rig = Rig()
    rig.follow(rig.flows(3))
    rig.run(1_200 * MS_NS)
    count = len(rig.rounds)
    while rig.probing.idle:
        rig.run(MS_NS, peer_answers=False)
    rig.run(350 * MS_NS, peer_answers=False)
    rig.rnic.open = False
    rig.probing.forget([rig.mine])
    rig.run(300 * MS_NS, peer_answers=False)
    assert len(rig.rounds) == count + 1
    assert ProbeStatus.LINK_DOWN in {r.status for r in rig.rounds[-1].results()}


def test_finishing_publishes_what_is_in_and_sends_nothing_more() -> None:
    """At the end: no new probe, no new round, no result thrown away."""
    rig = Rig(spread_ms=300)
    rig.follow(rig.flows(30))
    rig.run(1_200 * MS_NS)
    count = len(rig.rounds)
    while rig.probing.idle:
        rig.run(MS_NS)
    rig.run(60 * MS_NS)
    rig.probing.finish()
    sent = rig.peer.counts.answered
    rig.run(2 * SECOND_NS)
    assert len(rig.rounds) == count + 1
    assert 0 < len(rig.rounds[-1].results()) < 30
    assert rig.peer.counts.answered <= sent + 30
    assert rig.probing.idle


def test_targets_that_come_and_go_are_followed_from_the_next_round() -> None:
    """A new list replaces the old one; the version is the one each round followed."""
    rig = Rig()
    rig.follow(rig.flows(2), version=1)
    rig.run(1_300 * MS_NS)
    moved = tuple(replace(f, dst="moved/r0") for f in rig.flows(1))
    rig.follow(moved, version=2)
    rig.run(1_300 * MS_NS)
    assert {r.dst for r in rig.rounds[-1].results()} == {"moved/r0"}
    assert [rig.rounds[0].pinglist_version, rig.rounds[-1].pinglist_version] == [1, 2]
    rig.follow((), version=3)
    count = len(rig.rounds)
    rig.run(3 * SECOND_NS)
    assert len(rig.rounds) == count


def test_what_leaves_goes_to_who_is_listed_and_no_faster_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty targets at 10 Hz: ten packets in any second; off the list, none from then on."""
    rig = Rig(max_rate_hz=10)
    sent: list[tuple[int, int]] = []
    send = rig.mine.send

    def noted(probe: Probe) -> None:
        sent.append((rig.clock.monotonic_ns, probe.entropy))
        send(probe)

    monkeypatch.setattr(rig.mine, "send", noted)
    flows = rig.flows(20)
    rig.follow(flows)
    rig.run(6 * SECOND_NS)
    assert {entropy for _, entropy in sent} == {flow.entropy for flow in flows}
    times = [at_ns for at_ns, _ in sent]
    assert max(sum(t <= u < t + SECOND_NS for u in times) for t in times) <= 10
    rig.follow(flows[:2])
    rig.run(SECOND_NS)
    sent.clear()
    rig.run(3 * SECOND_NS)
    assert {entropy for _, entropy in sent} == {flow.entropy for flow in flows[:2]}
    rig.follow(())
    rig.run(SECOND_NS)
    sent.clear()
    rig.run(3 * SECOND_NS)
    assert sent == []


def test_silent_targets_take_no_more_packets_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Confirmations go before new probes, traces have a quarter, and no target is starved."""
    rig = Rig(max_rate_hz=100)
    rig.network.mangler.how = Misbehaviour(loss=1.0)
    sent: list[tuple[int, bool]] = []
    send = rig.mine.send

    def noted(probe: Probe) -> None:
        sent.append((rig.clock.monotonic_ns, probe.ttl is not None))
        send(probe)

    monkeypatch.setattr(rig.mine, "send", noted)
    flows = rig.flows(60)
    rig.follow(flows)
    rig.run(8 * SECOND_NS, peer_answers=False)
    for traces_only, limit in ((False, 100), (True, 25)):
        times = [at_ns for at_ns, is_trace in sent if is_trace or not traces_only]
        assert max(sum(t <= u < t + SECOND_NS for u in times) for t in times) <= limit
    assert rig.probing.plan.overloaded
    attempts = [
        sum(r.dst == dst for r in done.results())
        for done in rig.rounds
        for dst in {r.dst for r in done.results()}
    ]
    assert attempts.count(3) > 0.9 * len(attempts)
    assert {r.dst for done in rig.rounds for r in done.results()} == {f.dst for f in flows}
