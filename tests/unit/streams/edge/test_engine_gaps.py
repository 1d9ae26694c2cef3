"""Outputs that a broker took without those before them: each is there once in the end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from confluent_kafka import TopicPartition

from schemas import topics
from schemas.codec import Codec
from schemas.records import PathWindow
from schemas.topics import Topic
from schemas.units import MS_NS
from streams.config import REFRESH_STEP_NS
from streams.core.feed import Feed, LogMessage
from streams.core.outputs import window_identity
from streams.edge.engine import Batch
from streams.edge.session import LoggedOutput, LoggedOutputs, Session
from tests.unit.streams.edge.test_engine_commits import Broker, engine_of
from tests.unit.streams.worlds import BEGIN, START_S, World, machine

CODEC = Codec()
BATCH = 100
OUTPUTS = (topics.PROBE_WINDOW, topics.ANOMALY)
FOREVER_MS = 2**53
# Agents may be hours behind.
ARRIVED_S = START_S + 3 * 3600


def arrival_ms(offset: int) -> int:
    """Return when a round arrives."""
    return (ARRIVED_S + offset) * 1000


def identity(topic: Topic, value: bytes) -> str:
    """Return what a record says."""
    record = CODEC.decode(topic, value)
    return window_identity(record) if isinstance(record, PathWindow) else record.anomaly_id


@dataclass
class Log(Broker):
    """Keeps what it is sent, and confirms it when asked."""

    kept: dict[str, list[str]] = field(default_factory=dict)

    def send(self, topic: str, value: bytes, /, **options: Any) -> None:
        """Keep a message."""
        self.kept.setdefault(topic, []).append(identity(topics.BY_NAME[topic], value))
        super().send(topic, value, **options)

    def send_all(self, topic: str, _keys: Any, values: Any, **options: Any) -> None:
        """Keep many."""
        for value in values[:-1]:
            self.send(topic, value)
        self.send(topic, values[-1], confirmed=options["confirmed"])

    def lose(self, count: dict[str, int]) -> None:
        """Be without the first ones of each topic."""
        self.kept = {topic: all_[count[topic] :] for topic, all_ in self.kept.items()}

    def logged(self, rounds_end: int, last_ms: int = FOREVER_MS) -> LoggedOutputs:
        """Return what a new owner finds from the beginning on, of so many rounds."""
        logged = LoggedOutputs.of(
            LoggedOutput(name, last_ms, offset)
            for topic in OUTPUTS
            for offset, name in enumerate(self.kept.get(topic.name, []))
        )
        logged.rounds_end = rounds_end
        return logged

    def successor(self) -> "Log":
        """Return what holds the same, of which nothing is on its way."""
        confirmed = {topic: len(names) for topic, names in self.kept.items()}
        return Log(kept={t: list(names) for t, names in self.kept.items()}, confirmed=confirmed)


@dataclass
class Worker:
    """An engine that holds the partition from the beginning on, and what it has committed."""

    log: Log
    rounds: list[bytes]
    rounds_end: int = 0
    last_ms: int = FOREVER_MS
    committed: list[TopicPartition] = field(default_factory=list)
    _take: Callable[[Batch], None] = field(init=False)
    _tick: Callable[[], None] = field(init=False)

    def __post_init__(self) -> None:
        """Take the partition over, with what is found."""
        held = machine()
        session = Session(
            partition=0, epoch=1, machine=held, feed=Feed(held, CODEC), settled=BEGIN,
            logged=self.log.logged(self.rounds_end, self.last_ms),
        )  # fmt: skip
        engine = engine_of(self.log, lambda offsets, _wait: self.committed.extend(offsets))
        engine.take_over([session])
        self._take, self._tick = engine.process, lambda: engine.tick({})

    def process(self, *numbers: int) -> None:
        """Take these batches, and wait for what they send."""
        for number in numbers:
            start = number * BATCH
            messages = [
                LogMessage(value, offset, arrival_ms(offset))
                for offset, value in enumerate(self.rounds[start:][:BATCH], start)
            ]
            self._take(Batch(number, {0: 1}, {0: start}, {0: cast(Any, messages)}))
        self._tick()


def made_rounds() -> list[bytes]:
    """Return the rounds of ten minutes."""
    made = World(flows=2, base_loss=0.3).rounds(6 * BATCH)
    return [CODEC.encode_datum(topics.PROBE_ROUND, datum) for datum in made]


def test_what_was_written_without_what_was_before_it_is_there_once() -> None:
    """A worker's first outputs are lost, later ones are not, and its successor is killed, too."""
    rounds = made_rounds()
    undisturbed = Worker(Log(), rounds)
    undisturbed.process(*range(6))
    first = Worker(Log(), rounds)
    first.process(0, 1)
    lost = {topic: len(names) for topic, names in first.log.kept.items()}
    first.process(2, 3)
    first.log.lose(lost)
    second = Worker(first.log.successor(), rounds, rounds_end=len(rounds))
    second.process(0, 1)
    # Between what it has found and what it has sent there is no place to go on from.
    assert [place.offset for place in second.committed] == [0]
    third = Worker(second.log.successor(), rounds, rounds_end=len(rounds))
    third.process(0, 1, 2)
    assert [place.offset for place in third.committed] == [0]
    third.process(3, 4, 5)
    for topic, names in undisturbed.log.kept.items():
        assert sum(lost.values()) > 10 < len(names)
        assert sorted(third.log.kept[topic]) == sorted(names)
    assert third.committed[-1].offset == len(rounds)


def test_what_is_never_made_again_is_not_waited_for_beyond_the_rounds_it_was_made_of() -> None:
    """Windows of other settings, say: from there on there is a place to go on from."""
    rounds = made_rounds()
    log = Log(kept={topics.PROBE_WINDOW.name: ["of other settings"]})
    worker = Worker(log.successor(), rounds, rounds_end=3 * BATCH)
    worker.process(0, 1)
    assert [place.offset for place in worker.committed] == [0]
    worker.process(2)
    assert [place.offset for place in worker.committed] == [0, 3 * BATCH]


def test_nor_is_it_waited_for_when_rounds_are_later_than_it() -> None:
    """The backlog may be hours long, and whoever takes over would begin anew.

    What is published of a round is there after the round's arrival, and a refresh later at most.
    """
    rounds = made_rounds()
    log = Log(kept={topics.PROBE_WINDOW.name: ["of other settings"]})
    refresh_ms = REFRESH_STEP_NS // MS_NS
    last_ms = arrival_ms(2 * BATCH - 1) - refresh_ms
    worker = Worker(log.successor(), rounds, rounds_end=10**9, last_ms=last_ms)
    worker.process(0)
    worker.process(1)
    assert [place.offset for place in worker.committed] == [0]
    worker.process(2)
    assert [place.offset for place in worker.committed] == [0, 3 * BATCH]
    worker = Worker(log.successor(), rounds, rounds_end=10**9, last_ms=last_ms - 1)
    worker.process(0)
    assert [place.offset for place in worker.committed] == [0]
    worker.process(1)
    assert [place.offset for place in worker.committed] == [0, 2 * BATCH]
