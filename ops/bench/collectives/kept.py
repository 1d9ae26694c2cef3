"""Keeps what a run of the bench wrote to the topics, with what was put in when.

A miss can then be looked into: `python -m ops.bench.collectives.kept FOLDER/live.truth.json` lets
hang watcher, worker and localizer decide anew on what collectors and agents sent, and prints it
beside what was decided live.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from localizer.config import build_config as localizer_config
from ops.bench.collectives.causes import Cause, Place
from ops.log.reading import now_ms
from ops.log.timespan import BEGINNING, Bound
from ops.recording.diagnosis import BESIDE_ROUNDS, CODEC, diagnose
from ops.recording.labels import SUFFIX, Label, Labels
from ops.recording.recorder import DEFAULT_TOPICS, Recorder, Request
from ops.recording.source import Source
from ops.running.pipeline import LAB_TABLES
from schemas.enums import Layer
from schemas.kafka.connection import KafkaSettings
from schemas.records import FaultEvent
from schemas.topics import ANOMALY, COLLECTIVE_HANG, FAULT_EVENT, PROBE_WINDOW
from schemas.units import SECOND_NS, us_to_ns
from schemas.version import VERSION
from streams.config import build_config as worker_config

# What was decided then stands beside what a replay decides now.
DECIDED: Final = (PROBE_WINDOW, ANOMALY, COLLECTIVE_HANG, FAULT_EVENT)


class Keeper:
    """Notes when each cause was put in and mended, and in the end records all topics."""

    def __init__(self, folder: Path, name: str, settings: KafkaSettings) -> None:
        self._folder = folder
        self._name = name
        self._settings = settings
        self._begin_ns = time.time_ns()
        self._labels: list[Label] = []

    def note(self, cause: Cause, here: Place, begin_ns: int) -> None:
        """Note that a cause was in force from then until now."""
        self._labels.append(
            Label(
                name=cause.name,
                kind=cause.kinds[0],
                also_kinds=cause.kinds[1:],
                layer=Layer.UNDERLAY if cause.network else Layer.JOB,
                from_s=self._after_s(begin_ns),
                to_s=self._after_s(time.time_ns()),
                components=here.components[:1],
                also_right=here.components[1:],
                hard=cause.kind in ("link-cut", "link-down"),
                load=round(os.getloadavg()[0] / (os.cpu_count() or 1), 2),
            )
        )

    def write(self) -> Path:
        """Write recording and truth; return the recording's folder.

        Raises
        ------
        NotEmptyError
            If there is one already.
        """
        request = Request(
            topics=(*DEFAULT_TOPICS, *DECIDED), start=BEGINNING, to=Bound("time", now_ms())
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        recording = self._folder / self._name
        Recorder(self._settings, request, VERSION).run(recording, lambda: False)
        Labels(
            recording=self._name,
            start_ns=self._begin_ns,
            duration_s=self._after_s(time.time_ns()),
            faults=tuple(self._labels),
        ).write(self._folder)
        return recording

    def _after_s(self, at_ns: int) -> float:
        return round((at_ns - self._begin_ns) / SECOND_NS, 3)


def decided_live(source: Source) -> list[FaultEvent]:
    """Return the transitions of faults that a recording holds, in their order."""
    entries = [item.entry for s in source.others(CODEC, (FAULT_EVENT,)) for item in s]
    events = [CODEC.decode(FAULT_EVENT, e.value) for e in entries if e.value is not None]
    return sorted(events, key=lambda e: e.event_at)


def said_between(events: Sequence[FaultEvent], begin_ns: int, end_ns: int) -> list[str]:
    """Return what was told of faults that were opened between two times, a line each."""
    opened: dict[str, int] = {}
    lines = []
    for event in events:
        at_ns = us_to_ns(event.event_at)
        if event.fault_id not in opened:
            opened[event.fault_id] = at_ns
        if begin_ns <= opened[event.fault_id] < end_ns:
            lines.append(
                f"{(at_ns - begin_ns) / SECOND_NS:7.1f} s  {event.state.lower():9} "
                f"{event.fault_kind} {event.component_id} {event.confidence:.2f}"
            )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print for each cause what was said live, and what this code says of the recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("truth", type=Path, metavar=f"NAME{SUFFIX}")
    given = parser.parse_args(arguments).truth
    labels = Labels.read(given)
    detection = worker_config({}, dict(LAB_TABLES["worker"])).detection()
    with Source(given.parent / labels.recording, BESIDE_ROUNDS) as source:
        live = decided_live(source)
        core = localizer_config({}, {}).core(source.manifest.cluster)
        now = diagnose(source, detection, core, lambda: False, lambda _: None).events
    ends_ns = [fault.begin_ns for fault in labels.true_faults()[1:]]
    ends_ns.append(labels.start_ns + round(labels.duration_s * SECOND_NS))
    first_ns = labels.true_faults()[0].begin_ns
    for what, events in (("live", live), ("again", now)):
        for line in said_between(events, labels.start_ns, first_ns):
            print(f"before the first cause, {what}: {line}")
    for fault, end_ns in zip(labels.true_faults(), ends_ns, strict=True):
        print(f"{fault.fault_id}: {', '.join(sorted(fault.components))}")
        for what, events in (("live", live), ("again", now)):
            for line in said_between(events, fault.begin_ns, end_ns) or ["nothing"]:
                print(f"  {what:6}{line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
