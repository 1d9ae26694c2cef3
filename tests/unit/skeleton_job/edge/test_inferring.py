"""Several inferences at a time: in which order they are answered, and what is lost when."""

import os
import signal
import time

import numpy as np
import pytest

from skeleton_job.edge.inferring import Inferring, died
from skeleton_job.job import Job
from skeleton_job.layout.skeleton import Inference
from skeleton_job.series.readings import Readings
from skeleton_job.tasks.inference import DueInference, InferenceInput

TIMEOUT_S = 60.0
NOBODY = Readings(
    endpoints=(), begin=np.empty(0, np.int64), end=np.empty(0, np.int64),
    time_ns=np.empty(0, np.int64), tx_bytes=np.empty(0, np.uint64),
    rx_bytes=np.empty(0, np.uint64), bits=np.empty(0, np.int64),
)  # fmt: skip


class Slow(InferenceInput):
    """Takes as long as its window begins late."""

    def infer(self) -> Inference:
        """Return an inference that names the job."""
        time.sleep(self.window_ns[0] / 1e9)
        return Inference(confidence=0.5, reason=self.job.task_id)


class Signalled(InferenceInput):
    """Somebody ends all processes of the service while it is made."""

    def infer(self) -> Inference:
        """Return an inference all the same."""
        os.kill(os.getpid(), signal.SIGTERM)
        return Inference(confidence=0.5, reason=self.job.task_id)


class Deadly(InferenceInput):
    """Ends its worker, as a host without memory does."""

    def infer(self) -> Inference:
        """Return nothing."""
        os._exit(9)


def ask(inferring: Inferring, sort: type[InferenceInput], name: str, takes_s: float = 0.0) -> None:
    """Ask for an inference of a job."""
    window_ns = (round(takes_s * 1e9), 0)
    inferring.submit(
        DueInference(name, window_ns), sort(Job(task_id=name, rnics=()), window_ns, NOBODY)
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_answers_come_in_the_order_of_the_questions(workers: int) -> None:
    """However long each takes: what is published depends on no scheduler."""
    inferring = Inferring(workers)
    try:
        for name, takes_s in (("slow", 0.5), ("b", 0.0), ("c", 0.0)):
            ask(inferring, Slow, name, takes_s)
        found = list(inferring.finished(TIMEOUT_S))
        assert [a.future.result().reason for a in found] == ["slow", "b", "c"]
        assert [a.due.task_id for a in found] == ["slow", "b", "c"]
    finally:
        inferring.close()


def test_no_more_is_asked_than_there_are_workers() -> None:
    """The readings of all jobs at once would fill the memory."""
    inferring = Inferring(2)
    try:
        asked = 0
        while inferring.has_room:
            ask(inferring, Slow, f"job-{asked}", 2.0)
            asked += 1
        assert asked == 2
        assert not list(inferring.finished())
    finally:
        inferring.close()


def test_a_signal_to_all_processes_ends_no_inference() -> None:
    """Who stops a unit signals its whole group: the service decides what workers still do."""
    inferring = Inferring(2)
    try:
        ask(inferring, Signalled, "a")
        (found,) = inferring.finished(TIMEOUT_S)
        assert found.future.result().reason == "a"
    finally:
        inferring.close()


def test_of_a_worker_that_dies_only_its_own_inference_is_lost() -> None:
    """What was in the making beside it is told, to be asked again; and that works."""
    inferring = Inferring(2)
    try:
        ask(inferring, Deadly, "a")
        ask(inferring, Slow, "b", 5.0)
        found = next(inferring.finished(TIMEOUT_S))
        assert died(found)
        assert [due.task_id for due in inferring.begin_anew()] == ["b"]
        ask(inferring, Slow, "b")
        (found,) = inferring.finished(TIMEOUT_S)
        assert found.future.result().reason == "b"
        assert not died(found)
    finally:
        inferring.close()
