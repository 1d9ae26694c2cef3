"""A lab with all processes whose links are cut: who lives on, and whether each cut is reported.

One host is the bystander: records that name it are forged, and links elsewhere are cut.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final, Self

from ops.bench.rig.report import scratch_folder
from ops.lab.lab import Lab, LabConfig
from ops.lab.shape import LabShape
from ops.log.watch import Watch, WatchedRecord
from ops.running.pipeline import LOCALIZER, SKELETON, WORKER, Pipeline, PipelineConfig
from ops.running.processes import Child
from schemas.enums import AnomalyState, FaultLifecycle, ProbingState
from schemas.records import Anomaly, FaultEvent, Heartbeat
from schemas.topics import ANOMALY, FAULT_EVENT, HEARTBEAT, PROBE_ROUND, TOPICS, Topic
from streams.core.outputs import PROGRESS_KEY

# A fault needs three bad 5-tuples at once: with fewer RNICs some links carry less.
SHAPE: Final = LabShape()
BYSTANDER: Final = SHAPE.hosts - 1
# What a process logs again and again while it is alive, and how often it does.
LIFE_SIGNS: Final = {
    WORKER: ("worker.metrics", 10.0),
    LOCALIZER: ("localizer.metrics", 10.0),
    SKELETON: ("skeleton.inferred", 5.0),
}
HUNG_S: Final = 10.0
CUT_TIMEOUT_S: Final = 15.0
RESOLVE_TIMEOUT_S: Final = 40.0
# The first worker after a change of the sources compiles its kernels.
READY_TIMEOUT_S: Final = 240.0
# Before the first cut: lists are followed, paths are traced, baselines exist.
SETTLE_S: Final = 15.0
REHEARSALS: Final = 3
POLL_S: Final = 0.05
# An agent that has sent no round for so long does not probe.
SILENT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Cut:
    """A link that was cut.

    Attributes
    ----------
    onset_s, delay_s
        Until the first onset of a detector, and until a verdict that named the link; None: never.
    resolved
        Whether the verdict ended after the heal.
    """

    link: str
    onset_s: float | None
    delay_s: float | None
    resolved: bool

    def __str__(self) -> str:
        onset, delay = (
            "never" if seconds is None else f"after {seconds:.1f} s"
            for seconds in (self.onset_s, self.delay_s)
        )
        return f"{self.link} cut: onset {onset}, verdict {delay}"


class Stage:
    """Broker, worker, skeleton job, localizer and a lab with agents.

    Attributes
    ----------
    latest : the last record of each topic and key, as it was read
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack = ExitStack()
        self._events: list[tuple[float, FaultEvent]] = []
        self._beat_s: dict[str, float] = {}
        self._round_s: dict[str, float] = {}
        self._onset_s: float | None = None
        self.latest: dict[str, dict[str, WatchedRecord]] = {t.name: {} for t in TOPICS}
        # Links between switches: every 5-tuple has another way.
        self._links: Iterator[str] = cycle(
            cable.link_id for cable in SHAPE.links if "spine" in cable.link_id
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = stack.enter_context(scratch_folder())
            self.pipeline = stack.enter_context(Pipeline(PipelineConfig(folder=folder)))
            self.pipeline.wait_ready(READY_TIMEOUT_S)
            self.settings = self.pipeline.settings
            config = LabConfig(settings=self.settings, name=self._name, shape=SHAPE)
            self.lab = stack.enter_context(Lab(config))
            self._watch = stack.enter_context(Watch(self.settings, TOPICS, from_start=True))
            self.listen(SETTLE_S)
            self._rehearse()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def agents(self) -> list[str]:
        """Names of the agents."""
        return SHAPE.agent_ids()

    def listen(self, seconds: float) -> None:
        """Read what comes for so long."""
        self.until(lambda: False, seconds)

    def until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Read what comes until a condition holds; return whether it does."""
        deadline = time.monotonic() + timeout_s
        while not reached():
            if time.monotonic() > deadline:
                return False
            for seen in self._watch.poll(POLL_S):
                self._observe(seen)
        return True

    def cut(self) -> Cut:
        """Cut the next link, wait for a verdict that names it, heal it, wait for the end."""
        link = next(self._links)
        first, began_s = len(self._events), time.monotonic()

        def states() -> list[FaultLifecycle]:
            return [e.state for _, e in self._events[first:] if e.component_id == link]

        self._onset_s = None
        self.lab.fault("link-cut", link)
        reported = self.until(lambda: bool(states()), CUT_TIMEOUT_S)
        delay_s = time.monotonic() - began_s if reported else None
        self.lab.heal()
        ended = reported and self.until(
            lambda: states()[-1] is FaultLifecycle.RESOLVED, RESOLVE_TIMEOUT_S
        )
        onset_s = None if self._onset_s is None else self._onset_s - began_s
        return Cut(link, onset_s, delay_s, resolved=ended)

    def ended(self) -> list[str]:
        """Return the processes that ended by themselves."""
        children = [self.pipeline.group.child(name) for name in LIFE_SIGNS]
        children += [self.lab.group.child(name) for name in self.agents]
        return [child.name for child in children if not child.running]

    def signs(self) -> dict[str, int]:
        """Return how many signs of life each process has logged."""
        return {
            name: len(self.pipeline.group.child(name).events(event))
            for name, (event, _) in LIFE_SIGNS.items()
        }

    def hung(self, since: dict[str, int], since_s: float) -> list[str]:
        """Return the processes without a sign of life since then; wait for it if it may come."""

        def silent() -> list[str]:
            now = self.signs()
            found = [name for name, count in since.items() if now[name] <= count]
            return found + [a for a in self.agents if self._beat_s.get(a, 0.0) <= since_s]

        longest_s = max(interval_s for _, interval_s in LIFE_SIGNS.values())
        left_s = since_s + longest_s + HUNG_S - time.monotonic()
        self.until(lambda: not silent(), max(left_s, POLL_S))
        return silent()

    def mute_agents(self) -> list[str]:
        """Return the agents that neither probe nor say that they do not."""
        now_s = time.monotonic()
        return [
            agent
            for agent in self.agents
            if now_s - self._round_s.get(agent, 0.0) > SILENT_S
            and (seen := self.latest[HEARTBEAT.name].get(agent)) is not None
            and isinstance(seen.record, Heartbeat)
            and seen.record.probing is ProbingState.PROBING
        ]

    def _rehearse(self) -> None:
        """Cut a link before anything is forged: after it there are records of all topics."""
        for _ in range(REHEARSALS):
            if self.cut().resolved:
                return
        raise TimeoutError(f"none of {REHEARSALS} cuts was reported and resolved")

    def restart(self, names: Sequence[str]) -> list[str]:
        """Kill processes and start them again; return those that do not become ready."""
        group = self.pipeline.group
        children: list[tuple[Child, int]] = []
        for name in names:
            ready = len(group.child(name).events(f"{name}.ready"))
            if group.child(name).running:
                group.kill(name)
            else:
                group.stop(name)
            children.append((self.pipeline.start(name), ready))

        def waiting() -> list[str]:
            return [
                child.name
                for child, ready in children
                if len(child.events(f"{child.name}.ready")) <= ready
            ]

        self.until(lambda: not waiting(), READY_TIMEOUT_S)
        return waiting()

    def records_of(self, topic: Topic) -> list[WatchedRecord]:
        """Return the last record about the bystander, or else any; and a mark of progress."""
        marks = (f"h{BYSTANDER}", f"w{BYSTANDER}")
        records = [seen for seen in self.latest[topic.name].values() if seen.record is not None]
        progress = [seen for seen in records if seen.key == PROGRESS_KEY]
        others = [seen for seen in records if seen.key != PROGRESS_KEY]
        named = [seen for seen in others if any(m in _subject(seen) for m in marks)]
        return [*(named or others)[:1], *progress]

    def _observe(self, seen: WatchedRecord) -> None:
        now_s = time.monotonic()
        self.latest[seen.topic][seen.key] = seen
        if seen.topic == FAULT_EVENT.name and isinstance(seen.record, FaultEvent):
            self._events.append((now_s, seen.record))
        elif seen.topic == ANOMALY.name and isinstance(seen.record, Anomaly):
            if self._onset_s is None and seen.record.state is AnomalyState.ONSET:
                self._onset_s = now_s
        elif seen.topic == HEARTBEAT.name:
            self._beat_s[seen.key] = now_s
        elif seen.topic == PROBE_ROUND.name:
            self._round_s[seen.key] = now_s


def _subject(seen: WatchedRecord) -> str:
    """Return whom a record is about: its agent, or its key."""
    record: Any = seen.record
    return str(getattr(record, "agent_id", seen.key))
