"""How many seconds a consumer group is behind, from its offsets and the ends of the log. Pure.

In seconds and not in messages: a message is a round of a few results or of hundreds, and a
thousand messages are nothing to one worker and a minute to another.
"""

from collections import deque
from collections.abc import Mapping


class LagClock:
    """Remembers when each partition's end was where; says when what is committed now came in.

    As fine as it is asked: what came in between two looks counts from the first of them.
    """

    def __init__(self) -> None:
        self._ends: dict[int, deque[tuple[float, int]]] = {}

    def look(
        self, now_s: float, ends: Mapping[int, int], committed: Mapping[int, int | None]
    ) -> tuple[float, int]:
        """Return how far the group is behind: seconds of the worst partition, messages of all.

        Parameters
        ----------
        ends : end of each partition now
        committed : the group's offsets; None: none yet
        """
        worst_s, messages = 0.0, 0
        for partition, end in ends.items():
            known = self._ends.setdefault(partition, deque())
            known.append((now_s, end))
            done = committed.get(partition) or 0
            # The newest look at which all there was is committed by now stays: from it on we wait.
            while len(known) > 1 and known[1][1] <= done:
                known.popleft()
            messages += max(0, end - done)
            if done < end:
                worst_s = max(worst_s, now_s - known[0][0])
        return worst_s, messages
