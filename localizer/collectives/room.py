"""One bound of what is held of all jobs together, and who makes room when it is reached.

Rooms are shared so that nobody loses who holds less than an equal share (max-min fairness): one job
of which a broken collector tells too much costs the others nothing.
"""

from collections.abc import Iterable
from typing import Final

# An operation takes 145 bytes of columns and, once an analysis of a hang has made its record, some
# 400 more: 0.3 GB, at worst 1.1 GB. What operations refer to counts by its entries, which take some
# hundred bytes each. A job of 10,240 ranks holds some 400,000, one of 1,024 with little history
# 40,000.
MOST_HELD: Final = 2_000_000
# Room is made beyond what is needed, so that it is not made for each record anew.
FULL_SHARE: Final = 7 / 8
LEFT_SHARE: Final = 3 / 4
# Below this nobody is short of room any more.
EASY_SHARE: Final = 1 / 2


def fair_level(held: Iterable[int], room: int) -> int:
    """Return up to how much each may hold, so that all together have room.

    Those who hold less than an equal share leave the rest of theirs to the others.

    >>> fair_level([10, 20, 90], 90)
    60
    >>> fair_level([10, 20], 90)
    90
    """
    left = room
    ordered = sorted(held)
    for place, one in enumerate(ordered):
        share = left // (len(ordered) - place)
        if one > share:
            return share
        left -= one
    return room
