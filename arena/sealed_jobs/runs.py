"""A job over a capture: iterations one after another, with what interrupts them.

A job may start within the capture, with slow first iterations. It may pause to write checkpoints
or to evaluate, and a rank may be slow for a while.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from arena.sealed_jobs.fleet import FloatArray
from arena.sealed_jobs.traffic import Traffic


class Simulated(Protocol):
    """A job whose iterations can be simulated."""

    @property
    def slow_shape(self) -> tuple[int, int]:
        """Sets of replicas in lockstep, and stages."""

    def iterations(
        self,
        rng: np.random.Generator,
        count: int,
        *,
        slow: FloatArray | None = None,
        evaluating: bool = False,
    ) -> Traffic:
        """Simulate iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a job did in a capture.

    Attributes
    ----------
    training, starts
        Traffic of the training iterations, and when they start in seconds since the capture's
        start; shape (iterations,).
    evaluation, evaluation_starts
        The same of evaluations; None and empty without.
    checkpoints
        Start and end of each time in which checkpoints are written.
    iteration_s
        Median duration of a training iteration.
    """

    training: Traffic
    starts: FloatArray
    evaluation: Traffic | None
    evaluation_starts: FloatArray
    checkpoints: tuple[tuple[float, float], ...]
    iteration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """What may happen to a job.

    Attributes
    ----------
    starts_late
        Share of the capture before the job's first iteration; 0: it runs already.
    checkpoint_every, checkpoint_s
        Iterations between checkpoints, and how long each takes; 0: none.
    asynchronous
        Training goes on while checkpoints are written.
    evaluate_every, evaluations
        Iterations between evaluations, and passes of each; 0: none.
    straggler
        Factor of a slow rank for a part of the capture; 1: none.
    """

    starts_late: float = 0.0
    checkpoint_every: int = 0
    checkpoint_s: float = 0.0
    asynchronous: bool = False
    evaluate_every: int = 0
    evaluations: int = 0
    straggler: float = 1.0


def draw_interruptions(
    rng: np.random.Generator, seconds: float, iteration_s: float
) -> Interruptions:
    """Draw interruptions that leave most of the capture to training."""
    count = int(seconds / iteration_s)
    checkpoints = rng.random() < 0.4
    evaluates = rng.random() < 0.15
    return Interruptions(
        starts_late=float(rng.uniform(0.03, 0.25)) if rng.random() < 0.12 else 0.0,
        checkpoint_every=int(rng.integers(max(3, count // 4), max(5, count))) if checkpoints else 0,
        checkpoint_s=float(rng.uniform(0.01, 0.05) * seconds),
        asynchronous=bool(rng.random() < 0.3),
        evaluate_every=int(rng.integers(max(3, count // 2), max(5, count))) if evaluates else 0,
        evaluations=int(rng.integers(1, 4)),
        straggler=float(rng.uniform(1.08, 1.5)) if rng.random() < 0.2 else 1.0,
    )


def typical_iteration_s(rng: np.random.Generator, job: Simulated) -> float:
    """Return the median duration of a few iterations."""
    return float(np.median(job.iterations(rng, 5).seconds))


def run_job(
    rng: np.random.Generator,
    job: Simulated,
    *,
    seconds: float,
    typical_s: float,
    interruptions: Interruptions,
) -> Run:
    """Simulate a job over a capture.

    Parameters
    ----------
    typical_s
        Typical duration of an iteration.
    """
    count = int(seconds / typical_s * 1.1) + 4
    training = job.iterations(rng, count, slow=_slowness(rng, job, count, interruptions))
    late = interruptions.starts_late
    at = late * seconds if late else -float(rng.uniform(0, 1)) * float(training.seconds[0])
    phase = 0 if late else int(rng.integers(1000))
    starts, evaluated = np.full(count, np.inf), []
    checkpoints = []
    evaluation = None
    if interruptions.evaluate_every:
        evaluation = job.iterations(rng, max(1, interruptions.evaluations), evaluating=True)
    for number in range(count):
        if at > seconds:
            break
        starts[number] = at
        at += float(training.seconds[number]) + _hiccup(rng, typical_s)
        done = number + 1 + phase
        if interruptions.checkpoint_every and done % interruptions.checkpoint_every == 0:
            pause_s = interruptions.checkpoint_s * float(rng.uniform(0.8, 1.3))
            checkpoints.append((at, at + pause_s))
            at += 0.1 if interruptions.asynchronous else pause_s
        if evaluation is not None and done % interruptions.evaluate_every == 0:
            evaluated.append(at + np.concatenate([[0.0], np.cumsum(evaluation.seconds)[:-1]]))
            at += float(evaluation.seconds.sum())
    return Run(
        training=training,
        starts=starts,
        evaluation=evaluation if evaluated else None,
        evaluation_starts=np.array(evaluated),
        checkpoints=tuple(checkpoints),
        iteration_s=typical_s,
    )


def _hiccup(rng: np.random.Generator, typical_s: float) -> float:
    """Return a rare delay between iterations: the data loader, garbage collection."""
    return float(rng.exponential(0.15 * typical_s)) if rng.random() < 0.04 else 0.0


def _slowness(
    rng: np.random.Generator, job: Simulated, count: int, interruptions: Interruptions
) -> FloatArray:
    """Return factors of durations; shape (iterations, units, stages)."""
    units, stages = job.slow_shape
    slow = np.ones((count, units, stages))
    if interruptions.straggler > 1:
        first = int(rng.integers(count))
        last = first + max(1, int(count * rng.uniform(0.1, 0.5)))
        place = int(rng.integers(units)), int(rng.integers(stages))
        slow[first:last, place[0], place[1]] = interruptions.straggler
    if interruptions.starts_late:
        slow[0] *= rng.uniform(1.3, 2.5)
        slow[1] *= rng.uniform(1.0, 1.3)
    return slow
