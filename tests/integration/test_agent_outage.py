"""The broker is killed and comes back: what agents keep, drop, count and say."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.broker.embedded import EmbeddedKafka
from ops.running.processes import ProcessGroup
from ops.topics.admin import apply_topics
from probers.clock import SystemClock
from probers.publish.publisher import Publisher
from schemas import topics
from schemas.enums import AgentState, ProbeStatus
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from schemas.records import ProbeRound
from tests.integration.agent_harness import CODEC, Agents, Watcher

pytestmark = pytest.mark.broker

QUEUE_BYTES = 20_000


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    """Start a broker of this test's own, to be killed."""
    with EmbeddedKafka(announce=False) as kafka:
        apply_topics(KafkaSettings(bootstrap=kafka.bootstrap))
        yield kafka


def a_round(seq: int) -> ProbeRound:
    """Return a round without results."""
    return ProbeRound(
        cluster="c1",
        agent_id="lonely",
        host_id="h",
        incarnation=1,
        round_seq=seq,
        started_at=seq,
        interval_ns=10**9,
        results=(),
    )


def feed(publisher: Publisher, first: int, count: int) -> None:
    """Publish rounds, serving the producer as the agent's loop does."""
    for seq in range(first, first + count):
        publisher.publish_round("lonely", a_round(seq), time.time_ns())
        publisher.poll()
        time.sleep(0.002)


def settle(publisher: Publisher, count: int) -> None:
    """Serve the producer until so many rounds are acknowledged or dropped."""
    deadline = time.monotonic() + 60
    while publisher.counts.rounds_sent + publisher.counts.rounds_dropped < count:
        assert time.monotonic() < deadline, publisher.counts
        publisher.poll()
        time.sleep(0.01)


def test_after_an_outage_the_latest_rounds_arrive_and_all_are_accounted_for(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """Publisher and agents through one outage.

    The publisher: everything before, the latest of the outage in one piece, everything
    after, in order, none twice; sent plus dropped is all. The agents: they say that the
    broker was away and what they dropped, keep their list, and go on.
    """
    settings = KafkaSettings(bootstrap=broker.bootstrap)
    publisher = Publisher(
        settings,
        CODEC,
        SystemClock(),
        client_id="lonely",
        queue_bytes=QUEUE_BYTES,
        log=EventLog("test"),
    )
    feed(publisher, 0, 100)
    settle(publisher, 100)
    assert not publisher.broker_away()
    with ProcessGroup(tmp_path / "logs") as group:
        agents = Agents(settings, tmp_path, group)
        pairs = [(f"a/r{s}", f"b/r{d}") for s in range(4) for d in range(4)]
        agents.tell("agent-a", *pairs, flows=4)
        agents.start("a", configure_busy(agents))
        agents.start("b", agents.configure("b", rnics=4))
        watcher = Watcher(agents.settings, topics.PROBE_ROUND, topics.HEARTBEAT)
        watcher.until("probing", lambda: len(watcher.of(topics.PROBE_ROUND, "agent-a")) >= 5)
        broker.kill()
        feed(publisher, 100, 1_500)
        live_through(group, "a", seconds=11)
        assert publisher.broker_away()
        assert publisher.counts.rounds_dropped > 800
        broker.restart()
        settle(publisher, 1_600)
        feed(publisher, 1_600, 50)
        settle(publisher, 1_650)
        away_round = max(r.round_seq for r in watcher.of(topics.PROBE_ROUND, "agent-a"))
        watcher.until(
            "the agent goes on and tells what it dropped",
            lambda: (
                any(
                    h.state is AgentState.DEGRADED
                    and "records dropped" in (h.state_reason or "")
                    and h.rounds_dropped > 0
                    for h in watcher.of(topics.HEARTBEAT, "agent-a")
                )
                and any(
                    "broker was away for" in (h.state_reason or "")
                    for h in watcher.of(topics.HEARTBEAT, "agent-a")
                )
                and not watcher.of(topics.HEARTBEAT, "agent-a")[-1].broker_away
            ),
            timeout_s=60,
        )
        last = watcher.of(topics.HEARTBEAT, "agent-a")[-1]
        assert last.pinglist_version == 1
        assert last.targets_active == 16
        # The broker's start takes the CPU from those who answer: probes may miss their time.
        watcher.until("probes are answered", lambda: answered_share(watcher, away_round) >= 0.9)
        check_agent_rounds(watcher, away_round)
        check_publisher(watcher, publisher)
        watcher.close()
        group.check()
        log = group.child("a").log_tail(1_000)
        assert log.count("broker.away") == log.count("broker.back") >= 1


def configure_busy(agents: Agents) -> Path:
    """Return settings of an agent that fills a small queue within seconds."""
    return agents.configure(
        "a", rnics=4, interval_ms=100, spread_ms=50, queue_kbytes=64, counters_hz=50
    )


def live_through(group: ProcessGroup, name: str, seconds: float) -> None:
    """Let the outage last, and see that the agent lives through it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        group.check()
        assert group.child(name).running
        time.sleep(0.1)


def answered_share(watcher: Watcher, before: int) -> float:
    """Return how many probes of the last rounds after one were answered; 0 if there is none yet."""
    rounds = [r for r in watcher.of(topics.PROBE_ROUND, "agent-a") if r.round_seq > before][-10:]
    statuses = Counter(r.status for done in rounds for r in done.results)
    return statuses[ProbeStatus.OK] / max(1, statuses.total())


def check_agent_rounds(watcher: Watcher, before: int) -> None:
    """Check that rounds of the outage's end and after are there, none twice."""
    rounds = watcher.of(topics.PROBE_ROUND, "agent-a")
    seqs = [r.round_seq for r in rounds]
    assert len(seqs) == len(set(seqs))
    assert seqs == sorted(seqs)
    assert seqs[-1] > before


def check_publisher(watcher: Watcher, publisher: Publisher) -> None:
    """Check that what arrived is the beginning, one piece up to the end, and what was counted."""
    watcher.until(
        "all that was acknowledged",
        lambda: len(watcher.of(topics.PROBE_ROUND, "lonely")) >= publisher.counts.rounds_sent,
    )
    seqs = [r.round_seq for r in watcher.of(topics.PROBE_ROUND, "lonely")]
    assert seqs == sorted(set(seqs))
    assert len(seqs) == publisher.counts.rounds_sent
    assert seqs[:100] == list(range(100))
    assert seqs[-1] == 1_649
    tail = seqs[100:]
    # Apart from what was in flight when the broker died, one piece without a gap.
    assert tail[-1] - tail[40] == len(tail) - 41
    assert publisher.counts.rounds_sent + publisher.counts.rounds_dropped == 1_650
