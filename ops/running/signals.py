"""Ctrl-C and SIGTERM end a command once, and do not disturb its cleaning up."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
