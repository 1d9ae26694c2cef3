"""Watches a lab with its training job for minutes: its skeleton and its verdicts must hold.

Everything runs with its production settings. The skeleton job needs some windows to itself first;
then one hard fault after the other is put in and healed. A window of the skeleton job that errs,
or a list with pairs that have no way, shows here as wrong skeletons or as verdicts beside the right
one.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ops.lab.kind import lab_kind
from ops.lab.suite.cases import SUITE, Case
from ops.lab.suite.places import Names, placed, places
from ops.lab.suite.suite import NEXT_RUN, Run, Say, bench, sentence
from ops.lab.workload import Workload
from ops.log.watch import Watch
from schemas.enums import FaultLifecycle
from schemas.kafka.connection import KafkaSettings
from schemas.records import FaultEvent, PingList, Skeleton
from schemas.topics import PINGLIST, SKELETON_TOPIC

# Everything of somebody's is lost at once: found in seconds, also with production's windows.
CASES: Final = tuple(case for case in SUITE if case.hard)
# The window of the skeleton job is full after 300 s; live, wrong answers came from 90 s on.
FIRST_FAULT_S: Final = 180.0
BETWEEN_FAULTS_S: Final = 45.0
# In a row: a busy machine may hold one anomaly open for long, a lab that is broken all of them.
MOST_TIMES_NOT_CALM: Final = 3
# Without anything new for so long, a topic has been read to its end.
READ_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResult:
    """What was seen of one lab.

    Attributes
    ----------
    published : skeletons with degrees, in the order in which they were published
    wrong : those of them whose degrees are not the job's
    across : targets of all published lists that lead to another rail
    false : faults that were opened while nothing was broken
    runs : the faults that were put in and healed
    loads : processes that wanted to run for each processor, as each of them was put in
    not_calm : how often the lab was not calm in time for the next fault
    cut_short : why the rest was left out; None: nothing was
    """

    published: tuple[Skeleton, ...]
    wrong: int
    across: int
    false: tuple[FaultEvent, ...]
    runs: tuple[Run, ...]
    loads: tuple[float, ...] = ()
    not_calm: int = 0
    cut_short: str | None = None

    @property
    def false_verdicts(self) -> int:
        """Faults that were opened without a reason: in health, or beside the right one."""
        return len(self.false) + sum(run.outcome.false for run in self.runs)


def run_watch(kind: str, *, seconds: float, say: Say, bootstrap: str | None = None) -> WatchResult:
    """Watch a lab of that kind for so long; the first three minutes are healthy."""
    shape = lab_kind(kind).shape
    truth = Workload(shape=shape).truth()
    degrees = truth["dp"], truth["pp"], truth["tp"]
    names = places(shape)
    cases = [case for case in CASES if case.in_lab(kind)]
    runs: list[Run] = []
    loads: list[float] = []
    not_calm = in_a_row = 0
    cut_short: str | None = None
    with bench(kind, bootstrap, say, shape=shape, tables={}) as faults:
        deadline = time.monotonic() + seconds
        say(f"{FIRST_FAULT_S:.0f} s of health first")
        false = faults.healthy(FIRST_FAULT_S)
        while time.monotonic() < deadline and cut_short is None:
            here = _next(cases, names, len(runs))
            load = os.getloadavg()[0] / (os.cpu_count() or 1)
            try:
                outcome = faults.run(here)
                runs.append(Run(here, outcome))
                loads.append(load)
                say(f"{here.name} at {here.target}: {sentence(outcome)}, load {load:.1f}")
                false += faults.healthy(BETWEEN_FAULTS_S)
                in_a_row = 0
            except TimeoutError as error:
                say(f"{error}, load {load:.1f}")
                not_calm, in_a_row = not_calm + 1, in_a_row + 1
                if in_a_row == MOST_TIMES_NOT_CALM:
                    cut_short = str(error)
        skeletons, lists = _published(faults.settings)
    inferred = [s for s in skeletons if s.dp is not None]
    for skeleton in inferred:
        say(
            f"skeleton {skeleton.version}: DP {skeleton.dp} PP {skeleton.pp} TP {skeleton.tp}, "
            f"confidence {skeleton.confidence:.3f}"
        )
    rail_of = {e.endpoint_id: e.rail for e in shape.endpoints}
    return WatchResult(
        published=tuple(inferred),
        wrong=sum((s.dp, s.pp, s.tp) != degrees for s in inferred),
        across=sum(rail_of[t.src] != rail_of[t.dst] for one in lists for t in one.targets),
        false=tuple(f for f in false if f.state is FaultLifecycle.OPEN),
        runs=tuple(runs),
        loads=tuple(loads),
        not_calm=not_calm,
        cut_short=cut_short,
    )


def _next(cases: Sequence[Case], names: Sequence[Names], number: int) -> Case:
    """Return the fault that is put in as the n-th: each round of cases is at other places."""
    turn, case = divmod(number, len(cases))
    return placed(cases[case], names[(case + turn * NEXT_RUN) % len(names)])


def _published(settings: KafkaSettings) -> tuple[Sequence[Skeleton], Sequence[PingList]]:
    """Return all skeletons and lists in the log; it is too young to have been compacted."""
    skeletons: list[Skeleton] = []
    lists: list[PingList] = []
    with Watch(settings, (SKELETON_TOPIC, PINGLIST), from_start=True) as watch:
        until = time.monotonic() + READ_S
        while time.monotonic() < until:
            for seen in watch.poll():
                until = time.monotonic() + READ_S
                if isinstance(seen.record, Skeleton):
                    skeletons.append(seen.record)
                elif isinstance(seen.record, PingList):
                    lists.append(seen.record)
    return skeletons, lists
