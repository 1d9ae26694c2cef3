"""Detection in a process of its own, beside the localizer.

It takes about half of the time, and needs nothing of the localizer. Of a small recording all is
done in one process: another one takes a second to begin.
"""

import fcntl
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final, NamedTuple

from arena.detecting import Detection
from ops.recording.container import DamageError
from ops.recording.detecting import Detected, FileDetection
from ops.recording.order import RoundSlot
from ops.recording.rounds import RoundFile, RoundReader
from ops.recording.source import KERNELS_FROM_BYTES, THREADS
from schemas.process import memory
from schemas.process.signals import ENDING
from streams.config import DetectionConfig

# Rounds of 2 to 3 million results, which are detected in a second.
APART_FROM_BYTES: Final = 32 * 2**20
# What the process that detects may be ahead, where the system lets a pipe be so large: some minutes
# of event time. With less, each waits for the other again and again.
LEAD_BYTES: Final = 2**20
# How often it is asked whether to stop, where nothing comes.
LOOK_S: Final = 0.2

Stop = Callable[[], bool]


class LostProcessError(RuntimeError):
    """The process that detects ended before its work was done."""


class DetectionTask(NamedTuple):
    """Which rounds are taken by which workers; see `FileDetection`."""

    file: RoundFile
    cluster: str
    config: DetectionConfig
    from_ms: int | None = None
    to_ms: int | None = None

    def run(self) -> Generator[RoundSlot[Detected] | DamageError, None, None]:
        """Yield slot by slot what is detected, and last what is wrong with the file."""
        kernels = self.file.size >= KERNELS_FROM_BYTES
        with ThreadPoolExecutor(THREADS, thread_name_prefix="rounds") as pool:
            try:
                reader = RoundReader(self.file, pool, kernels=kernels)
            except DamageError as error:
                yield error
                return
            with closing(reader):
                yield from self._detect(reader)

    def _detect(self, reader: RoundReader) -> Iterator[RoundSlot[Detected] | DamageError]:
        detection = Detection(self.cluster, self.config)
        workers = FileDetection(detection, reader.ends, from_ms=self.from_ms, to_ms=self.to_ms)
        damage: DamageError | None = None
        with closing(reader.read()) as every:
            try:
                for rounds in every:
                    workers.add(rounds)
                    yield from workers.pop_due()
                    if workers.ended:
                        break
            except DamageError as error:
                damage = error
        yield from workers.finish()
        if damage is not None:
            yield damage


@dataclass(slots=True)
class DetectedRounds:
    """The slots of a recording's rounds with what workers make of them, to iterate over once.

    `damage`: what is wrong with the file, known at the end. Iterating raises LostProcessError if
    a process that detects ends too early, as one does that is killed.
    """

    _told: Iterator[RoundSlot[Detected] | DamageError]
    damage: DamageError | None = None

    def __iter__(self) -> Iterator[RoundSlot[Detected]]:
        for one in self._told:
            if isinstance(one, DamageError):
                self.damage = one
            else:
                yield one


@contextmanager
def detected_rounds(
    task: DetectionTask | None, processes: int, stop: Stop = lambda: False
) -> Iterator[DetectedRounds]:
    """Give what is detected; None: there are no rounds.

    With two processes one is for this, if the recording is large. It is spawned: a script that
    calls this needs the usual `if __name__ == "__main__"`. Where `stop` says so, it is not waited
    for, and what it has told is all.
    """
    if task is None:
        yield DetectedRounds(iter(()))
        return
    if processes == 1 or task.file.size < APART_FROM_BYTES:
        with closing(task.run()) as told:
            yield DetectedRounds(told)
        return
    spawn = get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    with here:
        with there:
            _widen(there)
            process = spawn.Process(target=_detect, args=(task, there), daemon=True)
            with _spawned_unasked():
                process.start()
        try:
            yield DetectedRounds(_received(here, process, stop))
        finally:
            process.kill()
            process.join()


@contextmanager
def _spawned_unasked() -> Iterator[None]:
    """Keep SIGINT, SIGTERM and SIGHUP from a process that is spawned inside: the parent ends it.

    From its first moment on: importing what it works with takes a second or two, in which Ctrl-C at
    the terminal would end it with a traceback. To this thread they come afterwards.
    """
    # It is begun with the first process that is spawned, and takes the block off.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _widen(pipe: Connection) -> None:
    """Let a pipe hold `LEAD_BYTES`; a smaller one does as well where the system has no more."""
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, LEAD_BYTES)


def _received(
    pipe: Connection, process: BaseProcess, stop: Stop
) -> Iterator[RoundSlot[Detected] | DamageError]:
    while True:
        while not pipe.poll(LOOK_S):
            if stop():
                return
        try:
            got: RoundSlot[Detected] | DamageError | None = pipe.recv()
        except EOFError as error:
            process.join()
            raise LostProcessError(_how_it_ended(process.exitcode)) from error
        if got is None:
            return
        yield got


def _how_it_ended(exit_code: int | None) -> str:
    """Say how the process that detects came to its end.

    >>> _how_it_ended(-9)
    'the process that detects was killed by SIGKILL; was it out of memory?'
    >>> _how_it_ended(1)
    'the process that detects has ended with an error, which stands above'
    """
    if exit_code is None or exit_code >= 0:
        return "the process that detects has ended with an error, which stands above"
    name = signal.Signals(-exit_code).name
    guess = "; was it out of memory?" if -exit_code == signal.SIGKILL else ""
    return f"the process that detects was killed by {name}{guess}"


def _detect(task: DetectionTask, out: Connection) -> None:
    """Send slot by slot what is detected; the pipe's size is the lead."""
    try:
        with memory.collecting_rarely():
            for one in chain(task.run(), [None]):
                out.send(one)
    except BrokenPipeError:
        # Nobody reads on.
        return
