"""Inferences that run, several at a time; their results come in the order of submission.

In processes: an inference is numpy on small matrices and Python between, which two threads
only take turns at. What a worker gets is one job's readings, what it gives back is small.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from threading import Thread
from typing import Final

from schemas.process.signals import ignore_stop
from skeleton_job.layout.skeleton import Inference
from skeleton_job.tasks.inference import DueInference, InferenceInput

# Finished ones that wait for an earlier one, for each worker: tasks are not equally large.
AHEAD: Final = 2
# Threads of the linear algebra wait for each other in a loop; matrices are too small for two.
ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class RunningInference:
    """An inference that was submitted, at a monotonic time; `inputs` has no readings any more."""

    due: DueInference
    inputs: InferenceInput
    future: Future[Inference]
    begun_s: float


class Inferring:
    """Workers, and the inferences that they run.

    Parameters
    ----------
    workers
        How many inferences are made at a time. One is made in a thread of this process, more
        in processes of their own.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = self._begin()
        self._running: deque[RunningInference] = deque()

    @property
    def has_room(self) -> bool:
        """Whether a worker has nothing to do, and not too much waits to be answered."""
        busy = sum(not running.future.done() for running in self._running)
        return busy < self._workers and len(self._running) < AHEAD * self._workers

    @property
    def busy(self) -> bool:
        """Whether anything is in the making, or waits to be answered."""
        return bool(self._running)

    def submit(self, due: DueInference, inputs: InferenceInput) -> None:
        """Begin an inference.

        Raises
        ------
        BrokenExecutor
            If a worker has died: `begin_anew` says what was lost.
        """
        try:
            future = self._pool.submit(inputs.infer)
        except BrokenExecutor:
            if self._running:
                raise
            # It had nothing to do: nothing is lost.
            self.begin_anew()
            future = self._pool.submit(inputs.infer)
        begun = RunningInference(due, inputs.without_readings(), future, time.monotonic())
        self._running.append(begun)

    def finished(self, timeout_s: float = 0.0) -> Iterator[RunningInference]:
        """Yield what is finished and whose turn it is.

        Parameters
        ----------
        timeout_s
            How long to wait for the next.
        """
        while self._running:
            head = self._running[0].future
            if not head.done() and not (timeout_s and _wait(head, timeout_s)):
                return
            yield self._running.popleft()

    def begin_anew(self) -> list[DueInference]:
        """Replace workers of which one has died; return what was in the making."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._begin()
        lost = [running.due for running in self._running]
        self._running.clear()
        return lost

    def close(self) -> None:
        """Let the workers end; what is in the making is waited for."""
        self._pool.shutdown(cancel_futures=True)

    def _begin(self) -> Executor:
        if self._workers == 1:
            return ThreadPoolExecutor(1, "inference")
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # Not forked: librdkafka has threads. And begun when there is work for them.
        return ProcessPoolExecutor(
            self._workers, mp_context=get_context("spawn"), initializer=_work_quietly
        )


def died(running: RunningInference) -> bool:
    """Say whether an inference ended because its worker did."""
    return isinstance(running.future.exception(), BrokenExecutor)


def _wait(future: Future[Inference], timeout_s: float) -> bool:
    try:
        future.exception(timeout_s)
    except TimeoutError:
        return False
    return True


def _work_quietly() -> None:
    """Leave signals to the parent, which tells workers when to end; end when it is gone."""
    ignore_stop()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
