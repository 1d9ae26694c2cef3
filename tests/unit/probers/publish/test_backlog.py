"""What waits for Kafka: the oldest records go first, states do not go at all."""

import random
from dataclasses import replace

from probers.publish.backlog import Backlog, Message


def record(number: int, size: int = 100) -> Message:
    """Return a record of that many bytes."""
    return Message(
        topic="p.rounds",
        kind="rounds",
        key=b"agent",
        value=number.to_bytes(4) + bytes(size - 9),
        timestamp_ms=number,
        results=1,
    )


def state(key: bytes, number: int) -> Message:
    """Return the state of a key."""
    return Message(
        topic="p.endpoint", kind="endpoint", key=key, value=None, timestamp_ms=number, state=True
    )


def drain(backlog: Backlog) -> list[int]:
    """Take all; return their timestamps."""
    taken = []
    while (message := backlog.next_message()) is not None:
        taken.append(message.timestamp_ms)
    return taken


def test_the_oldest_records_are_dropped() -> None:
    """Room for three: of five, the first two go, the last three stay in order."""
    backlog = Backlog(300)
    dropped = [d.timestamp_ms for n in range(5) for d in backlog.enqueue(record(n))]
    assert dropped == [0, 1]
    assert drain(backlog) == [2, 3, 4]
    assert backlog.size_bytes == 0


def test_a_large_record_drops_as_many_as_it_needs_and_an_impossible_one_itself() -> None:
    """What can never fit does not empty the queue."""
    backlog = Backlog(300)
    for number in range(3):
        backlog.enqueue(record(number))
    assert [d.timestamp_ms for d in backlog.enqueue(record(9, 250))] == [0, 1, 2]
    assert [d.timestamp_ms for d in backlog.enqueue(record(10, 301))] == [10]
    assert drain(backlog) == [9]


def test_of_a_state_the_latest_is_kept_goes_first_and_is_never_dropped() -> None:
    """Registrations and heartbeats survive an outage as their present value."""
    backlog = Backlog(300)
    backlog.enqueue(record(1))
    backlog.enqueue(state(b"a", 2))
    backlog.enqueue(state(b"b", 3))
    backlog.enqueue(state(b"a", 4))
    for number in range(5, 9):
        backlog.enqueue(record(number))
    assert drain(backlog) == [3, 4, 6, 7, 8]


def test_the_next_message_is_one_of_those_that_are_wanted() -> None:
    """A state can pass records that may not go out, and the other way round."""
    backlog = Backlog(300)
    backlog.enqueue(record(1))
    backlog.enqueue(state(b"a", 2))
    first = backlog.next_message(states=False)
    assert first is not None
    assert first.timestamp_ms == 1
    assert backlog.next_message(states=False) is None
    backlog.enqueue(record(3))
    first = backlog.next_message(records=False)
    assert first is not None
    assert first.timestamp_ms == 2
    assert backlog.next_message(records=False) is None
    assert drain(backlog) == [3]


def test_what_could_not_be_handed_over_comes_first_again() -> None:
    """A record returns to the front; a state only when none newer waits."""
    backlog = Backlog(1_000)
    for number in range(3):
        backlog.enqueue(record(number))
    first = backlog.next_message()
    assert first is not None
    backlog.put_back(first)
    backlog.enqueue(state(b"a", 10))
    backlog.put_back(state(b"a", 9))
    backlog.put_back(state(b"b", 8))
    assert drain(backlog) == [8, 10, 0, 1, 2]


def test_what_waits_behind_others_takes_less_room_and_comes_out_as_it_was() -> None:
    """Room for four rounds as they are holds seven, in order, unchanged."""
    values = [bytes(random.Random(n).choices(b"abcd", k=3_000)) for n in range(7)]
    backlog = Backlog(12_000)
    made = [replace(record(n), value=value) for n, value in enumerate(values)]
    assert [d for message in made for d in backlog.enqueue(message)] == []
    assert backlog.size_bytes < 12_000
    first = backlog.next_message()
    assert first is not None
    backlog.put_back(first)
    assert [backlog.next_message() for _ in made] == made
    assert backlog.size_bytes == 0
