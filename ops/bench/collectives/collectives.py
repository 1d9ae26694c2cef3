"""`make bench-collectives`: a real job on the lab of namespaces hangs, and who is right why.

Eight ranks train over gloo. `live` is the whole way: agents and collector, topics, worker, hang
watcher and localizer, to one fault. `dumps` lets `job diagnose` judge the dumps of the ranks alone,
again and again. The other parts are modules of their own. These two and `iteration` need root and a
Python that has PyTorch (`make training`), `peers` needs PyTorch alone, `unrecorded` root and a
Python that has JAX (`make training-jax`); a part that lacks what
it needs says so and measures nothing (`needed.py`).
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ops.bench.agent import collector
from ops.bench.collectives import analysis, arena, iteration, kills, peers, records, unrecorded
from ops.bench.collectives.causes import CAUSES, Cause, Outcome, judged, place
from ops.bench.collectives.kept import Keeper
from ops.bench.collectives.listeners import Dumps, Faults, Listener, text
from ops.bench.collectives.needed import lacks_job
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.lab.fault_kinds import NETNS_LAB
from ops.lab.frameworks import JAX, TORCH, Framework, job_python
from ops.lab.kind import SUITE_SHAPE
from ops.lab.lab import Lab, LabConfig
from ops.lab.ranks import JobConfig
from ops.lab.suite.suite import pipeline
from ops.log.watch import Watch
from ops.running.pipeline import HANGS, LOCALIZER, SKELETON, WORKER
from schemas import topics

COMMAND: Final = "make bench-collectives"
RUNS: Final = 5
NOTES: Final = (
    "Eight ranks of PyTorch over gloo on 4 hosts of 2 RNICs, tensor and data parallel; each run is "
    "one fault of each of ten causes, at another rank or its RNIC's cable. Class and place are "
    "right if one thing is said, under a right name and of the right rank or component.",
    "Hang → verdict is from the order to the lab until the first word, right or wrong; a cause of "
    "which nothing is said in time has no delay.",
    "Dumps: of a cause of the network right is that all launched and nobody is named: dumps know "
    "no cables. They are read each second, and what three looks in a row show is said.",
    "Kills: jobs of eight ranks whose records are made up, on a real Kafka; two hang watchers, two "
    "localizers and two tellers in the place of collectors. One after another is killed at random "
    "moments while jobs hang, and started again.",
    "Arena: simulated jobs of 16 to 64 ranks and of 1,024 (tensor, pipeline, data and expert "
    "parallel; gloo, NCCL over TCP and over RDMA) on a simulated cluster that agents probe, with "
    "the real watcher, workers, localizer and join; ranges of shares are 95 % intervals (Wilson).",
    "Analysis: the hang watcher's functions on made-up records of one job (tensor, pipeline and "
    "data parallel), in one process without a broker; of the second half of the time intake and "
    "decisions count, and in the end the decision that finds who launches nothing.",
    "Records: a topic filled before, one record of a rank in each batch of Kafka's (lz4), as many "
    "collectors write them; read by `python -m localizer.hangs` from the beginning until it is "
    "ready, on two cores with the broker. MB are 10⁶ bytes of the Avro values, uncompressed. Each "
    "watcher reads everything; the standby would be on another machine.",
    "Collector: one of a host with eight stand-in ranks, which write dumps as PyTorch's recorder "
    "does, or NCCL's calls into the plugin; a real broker. Stretches of a minute of one process.",
    "Iteration: agents and collector are stopped and continued, and ranks cease to write dumps, in "
    "one attempt of the job; pairs of stretches of ten seconds, each measured from the begin of an "
    "iteration to that of another, by the ranks' own clocks; medians, and of the two rows in "
    "percent the 95 % interval of the median (bootstrap). Dumps are what `torch_dump.py` does; "
    "PyTorch's own recorder is always on, as by default.",
    "Peers: the dumps of real gloo jobs in tests/data/collectives, one fault each, with which "
    "`job diagnose` was written. PyTorch's analyzer ends at dumps of gloo, and gets copies in "
    "NCCL's form as well; it tells a missing dump and a mismatch apart, and has no other class.",
    "Unrecorded: eight ranks of JAX, which records no operations, in the place of PyTorch's, and "
    "the causes that such a job can have. What nobody can tell without a recorder is to be said of "
    "nobody: a rank that launches nothing as undecided after a minute, a slow one not at all.",
    "Healthy stretches: of half a minute, with a checkpoint that all wait for and a pause for "
    "evaluation each, and up to a quarter of a minute before each cause, which so comes at any "
    "moment of the job's turns: up to 4 s of its delay are a pause in which nobody waits.",
)
# A task id of its own: a collector sees all jobs of a machine.
SHAPE: Final = replace(SUITE_SHAPE, task_id="hangs")
# Each stretch of half a minute holds a checkpoint and an evaluation.
JOB: Final[Mapping[str, int]] = {
    "period_ms": 500, "checkpoint_steps": 20, "checkpoint_ms": 3_000, "evaluation_steps": 15,
    "evaluation_ms": 4_000,
}  # fmt: skip
RIGHT_SHARE: Final = 0.95
MEDIAN_S: Final = 8.0
P90_S: Final = 12.0
STRETCH_S: Final = 30.0
STRETCHES: Final = 4
# Slow ranks and slow ports are seen over many iterations.
TIMEOUT_S: Final = 45.0
# A cause comes at any moment of a job that evaluates every fifteen iterations, not always so long
# after its start.
PHASE_S: Final = 15.0
PHASE_SEED: Final = 1
# What is said may still be refined.
SETTLE_S: Final = 4.0
CALM_TIMEOUT_S: Final = 90.0
# So long nothing may be wrong before the next cause.
CALM_S: Final = 3.0
POLL_S: Final = 0.1


class CauseBench:
    """Puts causes in, one after another, and hears what is said."""

    def __init__(
        self,
        lab: Lab,
        listener: Listener,
        check: Callable[[], None],
        keeper: Keeper | None = None,
    ) -> None:
        self._lab = lab
        self._keeper = keeper
        self._listener = listener
        self._check = check

    def run(self, cause: Cause, number: int, turn: int, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Put a cause in, hear, heal, and wait until the job trains again."""
        self.wait_calm()
        here = place(cause, number, turn, self._lab.shape)
        self._listener.forget()
        begin, begin_ns = time.monotonic(), time.time_ns()
        self._lab.fault(cause.kind, here.target, **cause.params)
        heard = self._until(lambda: bool(self._listener.hear()), timeout_s)
        delay_s = time.monotonic() - begin if heard else None
        self._until(lambda: False, SETTLE_S)
        said = self._listener.hear()
        self._lab.heal()
        if self._keeper is not None:
            self._keeper.note(cause, here, begin_ns)
        self._lab.ranks.wait_training()
        return judged(cause, here, said, delay_s, live=self._listener.live)

    def anew(self) -> None:
        """Restart the job, so that no wait is usual only because of an earlier fault."""
        self._lab.ranks.restart()
        time.sleep(1.0)
        self._lab.ranks.wait_training()

    def healthy(self, seconds: float) -> int:
        """Let the job train; return how many faults were told."""
        self.wait_calm()
        self._listener.forget()
        self._until(lambda: False, seconds)
        return len(self._listener.hear())

    def wait_calm(self) -> None:
        """Wait until nothing is wrong, and has not been for a while.

        Raises
        ------
        TimeoutError
            If that takes too long.
        """
        deadline = time.monotonic() + CALM_TIMEOUT_S
        calm_since = time.monotonic()
        while time.monotonic() < calm_since + CALM_S:
            if not self._listener.calm():
                calm_since = time.monotonic()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not calm: {text(self._listener.hear())}")
            self._check()
            time.sleep(POLL_S)

    def _until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._check()
            self._listener.hear()
            if reached():
                return True
            time.sleep(POLL_S)
        return False


@contextmanager
def live_bench(say: Say, keep: Path | None, framework: Framework = TORCH) -> Iterator[CauseBench]:
    """Give a lab with a job and agents, and the whole pipeline; `keep` its topics in a folder."""
    job = JobConfig(python=job_python(None, framework), framework=framework, **JOB)
    with (
        pipeline(None, say, processes=(WORKER, SKELETON, LOCALIZER, HANGS)) as started,
        Watch(started.settings, (topics.FAULT_EVENT,)) as watch,
    ):
        config = LabConfig(
            settings=started.settings, kind=NETNS_LAB, name="collectives", shape=SHAPE, job=job
        )
        with Lab(config, say=say) as lab:

            def check() -> None:
                lab.check()
                started.group.check()

            keeper = None if keep is None else Keeper(keep, "live", started.settings)
            try:
                yield CauseBench(lab, Faults(watch, SHAPE.task_id), check, keeper)
            finally:
                if keeper is not None:
                    say(f"kept: {keeper.write()}")


@contextmanager
def dumps_bench(say: Say, keep: Path | None) -> Iterator[CauseBench]:
    """Give a lab with a job whose dumps are read, without agents or pipeline: nothing to keep."""
    del keep
    job = JobConfig(python=job_python(None), framework=TORCH, **JOB)
    with pipeline(None, say, processes=()) as started:
        config = LabConfig(
            settings=started.settings, kind=NETNS_LAB, name="collectives", shape=SHAPE,
            agents=False, job=job,
        )  # fmt: skip
        with Lab(config, say=say) as lab:
            listener = Dumps(lab.ranks.dumps, len(SHAPE.endpoints))
            yield CauseBench(lab, listener, lab.check)


def measure(
    name: str,
    bench: Callable[[Say, Path | None], AbstractContextManager[CauseBench]],
    runs: int,
    say: Say,
    *,
    causes: Sequence[str] = (),
    keep: Path | None = None,
) -> list[Figure]:
    """Put every cause in so many times, or some, with healthy stretches between the runs."""
    if lacks_job(say):
        return []
    outcomes: list[Outcome] = []
    false: list[int] = []
    chosen = [(n, cause) for n, cause in enumerate(CAUSES) if not causes or cause.name in causes]
    phases = random.Random(PHASE_SEED)  # noqa: S311 - no secret
    with bench(say, keep) as rig:
        for turn in range(runs):
            for stretch in range(1 if causes else STRETCHES):
                false.append(rig.healthy(STRETCH_S))
                say(f"{turn + 1}/{runs} healthy stretch {stretch + 1}: {false[-1]} said")
            for number, cause in chosen:
                rig.anew()
                false.append(rig.healthy(phases.uniform(0.0, PHASE_S)))
                outcome = rig.run(cause, number, turn)
                outcomes.append(outcome)
                say(f"{turn + 1}/{runs} {cause.name} at {outcome.target}: {sentence(outcome)}")
    return figures(name, outcomes, false)


def sentence(outcome: Outcome) -> str:
    """Return what came of a cause, for a line of progress."""
    right = "right" if outcome.class_right and outcome.place_right else "WRONG"
    after = "never" if outcome.delay_s is None else f"{outcome.delay_s:.1f} s"
    return f"{right}, {after}, {text(outcome.said)}"


def figures(name: str, outcomes: Sequence[Outcome], false: Sequence[int]) -> list[Figure]:
    """Return the figures of some causes and healthy stretches."""

    def share(what: str, right: Sequence[bool], bar: float | None) -> Figure:
        row = figure(f"{name}: {what}", [float(one) for one in right], "of hangs", bar, ">=")
        return replace(row, value=sum(right) / len(right) if right else None)

    delays_s = sorted(o.delay_s for o in outcomes if o.delay_s is not None)
    p90_s = delays_s[min(len(delays_s) - 1, len(delays_s) * 9 // 10)] if delays_s else None
    rows = [
        share("class right", [o.class_right for o in outcomes], RIGHT_SHARE),
        share("rank or component right", [o.place_right for o in outcomes], RIGHT_SHARE),
        figure(f"{name}: hang → verdict, median", delays_s, "s", MEDIAN_S),
        replace(figure(f"{name}: hang → verdict, p90", delays_s, "s", P90_S), value=p90_s),
        replace(
            figure(f"{name}: said of healthy stretches", [float(n) for n in false], "", 0),
            value=float(sum(false)),
        ),
    ]
    for cause in dict.fromkeys(o.cause for o in outcomes):
        mine = [o.class_right and o.place_right for o in outcomes if o.cause == cause]
        rows.append(share(f"{cause}, both right", mine, None))
    return rows


PARTS: Final[Parts] = {
    "live": partial(measure, "live", live_bench),
    "dumps": partial(measure, "dumps alone", dumps_bench),
    "kills": kills.measure,
    "arena": arena.measure,
    "analysis": analysis.measure,
    "records": records.measure,
    "collector": collector.measure,
    "iteration": iteration.measure,
    "peers": peers.measure,
    "unrecorded": partial(unrecorded.measure, partial(live_bench, framework=JAX)),
}
# One run of the arena, with its six healthy hours, took half an hour beside other busy processes.
DEFAULT_RUNS: Final[Mapping[str, int]] = {
    "arena": 1,
    "analysis": 3,
    "records": 3,
    "collector": 3,
    # Pairs: noise of a few percent needs many.
    "iteration": 30,
    "peers": 1,
    "unrecorded": 1,
}
SOME: Final = tuple(cause.name for cause in CAUSES)
"""What `--causes` chooses from."""
SOME_OF: Final = ("live", "dumps", "unrecorded")
"""Parts that can measure some causes only, and keep their topics."""
