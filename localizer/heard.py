"""When each agent was heard last, as arrays: who is silent is asked at every decision."""

from typing import Final

import numpy as np

from localizer.blocks import Ints

FIRST: Final = 1_024


class Heard:
    """Times of the last signs of life, and the intervals at which they are due."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._names: list[str] = []
        # By place: when it was heard, and the interval, shape (2, capacity).
        self._times: Ints = np.ones((2, FIRST), np.int64)

    def put(self, agent_id: str, heard_ns: int, interval_ns: int) -> None:
        """Note when an agent was heard last, and how often it is to be."""
        place = self._places.setdefault(agent_id, len(self._names))
        if place == len(self._names):
            self._names.append(agent_id)
            if place == self._times.shape[1]:
                self._times = np.concatenate([self._times, np.ones_like(self._times)], axis=1)
        self._times[0, place] = heard_ns
        self._times[1, place] = interval_ns

    def drop(self, agent_id: str) -> None:
        """Forget an agent; the last one takes its place."""
        place = self._places.pop(agent_id, None)
        if place is None:
            return
        last = self._names.pop()
        if last != agent_id:
            self._names[place], self._places[last] = last, place
            self._times[:, place] = self._times[:, len(self._names)]

    def silent(self, now_ns: int, intervals: float) -> list[str]:
        """Return the agents that are silent for more than so many of their intervals."""
        heard_ns, interval_ns = self._times[:, : len(self._names)]
        late = np.flatnonzero((now_ns - heard_ns) / interval_ns > intervals)
        return [self._names[place] for place in late.tolist()]
