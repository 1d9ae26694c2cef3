"""When something is on: always, in pulses, in bursts, or in the bad state of a Gilbert channel."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FOREVER_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class Schedule:
    """Disjoint stretches of time, in order.

    Attributes
    ----------
    starts, ends : shape (n,), seconds since the start of the world
    """

    starts: Floats
    ends: Floats

    @property
    def begin_s(self) -> float:
        """When it is on first."""
        return float(self.starts[0])

    @property
    def end_s(self) -> float:
        """When it is on last."""
        return float(self.ends[-1])

    @property
    def on_s(self) -> float:
        """How long it is on in all."""
        return float((self.ends - self.starts).sum())

    def on(self, at_s: Floats) -> Bools:
        """Return whether it is on at each of these times (any shape)."""
        if len(self.starts) == 1:
            return np.asarray((at_s >= self.starts[0]) & (at_s < self.ends[0]))
        place = np.searchsorted(self.starts, at_s, side="right") - 1
        return np.asarray((place >= 0) & (at_s < self.ends[np.maximum(place, 0)]))

    def remaining(self, at_s: Floats) -> Floats:
        """Return how long the stretch at each of these times still lasts; 0 between stretches."""
        place = np.maximum(np.searchsorted(self.starts, at_s, side="right") - 1, 0)
        left = self.ends[place] - at_s
        return np.where((left > 0.0) & (at_s >= self.starts[place]), left, 0.0)

    def during(self, begin_s: float, end_s: float) -> "Schedule":
        """Return the part between two times; at least one, maybe empty, stretch."""
        starts, ends = np.maximum(self.starts, begin_s), np.minimum(self.ends, end_s)
        keep = ends > starts
        if not keep.any():
            return Schedule(np.array([begin_s]), np.array([begin_s]))
        return Schedule(starts[keep], ends[keep])


def steady(begin_s: float, end_s: float = FOREVER_S) -> Schedule:
    """Return one stretch."""
    return Schedule(np.array([begin_s]), np.array([end_s]))


def pulses(
    rng: np.random.Generator, begin_s: float, end_s: float, *, on_s: float, share: float
) -> Schedule:
    """Return stretches of random length, on for a share of the time; the first begins at once.

    Parameters
    ----------
    on_s
        Mean length of a stretch. Lengths, and pauses, lie within half and one and a half of their
        means: what wears out or overheats has a rhythm, but no clock.
    share
        Of the time, 0 to 1.
    """
    off_s = on_s * (1.0 - share) / share
    starts, ends, at_s = [], [], begin_s
    while at_s < end_s:
        length = on_s * rng.uniform(0.5, 1.5)
        starts.append(at_s)
        ends.append(min(at_s + length, end_s))
        at_s += length + off_s * rng.uniform(0.5, 1.5)
    return Schedule(np.array(starts), np.array(ends))


def renewal(
    rng: np.random.Generator, begin_s: float, end_s: float, *, on_s: float, off_s: float
) -> Schedule:
    """Return an alternating renewal process with exponential stretches, off at first.

    With loss while it is on, it is the continuous-time channel of Gilbert and Elliott.
    """
    count = int((end_s - begin_s) / (on_s + off_s) * 1.5) + 20
    gaps = rng.exponential(off_s, count)
    lengths = np.maximum(rng.exponential(on_s, count), 1e-6)
    starts = begin_s + np.cumsum(gaps) + np.concatenate(([0.0], np.cumsum(lengths)[:-1]))
    ends = starts + lengths
    keep = starts < end_s
    if not keep.any():
        keep[0] = True
        starts[0], ends[0] = end_s - on_s, end_s
    return Schedule(starts[keep], np.minimum(ends[keep], end_s))


def intersection(outer: Schedule, inner: Schedule) -> Schedule:
    """Return where both are on."""
    parts = [
        inner.during(float(a), float(b)) for a, b in zip(outer.starts, outer.ends, strict=True)
    ]
    return Schedule(
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
    )
