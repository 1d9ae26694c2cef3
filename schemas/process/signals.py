"""Ctrl-C and SIGTERM: how a process is asked to end, and how it ends only once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from schemas.process.ending import end_within_after

# What asks a service to end, and what ends a command at a terminal.
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def call_on_stop(stop: Callable[[], None]) -> None:
    """Let SIGTERM and SIGINT call `stop`, from now on, and end the process should it hang."""
    for number in STOPPING:
        signal.signal(number, lambda _signal, _frame: stop())
    end_within_after(STOPPING)


def ignore_stop() -> None:
    """Let SIGTERM and SIGINT do nothing: the parent ends this process."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGINT, SIGTERM or SIGHUP; ignore those that follow.

    So `finally` blocks inside run to their end, however impatient the user is.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_flag() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether SIGINT, SIGTERM or SIGHUP has come.

    For loops that must end between two steps, never inside one. A second signal
    raises KeyboardInterrupt, so that a step that hangs can be left.
    """
    asked = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, ask) for number in ENDING}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
