"""Observes a run from outside: lag of consumer groups, cost of processes, verdicts.

Lag is measured in seconds, not in messages: a message holds a few results or hundreds.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ops.bench.rig import process_cost
from ops.log.positions import GroupPositions, worker_group
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import QUIET, reader_options
from schemas.records import FaultEvent
from schemas.topics import PROBE_ROUND


class LagClock:
    """Remembers when each partition's end was where; says when what is committed now came in.

    As fine as it is asked: what came in between two looks counts from the first of them.
    """

    def __init__(self) -> None:
        self._ends: dict[int, deque[tuple[float, int]]] = {}

    def observe(
        self, now_s: float, ends: Mapping[int, int], committed: Mapping[int, int | None]
    ) -> tuple[float, int]:
        """Return how far the group is behind: seconds of the worst partition, messages of all.

        Parameters
        ----------
        ends : end of each partition now
        committed : the group's offsets; None: none yet
        """
        worst_s, messages = 0.0, 0
        for partition, end in ends.items():
            known = self._ends.setdefault(partition, deque())
            known.append((now_s, end))
            done = committed.get(partition) or 0
            # The newest look at which all there was is committed by now stays: from it on we wait.
            while len(known) > 1 and known[1][1] <= done:
                known.popleft()
            messages += max(0, end - done)
            if done < end:
                worst_s = max(worst_s, now_s - known[0][0])
        return worst_s, messages


TIMEOUT_S: Final = 30.0


class WorkerLag:
    """Looks at the workers' group."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._positions = GroupPositions(settings)
        self._group = worker_group(settings, {})
        self._topic = settings.topic(PROBE_ROUND.name)
        self._reader = Consumer(reader_options(settings, fixed=QUIET))
        found = self._reader.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic]
        self._partitions = sorted(found.partitions)
        self._clock = LagClock()
        self.now_s = self.worst_s = 0.0
        self.now_messages = self.worst_messages = 0

    def sample(self) -> None:
        """Ask once; a broker that does not answer in time leaves the figures as they were."""
        try:
            ends = {
                p: self._reader.get_watermark_offsets(
                    TopicPartition(self._topic, p), timeout=TIMEOUT_S
                )[1]
                for p in self._partitions
            }
        except KafkaException:
            return
        places = [(self._topic, p) for p in self._partitions]
        committed = {
            place[1]: at for place, at in self._positions.committed(self._group, places).items()
        }
        self.now_s, self.now_messages = self._clock.observe(time.monotonic(), ends, committed)
        self.worst_s = max(self.worst_s, self.now_s)
        self.worst_messages = max(self.worst_messages, self.now_messages)

    def close(self) -> None:
        """Give the connection back."""
        self._reader.close()


@dataclass(slots=True, kw_only=True)
class Injected:
    """A fault that was put in: what, the components that may be blamed, when (s)."""

    what: str
    components: tuple[str, ...]
    at_s: float


@dataclass(slots=True)
class Verdicts:
    """Fault events as they came, against what was put in.

    `begun` are the jobs that began while something was dead: their broken 5-tuples were never
    whole, and no trace has shown which way they go.
    """

    injected: list[Injected] = field(default_factory=list)
    events: list[tuple[float, FaultEvent]] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)

    def observe(self, document: Mapping[str, Any]) -> None:
        """Take a simulator's `fault`."""
        self.injected.append(
            Injected(
                what=document["what"], components=tuple(document["components"]),
                at_s=document["at_ns"] / 1e9,
            )
        )  # fmt: skip

    def delay_s(self, fault: Injected) -> float | None:
        """Return seconds until a verdict that names the fault; None: there was none."""
        found = [at_s - fault.at_s for at_s, event in self.events if _names(event, fault)]
        return min((s for s in found if s >= 0), default=None)

    def false(self, *, begun: bool) -> list[FaultEvent]:
        """Return the faults of which nothing put in is the cause, as they were said last.

        Parameters
        ----------
        begun
            Those of jobs that began while something was dead; otherwise all others.
        """
        latest = {event.fault_id: event for _, event in self.events}
        return [
            event
            for event in latest.values()
            if not any(_names(event, fault) for fault in self.injected)
            and (bool(event.tasks) and self.begun.issuperset(event.tasks)) == begun
        ]


def _names(event: FaultEvent, fault: Injected) -> bool:
    return event.component_id in fault.components


@dataclass(slots=True)
class Costs:
    """CPU and memory of processes by name, since `begin`."""

    pids: Mapping[str, int]
    _begun: dict[str, float] = field(default_factory=dict)
    _begun_s: float = 0.0
    share: dict[str, float] = field(default_factory=dict)
    rss_bytes: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Count from now on."""
        self._begun_s = time.monotonic()
        self._begun = dict(self._all())

    def end(self) -> None:
        """Take the shares of a core since then, and the largest memory since the start."""
        seconds = time.monotonic() - self._begun_s
        for name, cpu_s in self._all():
            if name in self._begun:
                self.share[name] = (cpu_s - self._begun[name]) / seconds
                self.rss_bytes[name] = process_cost.memory(self.pids[name]).peak_bytes

    def _all(self) -> Sequence[tuple[str, float]]:
        found = []
        for name, pid in self.pids.items():
            try:
                found.append((name, process_cost.cpu_s(pid)))
            except OSError:
                continue  # it has ended; `ended` of the run says so
        return found
