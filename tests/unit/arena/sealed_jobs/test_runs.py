"""A job over a capture: what interrupts it, and in which order."""

import numpy as np
import pytest

from arena.sealed_jobs.fleet import FloatArray
from arena.sealed_jobs.runs import Interruptions, Run, draw_interruptions, run_job
from arena.sealed_jobs.traffic import Traffic


class Steady:
    """A job whose iterations last a second, stragglers longer, evaluations half."""

    slow_shape = (2, 3)

    def iterations(
        self,
        rng: np.random.Generator,
        count: int,
        *,
        slow: FloatArray | None = None,
        evaluating: bool = False,
    ) -> Traffic:
        """Return durations without transfers."""
        del rng
        factors = np.ones(count) if slow is None else slow.max(axis=(1, 2))
        return Traffic(seconds=factors * (0.5 if evaluating else 1.0))


def run_with(seed: int = 0, **interruptions: float) -> Run:
    """Run for a hundred seconds."""
    return run_job(
        np.random.default_rng(seed),
        Steady(),
        seconds=100.0,
        typical_s=1.0,
        interruptions=Interruptions(**interruptions),  # type: ignore[arg-type]
    )


def starts(run: Run) -> FloatArray:
    """Return the starts of the iterations in the capture."""
    return run.starts[np.isfinite(run.starts)]


def test_iterations_fill_the_capture() -> None:
    """From before its start to its end, one after another."""
    run = run_with()
    at = starts(run)
    assert at[0] <= 0
    assert at[-1] > 98
    assert (np.diff(at) > 1 - 1e-9).all()
    assert not run.checkpoints
    assert run.evaluation is None


def test_training_pauses_for_checkpoints() -> None:
    """No iteration starts within a pause."""
    run = run_with(checkpoint_every=10, checkpoint_s=5.0)
    at = starts(run)
    assert 5 <= len(run.checkpoints) <= 9
    assert not any(begin < s < end for s in at for begin, end in run.checkpoints)


def test_asynchronous_checkpoints_do_not_pause() -> None:
    """Iterations go on while bytes are written."""
    run = run_with(checkpoint_every=10, checkpoint_s=5.0, asynchronous=True)
    assert len(starts(run)) > 90
    assert len(run.checkpoints) >= 9


def test_evaluations_stand_between_iterations() -> None:
    """Two passes of half a second each time."""
    run = run_with(evaluate_every=20, evaluations=2)
    assert run.evaluation is not None
    assert run.evaluation_starts.shape[1] == 2
    at = starts(run)
    for first, second in run.evaluation_starts:
        assert second == pytest.approx(first + 0.5)
        assert not any(first < s < first + 1 - 1e-9 for s in at)


def test_a_late_job_starts_within_the_capture() -> None:
    """Its first iterations are slow."""
    at = starts(run_with(starts_late=0.2))
    assert at[0] == pytest.approx(20)
    assert at[1] - at[0] >= 1.3


def test_a_straggler_makes_some_iterations_longer() -> None:
    """Not all of them."""
    lengths = np.diff(starts(run_with(straggler=1.5)))
    assert 0 < (lengths >= 1.5).mean() < 0.9


def test_interruptions_leave_most_of_the_capture() -> None:
    """Whatever is drawn."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        drawn = draw_interruptions(rng, 120.0, 1.0)
        run = run_job(rng, Steady(), seconds=120.0, typical_s=1.0, interruptions=drawn)
        assert len(starts(run)) > 60
