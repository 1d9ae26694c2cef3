"""How much longer a real job's iteration takes while agents, collector and dumps are on.

Everything is switched off and on again, many times within one attempt of the job: agents and
collector are stopped and continued, and ranks cease to write dumps. Two stretches after each other,
one of each, are a pair; which of them comes first alternates, so that what drifts cancels.

A stretch holds so few iterations that counting them would not show one percent: ranks note when
they begin each, and a stretch is from the first begin after its beginning to the last before its
end.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

import numpy as np

from ops.bench.collectives.needed import lacks_job
from ops.bench.rig.process_cost import cpu_ns
from ops.bench.rig.report import Figure, Say, figure
from ops.bench.rig.waiting import wait_until
from ops.lab.errors import LabError
from ops.lab.fault_kinds import NETNS_LAB
from ops.lab.frameworks import job_python
from ops.lab.kind import SUITE_SHAPE
from ops.lab.lab import COLLECTOR, Lab, LabConfig
from ops.lab.ranks import JobConfig
from ops.lab.shape import LabShape
from ops.lab.suite.suite import pipeline
from ops.lab.training.begun import Begun
from ops.log.watch import Watch
from ops.running.pipeline import SKELETON, Pipeline
from schemas.records import ProbeRound
from schemas.topics import PROBE_ROUND
from schemas.units import MS_NS

BAR_PERCENT: Final = 0.5
# A task id of its own: a collector sees all jobs of a machine.
SHAPE: Final = replace(SUITE_SHAPE, task_id="iterations")
# An iteration computes for so long elsewhere, as on a GPU: the lab's job, and one that reduces
# without a pause, whose ranks want all cores of a small machine for themselves.
PERIODS_MS: Final = (500, 0)
NEVER: Final = 10**9
# Three dumps of each rank, at least two seconds apart, and five looks of the collector.
STRETCH_S: Final = 10.0
# What was stopped makes up for what it missed.
SETTLE_S: Final = 2.0
PROBING_TIMEOUT_S: Final = 60.0
WARM_S: Final = 20.0
RESAMPLES: Final = 10_000
SEED: Final = 20_268
AGENTS: Final = "agents"
BROKER: Final = "broker"
# Some thirty iterations of the slower job.
BEGIN_TIMEOUT_S: Final = 20.0
# Four iterations of the slower job, and a look of the launcher.
STILL_NS: Final = 3_000 * MS_NS
# The launcher writes each quarter of a second how far ranks are.
POLL_S: Final = 0.05


class StandsStillError(LabError):
    """The job did not train all through a stretch, of which there is no figure then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far the job was, and what processes had used of a core by then.

    Attributes
    ----------
    begun
        The iteration that each rank began last.
    at_ns
        When the CPU time of what is beside the job was read.
    beside_ns
        That CPU time by name, nanoseconds.
    """

    attempt: int
    begun: tuple[Begun, ...]
    at_ns: int
    beside_ns: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What an iteration took in some seconds, on average, and shares of a core beside it.

    `ranks_cpu_ms` is of all ranks together.
    """

    iteration_ms: float
    ranks_cpu_ms: float
    beside_percent: dict[str, float]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two stretches after each other."""

    on: Stretch
    off: Stretch


def stretch_between(begin: Mark, end: Mark) -> Stretch:
    """Return what iterations took between two marks: of each rank from one begin to another.

    Raises
    ------
    StandsStillError
        If the job began anew, a rank began no iteration more, or had begun none for long in the
        end: what came before would look as if nothing had happened.
    """
    if end.attempt != begin.attempt:
        raise StandsStillError("the training job began anew")
    spans = list(zip(begin.begun, end.begun, strict=True))
    still = [
        rank
        for rank, (first, last) in enumerate(spans)
        if last.step <= first.step or last.at_ns < end.at_ns - STILL_NS
    ]
    if still:
        raise StandsStillError(f"the training job does not go on: ranks {still}")
    took_ns = end.at_ns - begin.at_ns
    return Stretch(
        iteration_ms=fmean((b.at_ns - a.at_ns) / (b.step - a.step) for a, b in spans) / MS_NS,
        ranks_cpu_ms=sum((b.cpu_ns - a.cpu_ns) / (b.step - a.step) for a, b in spans) / MS_NS,
        beside_percent={
            name: 100 * (used - begin.beside_ns[name]) / took_ns
            for name, used in end.beside_ns.items()
        },
    )


class Switched:
    """A lab whose agents, collector and dumps are switched."""

    def __init__(self, lab: Lab, started: Pipeline) -> None:
        self._lab = lab
        self._started = started
        agents = [lab.group.child(name).pid for name in lab.shape.agent_ids()]
        self._beside = {AGENTS: agents, COLLECTOR: [lab.group.child(COLLECTOR).pid]}

    def switch(self, *, on: bool) -> None:
        """Stop everything, or let it go on."""
        self._lab.ranks.record(on=on)
        for pid in (pid for pids in self._beside.values() for pid in pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)

    def mark(self) -> Mark:
        """Return how far the job is, as it was told last."""
        told = self._lab.ranks.progress()
        broker = self._started.kafka
        pids = {**self._beside, BROKER: [broker.pid] if broker and broker.pid else []}
        return Mark(
            attempt=told["attempt"],
            begun=tuple(
                Begun(*own)
                for own in zip(told["steps"], told["begun_ns"], told["begun_cpu_ns"], strict=True)
            ),
            at_ns=time.monotonic_ns(),
            beside_ns={name: sum(map(cpu_ns, own)) for name, own in pids.items()},
        )

    def first_mark(self) -> Mark:
        """Return how far the job is as soon as each rank has begun another iteration.

        Raises
        ------
        StandsStillError
            If that takes too long.
        """
        since_ns = time.monotonic_ns()
        try:
            wait_until(
                lambda: min(self._lab.ranks.progress()["begun_ns"]) > since_ns, BEGIN_TIMEOUT_S,
                "not all ranks began an iteration", check=self._lab.check, poll_s=POLL_S,
            )  # fmt: skip
        except TimeoutError as error:
            raise StandsStillError(str(error)) from error
        return self.mark()

    def stretch(self, *, on: bool) -> Stretch:
        """Switch, and let the job train for a while."""
        self.switch(on=on)
        time.sleep(SETTLE_S)
        begin = self.first_mark()
        time.sleep(STRETCH_S)
        end = self.mark()
        self._lab.check()
        return stretch_between(begin, end)

    def pair(self, *, on_first: bool) -> Pair:
        """Return two stretches after each other."""
        first, last = self.stretch(on=on_first), self.stretch(on=not on_first)
        return Pair(first, last) if on_first else Pair(last, first)


@contextmanager
def switched(say: Say, period_ms: int, shape: LabShape = SHAPE) -> Iterator[Switched]:
    """Give a lab in which a job trains and agents probe; what sent their lists is gone."""
    job = JobConfig(
        python=job_python(None), period_ms=period_ms, checkpoint_steps=NEVER, evaluation_steps=NEVER
    )
    with pipeline(None, say, processes=(SKELETON,)) as started:
        config = LabConfig(
            settings=started.settings, kind=NETNS_LAB, name="iterations", shape=shape, job=job
        )
        with (
            Watch(started.settings, (PROBE_ROUND,)) as watch,
            Lab(config, say=say) as lab,
        ):
            wait_until(
                probing(watch, shape.agent_ids()), PROBING_TIMEOUT_S, "not all agents probe",
                check=lab.check,
            )  # fmt: skip
            started.group.stop(SKELETON)
            beside = Switched(lab, started)
            time.sleep(WARM_S)
            try:
                yield beside
            finally:
                # One that is stopped would not hear that it is to end.
                beside.switch(on=True)


def probing(watch: Watch, agents: Sequence[str]) -> Callable[[], bool]:
    """Return what says whether each agent has published a round with probes."""
    silent = set(agents)

    def all_probe() -> bool:
        for seen in watch.poll():
            if isinstance(seen.record, ProbeRound) and seen.record.results:
                silent.discard(seen.record.agent_id)
        return not silent

    return all_probe


def measure(runs: int, say: Say) -> list[Figure]:
    """Measure so many pairs of each job, if there are root and PyTorch.

    Raises
    ------
    LabError
        If of most pairs there is no figure, as the job stood still.
    """
    if lacks_job(say):
        return []
    rows = []
    for period_ms in PERIODS_MS:
        with switched(say, period_ms) as beside:
            pairs = all_pairs(beside.pair, runs, say, f"{period_ms} ms of computing")
        rows += figures(period_ms, pairs, lost=runs - len(pairs))
    return rows


def all_pairs(pair: Callable[..., Pair], runs: int, say: Say, what: str) -> list[Pair]:
    """Return so many pairs, less those in which the job stood still.

    Parameters
    ----------
    pair
        Measures one: `Switched.pair`.

    Raises
    ------
    StandsStillError
        As soon as it stood still in most of them.
    """
    pairs: list[Pair] = []
    for number in range(runs):
        try:
            pairs.append(pair(on_first=number % 2 == 0))
        except StandsStillError as error:
            say(f"{what}, {number + 1}/{runs}: not measured, {error}")
            if 2 * (number + 1 - len(pairs)) > runs:
                raise
        else:
            say(f"{what}, {number + 1}/{runs}: {text(pairs[-1])}")
    return pairs


def text(pair: Pair) -> str:
    """Return a pair as a line of progress."""
    on, off = pair.on, pair.off
    return (
        f"on {on.iteration_ms:.2f} ms, off {off.iteration_ms:.2f} ms; "
        f"CPU of the ranks {on.ranks_cpu_ms:.2f} and {off.ranks_cpu_ms:.2f} ms"
    )


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a median: percentile bootstrap (Efron, 1979)."""
    values = np.asarray(samples, np.float64)
    chosen = np.random.default_rng(SEED).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[chosen], axis=1), (0.025, 0.975))
    return float(low), float(high)


def figures(period_ms: int, pairs: Sequence[Pair], lost: int = 0) -> list[Figure]:
    """Return the rows of a job, of which so many pairs are lost; the lab's own has the bar."""

    def more(name: str, value: Callable[[Stretch], float], bar: float | None) -> Figure:
        percents = [100 * (value(p.on) / value(p.off) - 1) for p in pairs]
        low, high = median_interval(percents)
        return replace(figure(name, percents, "%", bar), low=low, high=high)

    def beside(name: str, value: Callable[[Pair], float]) -> Figure:
        return figure(name, [value(p) for p in pairs], "% of a core")

    what = f"iteration, {len(SHAPE.endpoints)} ranks, {period_ms} ms of computing"
    bar = BAR_PERCENT if period_ms == PERIODS_MS[0] else None
    return [
        more(f"{what}: longer with everything on", lambda s: s.iteration_ms, bar),
        figure("… with everything off", [p.off.iteration_ms for p in pairs], "ms"),
        more(f"{what}: more CPU time of the ranks with everything on", lambda s: s.ranks_cpu_ms,
             None),
        figure("… with everything off", [p.off.ranks_cpu_ms for p in pairs], "ms"),
        beside("… of the agents, together", lambda p: p.on.beside_percent[AGENTS]),
        beside("… of the collector", lambda p: p.on.beside_percent[COLLECTOR]),
        beside(
            "… of the broker, more than with everything off",
            lambda p: p.on.beside_percent[BROKER] - p.off.beside_percent[BROKER],
        ),
        figure("… pairs not measured, as the job stood still", [float(lost)]),
    ]  # fmt: skip
