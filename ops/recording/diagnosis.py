"""Diagnoses a recording: the pipeline's own cores over its files, without a broker."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

import numpy as np

from arena.detecting import PublishedAnomaly
from arena.direct import Localization
from localizer.config import CoreConfig
from localizer.facts.heartbeats import HeartbeatReader
from localizer.network.trace_reader import Places, TraceReader
from localizer.network.traces import FlowTrace
from ops.log.decoding import LEAST
from ops.recording.container import DamageError
from ops.recording.detecting import Detected, MarkedSilence, batches
from ops.recording.detection_process import DetectionTask, Stop, detected_rounds
from ops.recording.hangs import hang_items, hangs_of
from ops.recording.order import Slot, between, slots
from ops.recording.rounds import RoundFile
from ops.recording.source import Item, Source
from schemas.bounds import MAX_ARRIVAL_MS
from schemas.codec import Codec, to_datum
from schemas.columns.arrays import Int64s
from schemas.enums import FaultLifecycle
from schemas.process import memory
from schemas.records import FaultEvent
from schemas.topics import (
    COMPONENT_STATE,
    ENDPOINT,
    HEARTBEAT,
    OVERLAY_FLOWS,
    PATH_TRACE,
    PINGLIST,
    PROBE_ROUND,
    TASK,
    TOPICS,
    TOPOLOGY,
    Topic,
)
from schemas.units import MS_NS
from streams.config import DetectionConfig

# Of messages that are made here and taken here.
CODEC: Final = Codec()
# Without these records faults stay unseen, or are wrong.
NEEDED: Final[Mapping[Topic, str]] = {
    PROBE_ROUND: "there is nothing to judge",
    ENDPOINT: "which agent answers for a target is not known, and may be at fault for the network",
    HEARTBEAT: "whether agents lived is not known, and faults at a single host stay unseen",
    TOPOLOGY: "no component is known that could be at fault",
    PATH_TRACE: "which cables and switches probes crossed is not known, and none is reported",
}
# What worker and localizer read, but not what they have written: verdicts are made anew.
INPUTS: Final[tuple[Topic, ...]] = (
    PROBE_ROUND, HEARTBEAT, PATH_TRACE, ENDPOINT, TASK, PINGLIST, TOPOLOGY, OVERLAY_FLOWS,
    COMPONENT_STATE,
)  # fmt: skip

# What a source that is diagnosed needs of its recording; the rounds are read here, and once.
BESIDE_ROUNDS: Final[tuple[Topic, ...]] = tuple(t for t in TOPICS if t is not PROBE_ROUND)

Progress = Callable[["Diagnosis"], None]


Observe = Callable[[PublishedAnomaly], None]


def _nothing(_anomaly: PublishedAnomaly) -> None:
    """Nobody looks."""


@dataclass(slots=True)
class Diagnosis:
    """What was read, what it says, and how far the event time is.

    `refused` counts records that were left out, by reason. `used` counts the others.
    """

    records: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    # Clusters of records that were left out.
    foreign: set[str] = field(default_factory=set)
    results: int = 0
    event_ms: int | None = None
    stopped: bool = False
    # What is wrong with the file of the rounds: what stands before it was read.
    damage: DamageError | None = None
    events: list[FaultEvent] = field(default_factory=list)

    @property
    def lacks(self) -> list[str]:
        """What cannot be judged since there are no records of a topic, a sentence each."""
        lacks = [
            f"no record of {topic.name} could be used: {why}"
            for topic, why in NEEDED.items()
            if not (self.used[topic.name] or self.stopped)
        ]
        if lacks and self.foreign:
            names = ", ".join(sorted(self.foreign))
            lacks.append(f"what was left out is of another cluster: --cluster {names}")
        return lacks

    def verdicts(self) -> list[dict[str, Any]]:
        """Return one document for each fault, in the order in which they were opened.

        Its last state, and under `history` every transition before.
        """
        by_fault: defaultdict[str, list[FaultEvent]] = defaultdict(list)
        for event in self.events:
            by_fault[event.fault_id].append(event)
        return [
            {
                **to_datum(events[-1]),
                "opened_at": events[0].event_at,
                "resolved": events[-1].state is FaultLifecycle.RESOLVED,
                "history": [to_datum(e) for e in events[:-1]],
            }
            for events in by_fault.values()
        ]


def diagnose(
    source: Source,
    detection: DetectionConfig,
    core: CoreConfig,
    stop: Stop,
    progress: Progress,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    observe: Observe = _nothing,
    processes: int = 1,
) -> Diagnosis:
    """Run detection and localization over a recording, second by second of its event time.

    Where collectors were recorded, the hang watcher runs as well.

    Records of another cluster than `core` names, and those that could not be decoded
    when they were recorded, are counted and left out. `observe` is called with what the worker
    would have published to `anomaly.v1`.

    Parameters
    ----------
    source
        Where all but the rounds is read. These are read from its folder, once, in the order of
        their file.
    processes
        2: of a large recording, detection gets a process of its own; see `detected_rounds`.
    """
    found = Diagnosis()
    localizer, silence = Localization(core), MarkedSilence(core.cluster)
    readers = _Readers(core.cluster)
    others = [between(s, from_ms, to_ms) for s in source.others(CODEC, INPUTS)]
    hangs = hangs_of(source, core.cluster, CODEC, from_ms=from_ms, to_ms=to_ms)
    others.append(hang_items(hangs, CODEC))
    refused: Mapping[str, int] = {}
    found.records[PROBE_ROUND.name] = 0
    file = RoundFile.of(source.folder, source.manifest)
    task = None
    if file is not None:
        task = DetectionTask(file, core.cluster, detection, from_ms, to_ms)
    with (
        detected_rounds(task, processes, stop) as rounds,
        memory.collecting_rarely(),
    ):
        for batch in batches(slots(rounds, others), _records):
            items = [item for slot in batch for item in slot.others]
            taken, read = readers.take_batches(items, localizer, found)
            for slot in batch:
                if stop():
                    found.stopped = True
                    return found
                for item in slot.others:
                    if id(item) not in taken:
                        _take(item, localizer, core.cluster, found, read.get(id(item)))
                if slot.rounds is not None:
                    found.records[PROBE_ROUND.name] += slot.rounds.records
                    found.results += slot.rounds.results
                    refused = slot.rounds.refused
                found.event_ms = slot.start_ms
                _consume(silence.told(slot.start_ms, slot.rounds), localizer, observe)
                found.events += localizer.decide()
                progress(found)
        if stop():
            # What has not come was not waited for.
            found.stopped = True
            return found
        _consume(silence.finish(), localizer, observe)
        found.events += localizer.decide()
    found.damage = rounds.damage
    found.refused.update(refused)
    found.used[PROBE_ROUND.name] = found.records[PROBE_ROUND.name] - sum(refused.values())
    return found


def _records(slot: Slot[Detected, Item]) -> int:
    return len(slot.others) + (slot.rounds.records if slot.rounds else 0)


def _consume(told: Sequence[PublishedAnomaly], localizer: Localization, observe: Observe) -> None:
    """Let the localizer consume what workers publish; whoever observes sees it first."""
    for one in told:
        observe(one)
    localizer.consume_anomalies(told)


class _Readers:
    """Reads many records at once of the topics that nearly all the others are of."""

    def __init__(self, cluster: str) -> None:
        self._heartbeats = HeartbeatReader(CODEC, cluster)
        self._traces = TraceReader(CODEC, cluster)

    def take_batches(
        self, items: Sequence[Item], localizer: Localization, found: Diagnosis
    ) -> tuple[set[int], dict[int, FlowTrace | None]]:
        """Let the localizer consume what are columns.

        Returns
        -------
        gone
            Which items (their ids) they are.
        read
            What is kept of traces that are not; None: to be decoded.
        """
        gone: set[int] = set()
        read: dict[int, FlowTrace | None] = {}
        own = _of_topic(items, HEARTBEAT)
        if len(own) >= LEAST:
            beats, taken = self._heartbeats.read_batch(*_messages(own))
            gone.update(map(id, compress(own, taken.tolist())))
            _count(found, HEARTBEAT, int(taken.sum()))
            if beats is not None:
                localizer.consume_heartbeats(beats)
        own = _of_topic(items, PATH_TRACE)
        if len(own) >= LEAST:
            traces, taken, kept = self._traces.read_batch(*_messages(own))
            gone.update(map(id, compress(own, taken.tolist())))
            _count(found, PATH_TRACE, int(taken.sum()))
            read |= zip(map(id, compress(own, (~taken).tolist())), kept, strict=True)
            if traces is not None:
                localizer.consume_traces(traces)
        return gone, read


def _of_topic(items: Sequence[Item], topic: Topic) -> list[Item]:
    """Return the records of a topic that may be columns: their times fit."""
    own = (item for item in items if item.topic is topic and item.entry.value)
    return [item for item in own if 0 <= _timestamp_ms(item) <= MAX_ARRIVAL_MS]


def _count(found: Diagnosis, topic: Topic, number: int) -> None:
    found.records[topic.name] += number
    found.used[topic.name] += number


def _messages(
    items: Sequence[Item],
) -> tuple[list[bytes], list[bytes], Int64s, Places]:
    arrivals_ns = np.array([_timestamp_ms(item) * MS_NS for item in items], np.int64)
    places = Places(
        arrivals_ns,
        np.array([item.entry.partition for item in items], np.int64),
        np.array([item.entry.offset for item in items], np.int64),
    )
    keys = [item.entry.key or b"" for item in items]
    return keys, [item.entry.value or b"" for item in items], arrivals_ns, places


def _timestamp_ms(item: Item) -> int:
    return item.entry.timestamp_ms or item.at_ms


def _take(
    item: Item,
    localizer: Localization,
    cluster: str,
    found: Diagnosis,
    read: FlowTrace | None,
) -> None:
    """Take a record by itself; `read` is what is kept of a trace that has been read already."""
    topic, entry = item.topic, item.entry
    found.records[topic.name] += 1
    timestamp_ms = _timestamp_ms(item)
    record: Any = read
    try:
        key = (entry.key or b"").decode()
        if record is None and entry.value is not None:
            record = CODEC.decode(topic, entry.value, arrival_ns=timestamp_ms * MS_NS)
    except ValueError:
        found.refused["undecodable"] += 1
        return
    # What was read is of this cluster, and under its own key.
    unchecked = record is not None and read is None
    if not key:
        found.refused["undecodable"] += 1
    elif unchecked and record.cluster != cluster:
        found.refused["foreign"] += 1
        found.foreign.add(record.cluster)
    elif unchecked and getattr(record, topic.key_field) != key:
        found.refused["other_key"] += 1
    else:
        found.used[topic.name] += record is not None
        localizer.consume_record(
            topic.name, key, record,
            timestamp_ms=timestamp_ms, partition=entry.partition, offset=entry.offset,
        )  # fmt: skip
