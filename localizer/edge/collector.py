"""What the collector of garbage need not look at: a million paths that stay."""

import gc
from typing import Final

# Decisions make records by the hundred thousand, none of which holds itself: a pass finds
# nothing and takes its time, and in the middle of a decision a verdict would wait for it. So
# passes are made between decisions, when so many more are there than went.
YOUNG: Final = 100_000
# Passes over what is new between those over what was new then; of these, between those over all.
OLDER: Final = 20
OLDEST: Final = 100


def begin() -> None:
    """Make no pass from now on but by `tend`: while a million paths come, each finds nothing."""
    gc.disable()


def settle() -> None:
    """Leave what is there now out of all later passes."""
    gc.freeze()


def tend() -> None:
    """Make a pass if it is time, after `begin`; for the time between decisions."""
    young, older, oldest = gc.get_count()
    if gc.isenabled() or young < YOUNG:
        return
    gc.collect(2 if oldest >= OLDEST else 1 if older >= OLDER else 0)
