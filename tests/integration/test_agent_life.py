"""Agents on a real broker: they register, find each other, probe, and leave."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from ops.running.processes import Child, ProcessGroup
from schemas import topics
from schemas.enums import AgentState, ClockSource, ProbeStatus, ProbingState, TraceCause
from schemas.enums import Transport as TransportKind
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import KEPT_BYTES, WHOLE_BYTES_HEADER
from schemas.records import Heartbeat, Task, TaskEndpoint
from schemas.topics import MAX_MESSAGE_BYTES
from schemas.units import MS_NS
from tests.integration.agent_harness import CLUSTER, CODEC, WAIT_S, Agents, Watcher

pytestmark = pytest.mark.broker


@pytest.fixture
def agents(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Agents]:
    """Return what starts agents; those that run are stopped at the end."""
    with ProcessGroup(tmp_path / "logs") as group:
        yield Agents(kafka, tmp_path, group)


@pytest.fixture
def watcher(agents: Agents) -> Iterator[Watcher]:
    """Return what reads everything that agents write."""
    made = Watcher(
        agents.settings,
        topics.ENDPOINT,
        topics.HEARTBEAT,
        topics.PROBE_ROUND,
        topics.PATH_TRACE,
        topics.RNIC_COUNTERS,
    )
    yield made
    made.close()


def ok_pairs(watcher: Watcher, agent_id: str) -> set[tuple[str, str, int]]:
    """Return which 5-tuples of an agent were answered at least once."""
    return {
        (r.src, r.dst, r.flow)
        for done in watcher.of(topics.PROBE_ROUND, agent_id)
        for r in done.results
        if r.status is ProbeStatus.OK
    }


def traced_pairs(watcher: Watcher) -> set[tuple[str, str, int]]:
    """Return which 5-tuples were traced to their end."""
    return {(t.src, t.dst, t.flow) for t in watcher.of(topics.PATH_TRACE) if t.complete}


def test_two_agents_register_probe_each_other_and_leave(agents: Agents, watcher: Watcher) -> None:
    """The whole life: waiting, active, rounds, traces, counters, tombstones, exit 0."""
    agents.tell("agent-a", ("a/r0", "b/r0"), ("a/r1", "b/r1"), ("a/r0", "nobody/r0"), flows=2)
    agents.tell("agent-b", ("b/r0", "a/r0"))
    first = agents.start("a", agents.configure("a", rnics=2))
    watcher.until(
        "a waits for b",
        lambda: any(
            b.state is AgentState.RUNNING and (b.targets_active, b.targets_waiting) == (0, 3)
            for b in watcher.of(topics.HEARTBEAT, "agent-a")
        ),
    )
    assert not watcher.of(topics.PROBE_ROUND)
    second = agents.start("b", agents.configure("b", rnics=2))
    expected = {("a/r0", "b/r0", 0), ("a/r0", "b/r0", 1), ("a/r1", "b/r1", 0), ("a/r1", "b/r1", 1)}
    watcher.until(
        "both probe each other",
        lambda: (
            ok_pairs(watcher, "agent-a") == expected
            and ok_pairs(watcher, "agent-b") == {("b/r0", "a/r0", 0)}
            and len(watcher.of(topics.PROBE_ROUND, "agent-a")) >= 3
            and len(traced_pairs(watcher)) == 5
            and len(watcher.of(topics.RNIC_COUNTERS, "agent-a")) >= 2
        ),
    )
    rounds = watcher.of(topics.PROBE_ROUND, "agent-a")
    assert [r.round_seq for r in rounds] == list(range(len(rounds)))
    assert {r.cluster for r in rounds} == {"test-cluster"}
    # A busy machine may miss a timeout, in the last round too.
    for result in (r for done in rounds for r in done.results if r.status is ProbeStatus.OK):
        assert result.transport is TransportKind.UDP
        assert result.clock in (ClockSource.KERNEL, ClockSource.SOFTWARE)
        assert 0 < (result.rtt_ns or 0) < 10**9
        assert result.prober_delay_ns is not None
        assert result.responder_delay_ns is not None
    traces = watcher.of(topics.PATH_TRACE)
    first_of = {(t.src, t.dst, t.flow): t for t in reversed(traces)}
    assert {t.cause for t in first_of.values()} == {TraceCause.DISCOVERY}
    # Of a probe that missed its time a second trace may tell.
    assert traced_pairs(watcher) == first_of.keys()
    assert {tuple(h.address for h in t.hops) for t in traces if t.complete} == {("127.0.0.1",)}
    batch = watcher.of(topics.RNIC_COUNTERS, "agent-a")[-1]
    assert batch.started_at * 1000 % batch.tick_ns == 0
    assert {(s.tx_bytes, s.rx_bytes, s.counter_bits) for s in batch.samples} == {(4000, 8000, 34)}
    first.process.terminate()
    second.process.terminate()
    watcher.until(
        "tombstones of all endpoints",
        lambda: (
            {k for k, r in watcher.records["endpoint.v1"] if r is None}
            == {"a/r0", "a/r1", "b/r0", "b/r1"}
        ),
    )
    assert first.process.wait(WAIT_S) == 0
    assert second.process.wait(WAIT_S) == 0
    watcher.until(
        "the last heartbeat says goodbye",
        lambda: watcher.of(topics.HEARTBEAT, "agent-a")[-1].state is AgentState.LEAVING,
    )
    statuses = Counter(r.status for done in watcher.of(topics.PROBE_ROUND) for r in done.results)
    # Leaving is no fault: nobody was refused. A busy machine may miss a timeout, and of few
    # rounds that is one in four.
    assert set(statuses) <= {ProbeStatus.OK, ProbeStatus.TIMEOUT}
    assert statuses[ProbeStatus.OK] >= 0.5 * statuses.total()


def test_agents_change_over_to_copies_when_the_skeleton_job_writes_them(
    agents: Agents, watcher: Watcher
) -> None:
    """An upgrade: lists of before, then the job of today; registrations still find who probes."""
    pairs = {"agent-a": ("a/r0", "b/r0"), "agent-b": ("b/r0", "a/r0")}
    for agent_id, pair in pairs.items():
        agents.tell(agent_id, pair)
    running = [agents.start(host, agents.configure(host)) for host in "ab"]

    def probed() -> bool:
        found = {who: {(src, dst) for src, dst, _ in ok_pairs(watcher, who)} for who in pairs}
        return found == {who: {pair} for who, pair in pairs.items()}

    def sources(child: Child) -> list[str]:
        return [event["topic"] for event in child.events("registrations.source")]

    watcher.until("both probe each other", probed)
    assert [sources(child) for child in running] == [["endpoint.v1"]] * 2
    member = TaskEndpoint(
        endpoint_id="a/r0", container_id="a", host_id="a", agent_id="agent-a", rail=0
    )
    other = replace(member, endpoint_id="b/r0", container_id="b", host_id="b", agent_id="agent-b")
    now_us = time.time_ns() // 1000
    task = Task(cluster=CLUSTER, task_id="t", submitted_at=now_us, endpoints=(member, other))
    agents.put(topics.TASK, b"t", CODEC.encode(topics.TASK, task))
    agents.start_skeleton_job()
    watcher.until(
        "both read copies",
        lambda: [sources(child) for child in running] == [["endpoint.v1", "target.v1"]] * 2,
    )
    # Another port than before: only the job's copy can tell agent-a.
    running[1].process.terminate()
    assert running[1].process.wait(WAIT_S) == 0
    watcher.records[topics.PROBE_ROUND.name].clear()
    successor = agents.start("b-again", agents.configure("b"))
    watcher.until("both probe each other again", probed)
    assert sources(successor) == []


def test_records_stand_where_java_would_put_them(agents: Agents, watcher: Watcher) -> None:
    """Keys choose partitions by murmur2; the timestamps are the broker's."""
    agents.start("a", agents.configure("a", rnics=3))
    watcher.until("registered", lambda: len(watcher.of(topics.ENDPOINT)) == 3)
    for message in watcher.messages["endpoint.v1"]:
        key = message.key()
        assert key is not None
        assert message.partition() == murmur2(key) % topics.ENDPOINT.partitions
    for message, record in zip(
        watcher.messages["endpoint.v1"], watcher.of(topics.ENDPOINT), strict=True
    ):
        kind, at_ms = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert at_ms >= record.registered_at // 1000


def murmur2(data: bytes) -> int:
    """Hash as Kafka's Java client does (org.apache.kafka.common.utils.Utils.murmur2)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF


def test_a_killed_agent_is_seen_as_losses_in_a_row(agents: Agents, watcher: Watcher) -> None:
    """No goodbye: within one round three losses per 5-tuple, and a trace for loss."""
    agents.tell("agent-a", ("a/r0", "b/r0"))
    agents.start("a", agents.configure("a"))
    victim = agents.start("b", agents.configure("b"))
    watcher.until("b is probed", lambda: bool(ok_pairs(watcher, "agent-a")))
    victim.process.kill()
    victim.process.wait()
    watcher.until(
        "a round of three losses",
        lambda: any(
            len(done.results) == 3
            and all(r.status in (ProbeStatus.REFUSED, ProbeStatus.TIMEOUT) for r in done.results)
            for done in watcher.of(topics.PROBE_ROUND, "agent-a")
        ),
    )
    watcher.until(
        "a trace for loss",
        lambda: any(
            t.cause is TraceCause.LOSS and not t.complete for t in watcher.of(topics.PATH_TRACE)
        ),
    )


def test_tcp_targets_are_probed_by_connecting(agents: Agents, watcher: Watcher) -> None:
    """A TCP endpoint registers as such and is measured by its handshake."""
    agents.tell("agent-a", ("a/r0", "b/r0"))
    agents.start("a", agents.configure("a"))
    agents.start("b", agents.configure("b", transport="tcp"))
    watcher.until("b is probed", lambda: bool(ok_pairs(watcher, "agent-a")))
    (registered,) = watcher.of(topics.ENDPOINT, "b/r0")
    assert registered.transport is TransportKind.TCP
    results = [r for done in watcher.of(topics.PROBE_ROUND) for r in done.results]
    assert {r.transport for r in results} == {TransportKind.TCP}
    assert all(r.responder_delay_ns is None for r in results)


def test_of_two_agents_with_one_id_the_later_goes_on(agents: Agents, watcher: Watcher) -> None:
    """The older yields, says so and probes no more; when the later leaves, it takes over."""
    agents.tell("agent-x", ("x/r0", "b/r0"))
    agents.start("b", agents.configure("b"))
    old = agents.start("old", agents.configure("x"))
    watcher.until("the first probes", lambda: bool(ok_pairs(watcher, "agent-x")))
    old_incarnation = watcher.of(topics.PROBE_ROUND, "agent-x")[-1].incarnation
    new = agents.start("new", agents.configure("x"))
    watcher.until(
        "the older one yields",
        lambda: any(
            h.state is AgentState.DEGRADED and "yielded" in (h.state_reason or "")
            for h in watcher.of(topics.HEARTBEAT, "agent-x")
        ),
    )
    watcher.until(
        "the later one probes",
        lambda: (
            [r.incarnation for r in watcher.of(topics.PROBE_ROUND, "agent-x")][-3:]
            == [watcher.of(topics.ENDPOINT, "x/r0")[-1].incarnation] * 3
        ),
    )
    later = watcher.of(topics.PROBE_ROUND, "agent-x")[-1].incarnation
    assert later > old_incarnation
    assert old.running

    def displaced() -> list[Heartbeat]:
        beats = watcher.of(topics.HEARTBEAT, "agent-x")
        return [beat for beat in beats if beat.probing is ProbingState.DISPLACED]

    watcher.until("it goes on saying so", lambda: len(displaced()) >= 3)
    assert {(b.incarnation, b.displaced_by) for b in displaced()} == {(old_incarnation, later)}
    new.process.terminate()
    watcher.until(
        "the older one takes over",
        lambda: watcher.of(topics.PROBE_ROUND, "agent-x")[-1].incarnation > later,
    )
    # A handful of registrations, not a war: first, second, and the taking over.
    assert len([r for r in watcher.of(topics.ENDPOINT, "x/r0") if r is not None]) <= 5


def test_nobody_stops_an_agent_by_a_forged_record(agents: Agents, watcher: Watcher) -> None:
    """A twin from the future and a list of version 2^40 are refused; the heartbeat says it."""
    agents.tell("agent-b", ("b/r0", "a/r0"))
    agents.tell("agent-a", ("a/r0", "b/r0"))
    agents.start("a", agents.configure("a"))
    agents.start("b", agents.configure("b"))
    watcher.until("a probes b", lambda: bool(ok_pairs(watcher, "agent-a")))
    own = watcher.of(topics.ENDPOINT, "a/r0")[-1]
    future_ns = time.time_ns() + 23 * 3_600 * 10**9
    forged = replace(own, port=9, incarnation=future_ns)
    agents.put(topics.ENDPOINT, b"a/r0", CODEC.encode(topics.ENDPOINT, forged))
    agents.tell("agent-a", version=2**40)

    def latest() -> Heartbeat:
        beat: Heartbeat = watcher.of(topics.HEARTBEAT, "agent-a")[-1]
        return beat

    watcher.until(
        "both are refused",
        lambda: (latest().registrations_refused, latest().lists_refused) == (1, 1),
    )
    beat = latest()
    assert beat.list_refusal == "IMPLAUSIBLE_VERSION"
    assert (beat.probing, beat.pinglist_version, beat.flows_active) == (ProbingState.PROBING, 1, 1)
    assert beat.state is AgentState.DEGRADED
    # Its peers learn the right address again.
    watcher.until(
        "a registers again", lambda: watcher.of(topics.ENDPOINT, "a/r0")[-1].port == own.port
    )
    rounds = len(watcher.of(topics.PROBE_ROUND, "agent-a"))
    watcher.until(
        "a goes on probing", lambda: len(watcher.of(topics.PROBE_ROUND, "agent-a")) > rounds + 2
    )
    agents.tell("agent-a", version=2)
    watcher.until("an empty list is followed", lambda: latest().pinglist_version == 2)
    beat = latest()
    assert (beat.probing, beat.list_refusal) == (ProbingState.EMPTY_LIST, None)
    assert beat.probing_reason == "ping list version 2: it has no targets"


def test_an_agent_learns_its_clocks_offset_from_confirmations(
    agents: Agents, watcher: Watcher
) -> None:
    """The broker of this host has the same clock: the offset is within its error of zero."""
    agents.start("a", agents.configure("a"))

    def latest() -> Heartbeat | None:
        beats = watcher.of(topics.HEARTBEAT, "agent-a")
        return beats[-1] if beats else None

    watcher.until(
        "the offset is known",
        lambda: (beat := latest()) is not None and beat.clock_offset_ns is not None,
    )
    first = watcher.of(topics.HEARTBEAT, "agent-a")[0]
    assert first.clock_offset_ns is None
    assert "confirmations in the last minute" in (first.clock_offset_reason or "")
    beat = latest()
    assert beat is not None
    assert beat.clock_offset_ns is not None
    assert beat.clock_error_ns is not None
    assert beat.clock_offset_reason is None
    assert abs(beat.clock_offset_ns) <= beat.clock_error_ns < 1_000 * MS_NS


def test_poison_and_foreign_lists_are_refused_and_told(agents: Agents, watcher: Watcher) -> None:
    """Garbage goes to the dead letters with its origin; another cluster's list is refused."""
    agents.put(topics.PINGLIST, b"agent-a", b"no ping list at all")
    agents.put(topics.PINGLIST, b"agent-a", os.urandom(MAX_MESSAGE_BYTES - 200))
    agents.put(topics.ENDPOINT, b"b/r7", b"\xc3\x01" + bytes(30))
    agents.tell("agent-a", ("a/r0", "b/r0"), cluster="elsewhere")
    agents.start("b", agents.configure("b"))
    agents.start("a", agents.configure("a"))
    letters = Watcher(agents.settings, topics.PINGLIST, topics.ENDPOINT, dlq=True)
    letters.until("poison of the list", lambda: len(letters.messages["pinglist.v1.dlq"]) == 2)
    letters.until("poison of the endpoint", lambda: bool(letters.messages["endpoint.v1.dlq"]))
    letter = letters.messages["pinglist.v1.dlq"][0]
    headers = dict(letter.headers() or [])
    assert letter.value() == b"no ping list at all"
    assert letter.key() == b"agent-a"
    # An agent keeps little of a large one.
    large = letters.messages["pinglist.v1.dlq"][1]
    assert len(large.value() or b"") == KEPT_BYTES
    assert dict(large.headers() or [])[WHOLE_BYTES_HEADER] == b"%d" % (MAX_MESSAGE_BYTES - 200)
    assert headers["__connect.errors.topic"] == b"pinglist.v1"
    assert headers["__connect.errors.connector.name"] == b"agent"
    letters.close()
    watcher.until(
        "the refusal is told",
        lambda: any(
            h.state is AgentState.DEGRADED
            and "OTHER_CLUSTER" in (h.state_reason or "")
            and h.records_undecodable == 3
            for h in watcher.of(topics.HEARTBEAT, "agent-a")
        ),
    )
    assert not watcher.of(topics.PROBE_ROUND, "agent-a")
    agents.tell("agent-a", ("a/r0", "b/r0"), version=3)
    watcher.until("a good list is taken", lambda: bool(ok_pairs(watcher, "agent-a")))
    agents.tell("agent-a", version=2)
    seen = len(watcher.of(topics.HEARTBEAT, "agent-a"))
    watcher.until("time", lambda: len(watcher.of(topics.HEARTBEAT, "agent-a")) >= seen + 2)
    last = watcher.of(topics.HEARTBEAT, "agent-a")[-1]
    assert (last.pinglist_version, last.targets_active) == (3, 1)


def test_what_is_out_of_bounds_is_refused_and_probing_goes_on(
    agents: Agents, watcher: Watcher
) -> None:
    """An empty list of the greatest version, and registrations of the agent's endpoint to come."""
    agents.start("b", agents.configure("b"))
    agents.start("a", agents.configure("a"))
    agents.tell("agent-a", ("a/r0", "b/r0"), version=3)
    watcher.until("a good list is taken", lambda: bool(ok_pairs(watcher, "agent-a")))
    agents.tell("agent-a", version=2**62)
    own = watcher.of(topics.ENDPOINT, "a/r0")[-1]
    for ahead_ns in (23 * 3_600 * 10**9, 2**61):
        later = replace(own, agent_id="agent-z", incarnation=own.incarnation + ahead_ns)
        agents.put(topics.ENDPOINT, b"a/r0", CODEC.encode(topics.ENDPOINT, later))
    watcher.until(
        "the refusals are told",
        lambda: watcher.of(topics.HEARTBEAT, "agent-a")[-1].records_undecodable == 3,
    )
    seen = len(watcher.of(topics.PROBE_ROUND, "agent-a"))
    watcher.until("more rounds", lambda: len(watcher.of(topics.PROBE_ROUND, "agent-a")) > seen + 3)
    last = watcher.of(topics.HEARTBEAT, "agent-a")[-1]
    assert (last.pinglist_version, last.targets_active) == (3, 1)


EARLY_US = 20_000


def test_agents_do_not_start_their_rounds_together(agents: Agents, watcher: Watcher) -> None:
    """Each at its own part of the second, the same in every second."""
    hosts = ("a", "b", "c", "d")
    for host in hosts:
        peer = hosts[(hosts.index(host) + 1) % len(hosts)]
        agents.tell(f"agent-{host}", (f"{host}/r0", f"{peer}/r0"))
        agents.start(host, agents.configure(host))
    watcher.until(
        "five rounds each",
        lambda: all(len(watcher.of(topics.PROBE_ROUND, f"agent-{h}")) >= 5 for h in hosts),
    )
    for host in hosts:
        # Around the clock: what is due at the end of a second may begin in the next.
        late_us = [
            (r.started_at - expected_us(f"agent-{host}") + EARLY_US) % 10**6 - EARLY_US
            for r in watcher.of(topics.PROBE_ROUND, f"agent-{host}")
        ]
        # A busy machine wakes late, never early, and not late each time.
        assert min(late_us) < 20_000, (host, late_us)
    assert len({expected_us(f"agent-{host}") // 20_000 for host in hosts}) == len(hosts)


def expected_us(agent_id: str) -> int:
    """Return the part of the second that an id's hash says, computed anew."""
    mixed = crc32(agent_id.encode()) * 2_654_435_769 % 2**32
    return mixed * 10**6 // 2**32
