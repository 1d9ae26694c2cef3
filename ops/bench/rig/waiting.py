"""Waiting for something that a process does."""

import time
from collections.abc import Callable

POLL_S = 0.1


def wait_until(
    done: Callable[[], bool],
    timeout_s: float,
    otherwise: str,
    *,
    check: Callable[[], None] = lambda: None,
    poll_s: float = POLL_S,
) -> float:
    """Ask until it is done; return the monotonic time at which the last question was asked.

    Parameters
    ----------
    check
        Called each time; raises if there is nothing to wait for any more.

    Raises
    ------
    TimeoutError
        With `otherwise`, if it takes too long.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        check()
        asked = time.monotonic()
        if done():
            return asked
        if asked > deadline:
            raise TimeoutError(f"{otherwise} after {timeout_s:.0f} s")
        time.sleep(poll_s)
