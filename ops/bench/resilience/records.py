"""A valid record with one absurd value, of each field and topic: all processes go on and report."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final, Self

from confluent_kafka import Producer

from ops.bench.resilience.mutations import Mutation, mutations, shifted
from ops.bench.resilience.stage import BYSTANDER, LIFE_SIGNS, SHAPE, Cut, Stage
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.log.watch import WatchedRecord
from ops.running.pipeline import LOCALIZER, SKELETON, WORKER
from schemas.codec import Codec, to_datum
from schemas.kafka.options import producer_options
from schemas.topics import (
    ANOMALY,
    FAULT_EVENT,
    MAX_MESSAGE_BYTES,
    PINGLIST,
    PROBE_WINDOW,
    SKELETON_TOPIC,
    TASK,
    TOPICS,
    Topic,
)

MUTED_S: Final = 5.0
FRAME_BYTES: Final = 4_096
# What a process reads at its start: mutated records reach it by a restart.
READ_AT_START: Final = {
    PROBE_WINDOW: WORKER,
    ANOMALY: WORKER,
    SKELETON_TOPIC: SKELETON,
    PINGLIST: SKELETON,
    FAULT_EVENT: LOCALIZER,
}
# A trial takes half a minute, a new stage a minute.
BISECTIONS: Final = 8
STAGE: Final = "resilience"
FORGED_TASK: Final = "job2"
FLUSH_S: Final = 60.0
# Until all processes have read them.
SPREAD_S: Final = 1.0
MOST_SHOWN: Final = 10


@dataclass(slots=True)
class Trial:
    """What came of some mutated records.

    Attributes
    ----------
    cut
        The link that was cut afterwards.
    names
        Of the mutated records.
    ended, hung
        Processes that ended, or were not ready after a restart; that gave no sign of life.
    silent
        Agents that neither probe nor say why.
    """

    cut: Cut
    names: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    @property
    def muted(self) -> bool:
        """Whether the cut was not reported in time."""
        return self.cut.delay_s is None or self.cut.delay_s > MUTED_S

    @property
    def good(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.ended or self.hung or self.silent or self.muted)

    def __str__(self) -> str:
        found = {"ended": self.ended, "hung": self.hung, "silent": self.silent}
        wrong = [f"{what}: {' '.join(names)}" for what, names in found.items() if names]
        return "; ".join([str(self.cut), *wrong])


class Forger:
    """Publishes mutated records of one topic on a stage, and puts the original back."""

    def __init__(self, stage: Stage, topic: Topic) -> None:
        self._topic = topic
        self._codec = Codec(bounded=False)
        self._name = stage.settings.topic(topic.name)
        limit = {"message.max.bytes": 2 * MAX_MESSAGE_BYTES}
        self._producer = Producer(producer_options(stage.settings, fixed=limit))
        self._originals = [_original(seen) for seen in stage.records_of(topic)]

    def publish(self, chosen: Sequence[str] | None) -> list[str]:
        """Publish mutated records, all or those of some names; return the names.

        Each has the original's key and partition, and is dated now.
        """
        names = []
        for seen in self._originals:
            by_us = time.time_ns() // 1_000 - seen.timestamp_ms * 1_000
            for one in mutations(self._topic, shifted(to_datum(seen.record), by_us)):
                name = f"{one} of {seen.key}"
                if chosen is not None and name not in chosen:
                    continue
                value = self._encoded(one)
                if value is not None:
                    self._produce(seen, value)
                    names.append(name)
        self._producer.flush(FLUSH_S)
        return names

    def put_back(self, published: int) -> None:
        """Publish the originals again, as the newest of their keys."""
        for seen in self._originals:
            datum = to_datum(seen.record)
            if "version" in datum:
                # Readers keep the greatest: what they accepted was counted up.
                datum["version"] += published + 1
            gone = self._topic is TASK
            self._produce(seen, None if gone else self._codec.encode_datum(self._topic, datum))
        self._producer.flush(FLUSH_S)

    def _encoded(self, one: Mutation) -> bytes | None:
        try:
            value = self._codec.encode_datum(self._topic, one.datum)
        except (ValueError, OverflowError, TypeError):
            return None  # no encoder writes it
        return value if len(value) < MAX_MESSAGE_BYTES - FRAME_BYTES else None

    def _produce(self, seen: WatchedRecord, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(self._name, value, key=seen.key, partition=seen.partition)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)


def _original(seen: WatchedRecord) -> WatchedRecord:
    """Return the record to mutate; of a task another one, with the bystander's endpoints.

    The lab has one task, and whoever rewrites that ends it for all hosts.
    """
    if seen.topic != TASK.name:
        return seen
    task = seen.record
    own = tuple(e for e in task.endpoints if e.agent_id == SHAPE.agent_ids()[BYSTANDER])
    forged = replace(task, task_id=FORGED_TASK, endpoints=own)
    return replace(seen, key=FORGED_TASK, record=forged)


def trial(stage: Stage, topic: Topic | None, chosen: Sequence[str] | None = None) -> Trial:
    """Publish mutated records of a topic (None: none, but restart all), then cut a link."""
    since, since_s = stage.signs(), time.monotonic()
    forger = None if topic is None else Forger(stage, topic)
    names = [] if forger is None else forger.publish(chosen)
    stage.listen(SPREAD_S)
    if topic is None:
        late = stage.restart(tuple(LIFE_SIGNS))
    else:
        late = stage.restart([READ_AT_START[topic]]) if topic in READ_AT_START else []
    cut = stage.cut()
    found = Trial(
        cut=cut, names=names, hung=stage.hung(since, since_s), silent=stage.mute_agents(),
        ended=sorted({*stage.ended(), *late}),
    )  # fmt: skip
    if forger is not None:
        forger.put_back(len(names))
    return found


class Trials:
    """Trials on one stage for as long as nothing goes wrong on it."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._stack = ExitStack()
        self._stage: Stage | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, topic: Topic | None, chosen: Sequence[str] | None = None) -> Trial:
        """Return what came of a trial; after a bad one there is a new stage."""
        if self._stage is None:
            self._stage = self._stack.enter_context(Stage(STAGE))
        found = trial(self._stage, topic, chosen)
        what = "all processes restarted" if topic is None else topic.name
        self._say(f"{what}: {len(found.names)} mutated records; {found}")
        if not found.good:
            self._stack.close()
            self._stage = None
        return found

    def culprits(self, topic: Topic, names: Sequence[str]) -> Sequence[str]:
        """Return the fewest of the mutated records that do it again, as far as trials go.

        Empty: not even all of them do it again, on a new stage.
        """
        if self.run(topic, names).good:
            return ()
        for _ in range(BISECTIONS):
            if len(names) < 2:
                break
            half, rest = names[: len(names) // 2], names[len(names) // 2 :]
            names = rest if self.run(topic, half).good else half
        return names


def records(runs: int, say: Say) -> list[Figure]:
    """Mutate every field of every topic; after each topic's records cut a link.

    What goes wrong is tried again on a new stage: a busy machine may delay a verdict.
    """
    del runs  # All fields, once.
    found: list[Trial] = []
    again: list[Trial] = []
    with Trials(say) as trials:
        for topic in (*TOPICS, None):
            found.append(trials.run(topic))
            if found[-1].good:
                continue
            names = found[-1].names
            culprits = () if topic is None else trials.culprits(topic, names)
            if topic is None or culprits:
                again.append(found[-1])
            for name in culprits[:MOST_SHOWN]:
                say(f"  does it: {name}")
    tried = float(sum(len(t.names) for t in found))
    delays_s = [t.cut.delay_s for t in found if t.cut.delay_s is not None]
    what = f"mutated records of {len(TOPICS)} topics"
    return [
        figure(f"{what}: tried", [tried]),
        figure(f"{what}: processes ended", [_total(found, "ended")], "", 0.0),
        figure(f"{what}: processes hung", [_total(found, "hung")], "", 0.0),
        figure(f"{what}: agents that stopped without a word", [_total(found, "silent")], "", 0.0),
        figure(f"{what}: cuts afterwards not reported within {MUTED_S:.0f} s, also when repeated",
               [float(sum(t.muted for t in again))], "", 0.0),
        figure(f"{what}: cuts afterwards not reported within {MUTED_S:.0f} s, at first",
               [float(sum(t.muted for t in found))]),
        figure(f"{what}: cut afterwards → verdict, worst", delays_s, "s", None, worst=True),
    ]  # fmt: skip


def _total(trials: Sequence[Trial], what: str) -> float:
    return float(sum(len(getattr(t, what)) for t in trials))


PARTS: Final[Parts] = {"records": records}
