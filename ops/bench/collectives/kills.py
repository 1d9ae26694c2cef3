"""SIGKILL of hang watchers, localizers and tellers while jobs hang: no hang lost, none doubled.

Two hang watchers and two localizers on a real Kafka, of which one leads and the other stands by,
and two tellers in the collectors' place, each of half of every job's ranks. Each that is killed is
started again at once.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from ops.bench.collectives.told_job import RANKS, STEP_US, Standstill, ToldJob, save
from ops.bench.rig.report import Figure, Say, figure
from ops.lab.suite.suite import pipeline
from ops.log.watch import Watch
from ops.running.pipeline import HANGS, LOCALIZER, MODULES, Pipeline
from schemas import topics
from schemas.codec import Codec
from schemas.enums import AnomalyKind, AnomalyState, FaultLifecycle
from schemas.ids import path_id, rank_id
from schemas.records import Anomaly, FaultEvent, Hang

KILLS: Final = 50
SEED: Final = 20_267
JOBS: Final = 12
# A hang that comes back within a minute is the same one, so each job is well for longer.
HANGS_S: Final = 30
WELL_S: Final = 75
WARM_S: Final = 24
KILL_EACH_S: Final = 9.0
# Until the last hang is over and told.
DRAIN_S: Final = 30.0
# A hang is told within this of its end, or it is lost.
LATE_S: Final = 5
MARK_EACH_S: Final = 0.2
TELLER: Final = "tellers"


@dataclass(slots=True)
class Published:
    """What was published."""

    hangs: list[Hang] = field(default_factory=list)
    faults: list[FaultEvent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Score:
    """How what was published compares with what was planned."""

    planned: int
    hangs_lost: int
    hangs_doubled: int
    faults_lost: int
    faults_doubled: int
    false: int
    left_open: int


def plan(begin_us: int, kills: int, chance: random.Random) -> list[ToldJob]:
    """Return jobs that hang one after another, so that some hang whenever something is killed."""
    each_us = (HANGS_S + WELL_S) * 1_000_000
    last_us = begin_us + round((WARM_S + kills * KILL_EACH_S) * 1_000_000)
    jobs = []
    for number in range(JOBS):
        at_us = begin_us + WARM_S * 1_000_000 + number * (each_us // JOBS) // STEP_US * STEP_US
        stands, rank = [], chance.randrange(RANKS)
        while at_us < last_us:
            stands.append(Standstill(rank, at_us, at_us + HANGS_S * 1_000_000))
            # Another rank: a fault that comes back at the same one is the same fault.
            rank = (rank + chance.randrange(1, RANKS)) % RANKS
            at_us += each_us
        jobs.append(ToldJob(f"killed-{number}", begin_us, tuple(stands)))
    return jobs


def score(jobs: Iterable[ToldJob], told: Published) -> Score:
    """Compare; a hang or fault belongs to the standstill in whose time it opened."""
    spans = [(job.task_id, stand) for job in jobs for stand in job.stands]

    def place(task_id: str, ranks: Sequence[str], at_us: int) -> tuple[str, Standstill] | None:
        return next(
            (
                (task, stand)
                for task, stand in spans
                if task == task_id
                and rank_id(task, stand.rank) in ranks
                and stand.begin_us <= at_us <= stand.end_us + LATE_S * 1_000_000
            ),
            None,
        )

    # Each transition once: a record that is written twice is one of a hang that is doubled.
    hangs = Counter(
        place(h.task_id, [rank_id(h.task_id, r) for r in h.ranks], h.event_at)
        for h in told.hangs
        if h.state is FaultLifecycle.OPEN
    )
    faults = Counter(
        place(f.tasks[0] if f.tasks else "", [f.component_id], f.event_at)
        for f in told.faults
        if f.state is FaultLifecycle.OPEN
    )
    again = sum(n - 1 for n in Counter((h.hang_id, h.seq) for h in told.hangs).values())
    faults_again = sum(n - 1 for n in Counter((f.fault_id, f.seq) for f in told.faults).values())
    hang_now = {h.hang_id: h.state for h in sorted(told.hangs, key=lambda h: h.seq)}
    fault_now = {f.fault_id: f.state for f in sorted(told.faults, key=lambda f: f.seq)}
    still = (*hang_now.values(), *fault_now.values())
    return Score(
        planned=len(spans),
        hangs_lost=sum(not hangs[one] for one in spans),
        hangs_doubled=sum(hangs[one] > 1 for one in spans) + again,
        faults_lost=sum(not faults[one] for one in spans),
        faults_doubled=sum(faults[one] > 1 for one in spans) + faults_again,
        false=hangs[None] + faults[None],
        left_open=sum(state is not FaultLifecycle.RESOLVED for state in still),
    )


class Killing:
    """Runs the processes, kills them, and hears what they publish."""

    def __init__(self, started: Pipeline, watch: Watch, plan_path: Path, say: Say) -> None:
        self._started = started
        self._watch = watch
        self._plan = plan_path
        self._say = say
        self._codec = Codec()
        self._producer = Producer(started.settings.librdkafka())
        self._next_mark_s = 0.0
        self.told = Published()
        self.ended = 0
        self.names = [f"{kind}-{n}" for kind in (HANGS, LOCALIZER, TELLER) for n in (0, 1)]

    def start(self, name: str) -> None:
        """Start one of them."""
        kind, _, number = name.partition("-")
        if kind == TELLER:
            self._started.group.start(
                name,
                [
                    sys.executable, "-m", "ops.bench.collectives.told_job",
                    str(self._started.config_path), str(self._plan), number,
                ],
            )  # fmt: skip
        else:
            self._started.start(name, MODULES[kind])

    def kill(self, name: str) -> None:
        """Kill one, and start it again."""
        self._started.group.kill(name)
        self.start(name)

    def hear_for(self, seconds: float) -> None:
        """Hear what is published; start again what ended by itself."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._mark()
            for seen in self._watch.poll(MARK_EACH_S):
                match seen.record:
                    case Hang():
                        self.told.hangs.append(seen.record)
                    case FaultEvent():
                        self.told.faults.append(seen.record)
            for name in self.names:
                if not self._started.group.child(name).running:
                    self.ended += 1
                    self._say(f"{name} ended by itself: started again")
                    self.kill(name)

    def close(self) -> None:
        """Send what is left, before the broker is gone."""
        self._producer.flush(LATE_S)
        del self._producer

    def _mark(self) -> None:
        """Say in the worker's place that no probe showed anything: the localizer's time goes on."""
        if time.monotonic() < self._next_mark_s:
            return
        self._next_mark_s = time.monotonic() + MARK_EACH_S
        now_us = time.time_ns() // 1_000
        for partition in range(topics.ANOMALY.partitions):
            self._producer.produce(
                self._started.settings.topic(topics.ANOMALY.name), key=b"~progress",
                partition=partition, value=self._codec.encode(topics.ANOMALY, _idle(now_us)),
            )  # fmt: skip
        self._producer.poll(0)


def _idle(at_us: int) -> Anomaly:
    """Return the mark of a partition in which nothing is to be done."""
    return Anomaly(
        cluster="lab", anomaly_id=f"progress-{at_us}", kind=AnomalyKind.PROGRESS,
        state=AnomalyState.IDLE, path_id=path_id("e0", "e1"), src="e0", dst="e1", flow=0,
        agent_id="a0", event_at=at_us, onset_at=at_us, detector="bench", sent=0, lost=0,
    )  # fmt: skip


def measure(runs: int, say: Say, kills: int = KILLS) -> list[Figure]:
    """Kill so many processes, one after another; `runs` does not change that."""
    del runs
    chance = random.Random(SEED)  # noqa: S311
    with (
        pipeline(None, say, processes=()) as started,
        Watch(started.settings, (topics.COLLECTIVE_HANG, topics.FAULT_EVENT)) as watch,
    ):
        begin_us = (time.time_ns() // 1_000 // STEP_US + 4) * STEP_US
        jobs = plan(begin_us, kills, chance)
        path = started.config_path.with_name("plan.json")
        save(jobs, path)
        rig = Killing(started, watch, path, say)
        for name in rig.names:
            rig.start(name)
        rig.hear_for(WARM_S + LATE_S)
        killed: Counter[str] = Counter()
        for number in range(kills):
            name = chance.choice(rig.names)
            rig.kill(name)
            killed[name.partition("-")[0]] += 1
            opened = sum(h.state is FaultLifecycle.OPEN for h in rig.told.hangs)
            say(f"{number + 1}/{kills} killed {name}; {opened} hangs told so far")
            rig.hear_for(chance.uniform(0.5, 1.5) * KILL_EACH_S)
        left_s = max(s.end_us for j in jobs for s in j.stands) / 1e6 - time.time() + DRAIN_S
        rig.hear_for(max(DRAIN_S, left_s))
        rig.close()
        found = score(jobs, rig.told)
        twice = Counter(h.hang_id for h in rig.told.hangs if h.seq == 1)
        for hang_id, count in twice.items():
            if count > 1:
                own = [h for h in rig.told.hangs if h.hang_id == hang_id]
                say(f"opened twice: {[(h.seq, h.state.value, h.event_at, h.ranks) for h in own]}")
        say(f"{found}; killed {dict(killed)}; {rig.ended} ended by themselves")
    return figures(found, killed)


def figures(found: Score, killed: Counter[str]) -> list[Figure]:
    """Return the rows."""
    rows = [
        ("hangs lost", found.hangs_lost),
        ("hangs doubled", found.hangs_doubled),
        ("faults lost", found.faults_lost),
        ("faults doubled", found.faults_doubled),
        ("hangs and faults told that were none", found.false),
        ("hangs and faults left open", found.left_open),
    ]
    what = f"{killed.total()} kills, {found.planned} hangs"
    return [
        *(figure(f"{what}: {name}", [float(count)], "", 0) for name, count in rows),
        *(figure(f"of the kills: {name}", [float(n)]) for name, n in sorted(killed.items())),
    ]
