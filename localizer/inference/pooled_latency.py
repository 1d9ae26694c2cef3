"""Find components whose 5-tuples are later than chance explains: small rises, pooled.

A worker reports a 5-tuple whose round trip has risen by little (WEAK_LATENCY). By chance a few per
cent are reported at any time, all over the network; when a job begins to exchange data, many more.
A slow component shows in that the 5-tuples that cross it are reported more often than all others.

Test. Of n 5-tuples that cross a component k are late now; of all others a share p is. Without a
fault, by Chernoff's bound,

    P(k or more | no fault) <= exp(-n * KL(k / n, p))

where KL is the divergence of two Bernoulli distributions. The bound is compared with the false
alarms that are accepted, divided by the number of tests (Bonferroni). Since p is what the others
show at the same time, what is common to all raises no alarm. A component may be one direction of a
cable, too (`localizer.network.directions`).
"""

from collections.abc import Callable, Mapping
from math import log
from typing import Final

import numpy as np

from localizer.inference.pooled_loss import MONTH_NS
from schemas.columns.arrays import Floats, Int64s

# The share that is late without a fault, however few are late: at least twice the rate that the
# detector states (`streams.detectors.weak_latency.STATED_RATE`), which is one of independent
# windows; the windows of a job are not.
LEAST_SHARE: Final = 0.02
# A component that is known to be slow remains so until chance looks like it once in a thousand.
LOG_CHANCE_OVER: Final = -log(1_000)
# Two numbers of 5-tuples are one word.
HALF_BITS: Final = 32


def find_slow(
    late: Mapping[str, int],
    crossing: Callable[[str], int],
    *,
    all_late: int,
    flows: int,
    known: frozenset[str] = frozenset(),
    step_ns: int,
) -> dict[str, float]:
    """Return the components that are slow, with the log of the bound on chance.

    Parameters
    ----------
    late
        Number of late 5-tuples by component.
    crossing
        Gives the number of 5-tuples that cross a component.
    all_late, flows
        Number of late 5-tuples, and of all.
    known
        Components that were slow before; little evidence suffices for them.
    step_ns
        How often this is called, nanoseconds: one false alarm a month is accepted, over all
        components.

    Examples
    --------
    Four hundred 5-tuples, of which ten are late by chance, and eight of eight on a cable:

    >>> late = {"cable": 8, "other": 2}
    >>> slow = find_slow(late, lambda _: 8, all_late=18, flows=400, step_ns=2 * 10**9)
    >>> {name: round(log_chance) for name, log_chance in slow.items()}
    {'cable': -29}
    """
    tests = max(1, len(late)) * MONTH_NS / step_ns
    chances = log_chances(late, crossing, all_late=all_late, flows=flows)
    return {
        component: log_chance
        for component, log_chance in chances.items()
        if log_chance <= (LOG_CHANCE_OVER if component in known else -log(tests))
    }


def log_chances(
    late: Mapping[str, int],
    crossing: Callable[[str], int],
    *,
    all_late: int,
    flows: int,
    usual: Callable[[str], float] = lambda _: 0.0,
) -> dict[str, float]:
    """Return by component the log of the bound on so many late 5-tuples; arguments as above.

    Parameters
    ----------
    usual
        Gives the share of a component's 5-tuples that is late as a rule, where that is known.

    Examples
    --------
    >>> chances = log_chances({"cable": 8}, lambda _: 8, all_late=8, flows=400)
    >>> round(chances["cable"])
    -31
    """
    return {
        component: _log_chance(
            late[component],
            crossing(component),
            all_late=all_late,
            flows=flows,
            usual=usual(component),
        )
        for component in sorted(late)
    }


def counted_chances(
    late: Int64s, crossing: Int64s, usual: Floats, *, all_late: int, flows: int
) -> Floats:
    """Return the same of many components by arrays, all of shape (n,).

    A few triples of numbers are those of all: each is worked out once.

    Examples
    --------
    >>> chances = counted_chances(
    ...     np.array([8, 0, 8]), np.array([8, 9, 8]), np.array([0, 0, 0.5]), all_late=8, flows=400
    ... )
    >>> chances.round() + 0.0
    array([-31.,   0.,  -6.])
    """
    pairs, pair = np.unique(late << HALF_BITS | np.maximum(late, crossing), return_inverse=True)
    shares, kind = np.unique(usual, return_inverse=True)
    distinct, which = np.unique(pair * len(shares) + kind, return_inverse=True)
    words, shares = pairs[distinct // len(shares)], shares[distinct % len(shares)]
    chances = [
        _log_chance(
            word >> HALF_BITS,
            word & ((1 << HALF_BITS) - 1),
            all_late=all_late,
            flows=flows,
            usual=share,
        )
        for word, share in zip(words.tolist(), shares.tolist(), strict=True)
    ]
    found: Floats = np.array(chances)[which]
    return found


def _log_chance(count: int, crossing: int, *, all_late: int, flows: int, usual: float) -> float:
    through = max(count, crossing)
    share = (all_late - count + 1) / max(flows - through + 1, 1)
    share = max(share, LEAST_SHARE, usual)
    # Of nothing nothing is late.
    return -divergence(count, max(through, 1), min(share, 1.0))


def divergence(hits: int, trials: int, chance: float) -> float:
    """Return trials times the Kullback-Leibler divergence of hits / trials from a lower chance.

    Examples
    --------
    >>> round(divergence(6, 12, 0.01), 1)
    19.4
    >>> divergence(1, 12, 0.5)
    0.0
    """
    share = hits / trials
    if share <= chance:
        return 0.0
    rest = (trials - hits) * log((1 - share) / (1 - chance)) if hits < trials else 0.0
    return hits * log(share / chance) + rest
