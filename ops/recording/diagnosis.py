"""A recording judged where it lies: the pipeline's own cores over its files, without a broker."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from arena.direct import DirectRun
from localizer.config_core import CoreConfig
from ops.recording.order import SLOT_MS, between, slots
from ops.recording.source import Reading, Source
from schemas.codec import from_datum, to_datum
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent
from schemas.topics import (
    BY_NAME,
    COMPONENT_STATE,
    ENDPOINT,
    HEARTBEAT,
    OVERLAY_FLOWS,
    PATH_TRACE,
    PINGLIST,
    PROBE_ROUND,
    TASK,
    TOPOLOGY,
    Topic,
)
from streams.config import DetectionConfig

MS_NS: Final = 10**6
# What worker and localizer read, but not what they have written: verdicts are made anew.
INPUTS: Final[tuple[Topic, ...]] = (
    PROBE_ROUND, HEARTBEAT, PATH_TRACE, ENDPOINT, TASK, PINGLIST, TOPOLOGY, OVERLAY_FLOWS,
    COMPONENT_STATE,
)  # fmt: skip

Stop = Callable[[], bool]
Progress = Callable[["Diagnosis"], None]


@dataclass(slots=True)
class Diagnosis:
    """What was read, what it says, and how far the event time is.

    `refused` counts records that were left out, by reason.
    """

    records: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    results: int = 0
    event_ms: int | None = None
    stopped: bool = False
    events: list[FaultEvent] = field(default_factory=list)

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
) -> Diagnosis:
    """Run detection and localization over a recording, second by second of its event time.

    Records of another cluster than `core` names, and those that could not be decoded
    when they were recorded, are counted and left out.
    """
    found = Diagnosis()
    run = DirectRun(core.cluster, detection, core)
    streams = [between(s, from_ms, to_ms) for s in source.readings(INPUTS)]
    for slot in slots(streams):
        if stop():
            found.stopped = True
            return found
        for reading in (*slot.others, *slot.rounds):
            _take(reading, run, found)
        found.event_ms = slot.start_ms
        found.events += run.pass_time((slot.start_ms + SLOT_MS) * MS_NS)
        progress(found)
    found.events += run.finish()
    found.refused.update(run.refused)
    return found


def _take(reading: Reading, run: DirectRun, found: Diagnosis) -> None:
    topic, datum = reading.topic, reading.datum
    found.records[topic.name] += 1
    value, partition = datum["value"], datum["partition"]
    timestamp_ms = datum["timestamp_ms"] or reading.at_ms
    if datum["key"] is None or datum["value_bytes"] is not None:
        found.refused["undecodable"] += 1
    elif value is None:
        if topic is not PROBE_ROUND:
            run.record(
                topic.name, datum["key"], None, timestamp_ms=timestamp_ms, partition=partition
            )
    elif topic is PROBE_ROUND:
        found.results += len(value["results"])
        run.round(partition, value, timestamp_ms=reading.at_ms)
    elif value["cluster"] != run.cluster:
        found.refused["foreign"] += 1
    elif value[topic.key_field] != datum["key"]:
        found.refused["other_key"] += 1
    else:
        record = from_datum(BY_NAME[topic.name].record, value)
        run.record(topic.name, datum["key"], record, timestamp_ms=timestamp_ms, partition=partition)
