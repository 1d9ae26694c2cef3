"""The publisher without any broker: bounded, never blocking, and honest about it."""

import time

import pytest

from probers.clock import SystemClock
from probers.publish.publisher import WINDOW_MESSAGES, WINDOW_STATES, Publisher
from schemas import topics
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from schemas.records import ProbeRound

ROOM_BYTES = 4_000


@pytest.fixture
def publisher() -> Publisher:
    """Return a publisher with little room."""
    return publisher_with(ROOM_BYTES)


def publisher_with(queue_bytes: int) -> Publisher:
    """Return a publisher whose broker does not exist."""
    return Publisher(
        # Port 1 on loopback: nobody listens there.
        KafkaSettings(bootstrap="127.0.0.1:1"),
        Codec(),
        SystemClock(),
        client_id="agent-a",
        queue_bytes=queue_bytes,
        log=EventLog("test"),
    )


def a_round(seq: int) -> ProbeRound:
    """Return an empty round."""
    return ProbeRound(
        cluster="c1",
        agent_id="agent-a",
        host_id="h",
        incarnation=1,
        round_seq=seq,
        started_at=1,
        interval_ns=10**9,
        results=(),
    )


def test_an_outage_costs_neither_time_nor_memory_and_every_drop_is_counted(
    publisher: Publisher,
) -> None:
    """5,000 rounds into a dead broker: quick, bounded; kept and dropped add up."""
    begin = time.monotonic()
    for seq in range(5_000):
        publisher.publish_round("agent-a", a_round(seq), seq * 10**9)
        publisher.poll()
    # A second or less; a wait for the broker would take minutes.
    assert time.monotonic() - begin < 30
    counts = publisher.counts
    assert counts.rounds_sent == 0
    assert counts.rounds_dropped > 4_000
    assert counts.rounds_dropped + publisher.waiting == 5_000
    assert publisher.waiting <= ROOM_BYTES // 40 + WINDOW_MESSAGES


def test_a_broker_that_is_away_is_noticed(publisher: Publisher) -> None:
    """Within seconds, from librdkafka's own word."""
    publisher.publish_round("agent-a", a_round(0), 10**9)
    end = time.monotonic() + 60
    while not publisher.broker_away() and time.monotonic() < end:
        publisher.poll()
        time.sleep(0.01)
    assert publisher.broker_away()


def test_closing_does_not_wait_for_a_broker_that_is_away(publisher: Publisher) -> None:
    """A container that has to stop stops; what was not sent is told."""
    publisher.publish_round("agent-a", a_round(0), 10**9)
    begin = time.monotonic()
    assert publisher.close(200_000_000) == 1
    # What it is given, and slack for a busy machine; a message would wait for minutes.
    assert time.monotonic() - begin < 20


def test_states_are_not_multiplied_by_an_outage(publisher: Publisher) -> None:
    """A hundred thousand heartbeats wait as a handful."""
    for seq in range(1_000):
        publisher.publish_state(topics.ENDPOINT, "w0/r0", None, seq)
    assert publisher.waiting <= WINDOW_STATES + 1


def test_a_state_does_not_wait_for_records_on_their_way() -> None:
    """Of two endpoints and more rounds than may be on their way, all but the last rounds are."""
    publisher = publisher_with(100 * ROOM_BYTES)
    for seq in range(2 * WINDOW_MESSAGES):
        publisher.publish_round("agent-a", a_round(seq), seq * 10**9)
    for name in ("w0/r0", "w0/r1"):
        publisher.publish_state(topics.ENDPOINT, name, None, 1)
    assert len(publisher._in_flight) == WINDOW_MESSAGES + 2
    assert publisher.waiting == 2 * WINDOW_MESSAGES + 2
