"""Compares healthy round trips of the simulator with recorded ones: pure functions of arrays.

Two networks differ in speed, spread and tails, and nobody takes a loopback for RoCE. What
must not differ is what only a generator of numbers would do: values that repeat, delays
that never vary, clocks that tick in round numbers. These are `TELLTALES`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import rankdata

from schemas.columns.arrays import Floats, Int64s

# A 5-tuple with fewer answers has no quantiles to speak of.
MIN_ANSWERS: Final = 60
MAX_LAG: Final = 20
# A median absolute deviation of a normal variable is this much of its standard deviation.
MAD: Final = 1.4826
# Round trips as far apart as these are so by chance.
NEAR_NS: Final = (1, 2, 3, 4, 5)
# A telltale of the simulator's alone: so much above three times the recorded share.
SLACK: Final = 0.02
FACTOR: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trips:
    """Answered probes in order of sending; columns of one length.

    Attributes
    ----------
    name : whose they are
    flow : number of the 5-tuple
    sent_ns, rtt_ns, host_ns, responder_ns : as in `probe.round.v1`; -1 where not measured
    """

    name: str
    flow: Int64s
    sent_ns: Int64s
    rtt_ns: Int64s
    host_ns: Int64s
    responder_ns: Int64s

    def each(self, column: Int64s) -> Iterator[Int64s]:
        """Yield a column's values of each 5-tuple with enough of them."""
        order = np.argsort(self.flow, kind="stable")
        ends = np.flatnonzero(np.diff(self.flow[order])) + 1
        for part in np.split(column[order], ends):
            if len(part) >= MIN_ANSWERS:
                yield part


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What healthy round trips look like.

    Attributes
    ----------
    paths : 5-tuples with enough answers
    median_ns, sigma : median of the medians; of the robust deviations of the logarithm
    levels, quantiles : probabilities, and the quantiles of the standardized logarithm there
    correlation : (MAX_LAG,) of neighbouring rounds of a 5-tuple, mean
    telltales : share by name, see `TELLTALES`
    """

    name: str
    paths: int
    median_ns: float
    sigma: float
    levels: Floats
    quantiles: Floats
    correlation: Floats
    telltales: Mapping[str, float]


def shape(trips: Trips) -> Shape:
    """Return the shape of round trips.

    Raises
    ------
    ValueError
        If no 5-tuple has enough answers.
    """
    logs = [np.log(np.maximum(part, 1)) for part in trips.each(trips.rtt_ns)]
    if not logs:
        raise ValueError(
            f"{trips.name}: no 5-tuple has {MIN_ANSWERS} answers; record for longer than a minute"
        )
    scaled = np.concatenate([standard(part) for part in logs])
    levels = np.concatenate([np.linspace(0.001, 0.999, 999), [0.9995, 0.9999]])
    return Shape(
        name=trips.name,
        paths=len(logs),
        median_ns=float(np.exp(np.median([np.median(part) for part in logs]))),
        sigma=float(np.median([_deviation(part) for part in logs])),
        levels=levels,
        quantiles=np.quantile(scaled, levels),
        correlation=np.mean([autocorrelation(standard(part)) for part in logs], axis=0),
        telltales={name: share(trips) for name, share in TELLTALES.items()},
    )


def standard(logs: Floats) -> Floats:
    """Return values less their median, in robust standard deviations."""
    out: Floats = (logs - np.median(logs)) / max(_deviation(logs), 1e-12)
    return out


def autocorrelation(values: Floats) -> Floats:
    """Return the correlation of the values' ranks at lags 1 to `MAX_LAG`, (MAX_LAG,)."""
    rank = rankdata(values)
    centred = rank - rank.mean()
    power = max(float((centred**2).sum()), 1e-12)
    return np.array(
        [(centred[lag:] * centred[:-lag]).sum() / power for lag in range(1, MAX_LAG + 1)]
    )


def _deviation(values: Floats) -> float:
    return MAD * float(np.median(np.abs(values - np.median(values))))


def _repeated(trips: Trips) -> float:
    """Return by how much more than chance round trips repeat to the nanosecond.

    Chance is how often two of a 5-tuple differ by a few nanoseconds.
    """
    parts = list(trips.each(trips.rtt_ns))
    excess = 0.0
    for part in parts:
        value, count = np.unique(part, return_counts=True)
        near = [
            float((count[np.isin(value, value - d)] * count[np.isin(value, value + d)]).sum())
            for d in NEAR_NS
        ]
        # Two places of a pair for an equal one, one for one that differs: half of these.
        excess += float((count * (count - 1)).sum() - np.mean(near)) / 2
    return min(1.0, max(0.0, excess / max(1, sum(map(len, parts)))))


def _round(trips: Trips) -> float:
    """Return by how much more than chance round trips are whole tenths of a microsecond."""
    parts = list(trips.each(trips.rtt_ns))
    values = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return max(0.0, float((values % 100 == 0).mean()) - 0.01) if len(values) else 0.0


def _frozen(column: str) -> Callable[[Trips], float]:
    def share(trips: Trips) -> float:
        """Return the share of 5-tuples in which half of a column's values are one value."""
        values: Int64s = getattr(trips, column)
        parts = list(trips.each(values))
        return sum(int(p.max()) >= 0 and _is_steady(p) for p in parts) / max(1, len(parts))

    return share


def _paced(trips: Trips) -> float:
    """Return the share of 5-tuples whose probes are sent to the microsecond of a usual step."""
    parts = [np.diff(p) // 1_000 for p in trips.each(trips.sent_ns)]
    return sum(map(_is_steady, parts)) / max(1, len(parts))


def _is_steady(values: Int64s) -> bool:
    """Return whether more than half of the values are one value."""
    return bool(np.unique(values, return_counts=True)[1].max() > len(values) / 2)


# What a generator of numbers would show and a network does not, each a share from 0 to 1.
TELLTALES: Final[Mapping[str, Callable[[Trips], float]]] = {
    "round trips that repeat": _repeated,
    "round trips in round numbers": _round,
    "5-tuples whose prober delay never varies": _frozen("host_ns"),
    "5-tuples whose responder delay never varies": _frozen("responder_ns"),
    "5-tuples probed at exact steps": _paced,
}


def telling(simulated: Shape, recorded: Shape) -> list[str]:
    """Return the telltales that the simulator has and the recording has not."""
    return [
        name
        for name, share in simulated.telltales.items()
        if share > FACTOR * recorded.telltales[name] + SLACK
    ]
