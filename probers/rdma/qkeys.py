"""Q_Keys: a queue pair takes only datagrams that carry its own."""

import os
from typing import Final

# With the highest bit set they are controlled: only privileged programs may send with them
# (IBTA volume 1, section 10.2.5).
_UNCONTROLLED: Final = (1 << 31) - 1


def random_qkey() -> int:
    """Return a Q_Key that nobody else uses.

    Numbers of queue pairs are given again soon after a program ends: with a key drawn at each
    start, whoever still probes its predecessor reaches nobody instead of a stranger.
    """
    return int.from_bytes(os.urandom(4), "big") & _UNCONTROLLED
