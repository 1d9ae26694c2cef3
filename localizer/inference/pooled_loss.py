"""Find components that lose a small share of all packets: losses pooled over the 5-tuples.

A cable that loses 0.5 % makes each of its 5-tuples lose a probe every few minutes. The test of a
single 5-tuple cannot tell that from chance; all of a component's together can.

Test. Time is cut into bins of `BIN_NS`. Without a fault, a component that is crossed by n probes a
second has a loss in a bin with probability p = 1 - exp(-e * n * bin), e being the rate at which
all other 5-tuples lose probes. k of the last m bins have one. By Chernoff's bound

    P(k or more | no fault) <= exp(-m * KL(k / m, p))

where KL is the divergence of two Bernoulli distributions. Bins, not losses, are counted: losses of
one moment have one cause, and a link that flaps once is no cable that leaks. The bound is compared
with the false alarms that are accepted, divided by the number of tests (Bonferroni). A counter of
the component that went out of order at the same time (CRC errors, discards) makes chance less
likely by its own evidence: then fewer losses are enough. It names nobody alone.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import expm1, log
from typing import Final

from schemas.units import SECOND_NS

BIN_NS: Final = 5 * SECOND_NS
# Bins of the spans that are tested. The short ones find 1 % and more, the longest 0.05 %.
SPANS: Final = (12, 24, 60, 120)
# Fewer bins with a loss, or losses between fewer pairs of endpoints, are no component's.
MIN_BINS: Final = 4
MIN_PAIRS: Final = 2
# With a counter that points at the component, so few bins: one may always be chance.
MIN_BINS_COUNTED: Final = 2
# The network loses at least this share without a fault, however few losses were seen.
LEAST_RATE: Final = 1e-5
# False alarms that are accepted: one a month, over all components.
MONTH_NS: Final = 30 * 86_400 * SECOND_NS


@dataclass(frozen=True, slots=True)
class PooledLoss:
    """A lost probe, and what it crossed.

    Attributes
    ----------
    pair
        Source and destination.
    """

    lost_ns: int
    components: Sequence[str]
    pair: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A component through which more is lost than by chance.

    Attributes
    ----------
    since_ns
        Begin of the span that shows it.
    log_chance
        Upper bound of the log-probability that chance looks like it.
    """

    component: str
    since_ns: int
    log_chance: float


def find_leaks(
    losses: Sequence[PooledLoss],
    crossing: Callable[[str], int],
    *,
    flows: int,
    rate_hz: float,
    step_ns: int,
    now_ns: int,
    counted: Callable[[str], float] = lambda _: 0.0,
) -> dict[str, Leak]:
    """Return the components that leak.

    Parameters
    ----------
    losses
        Of the last `max(SPANS)` bins.
    crossing
        Gives the number of 5-tuples that cross a component.
    flows
        Number of all 5-tuples.
    rate_hz
        Probes of a 5-tuple a second.
    step_ns
        How often this is called.
    now_ns
        Present event time.
    counted
        Gives the evidence of a component's counters, as a log-likelihood ratio; 0: there is none.

    Examples
    --------
    Forty 5-tuples, four of them over a cable; a loss of it every ten seconds.

    >>> lost = [PooledLoss(s * 10**9, ("cable",), ("a", f"b{s % 4}")) for s in range(0, 120, 10)]
    >>> found = find_leaks(lost, lambda _: 4, flows=40, rate_hz=1.0, step_ns=5 * 10**9,
    ...                    now_ns=120 * 10**9)
    >>> list(found)
    ['cable']
    """
    last = now_ns // BIN_NS
    # By component, bins with a loss and the pairs of endpoints that lost.
    bins: defaultdict[str, set[int]] = defaultdict(set)
    pairs: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    counts: defaultdict[str, int] = defaultdict(int)
    for loss in losses:
        number = loss.lost_ns // BIN_NS
        for component in loss.components:
            bins[component].add(number)
            pairs[component].add(loss.pair)
            counts[component] += 1
    tests = max(1, len(bins)) * len(SPANS) * MONTH_NS / step_ns
    span_s = SPANS[-1] * BIN_NS / SECOND_NS
    found = {}
    for component in sorted(bins):
        if len(bins[component]) < MIN_BINS_COUNTED or len(pairs[component]) < MIN_PAIRS:
            continue
        evidence = counted(component)
        least = MIN_BINS_COUNTED if evidence > 0 else MIN_BINS
        if len(bins[component]) < least:
            continue
        through = max(1, crossing(component))
        probes = max(flows - through, 1) * rate_hz * span_s
        rate = max(LEAST_RATE, (len(losses) - counts[component] + 1) / probes)
        chance = -expm1(-rate * through * rate_hz * BIN_NS / SECOND_NS)
        best: tuple[float, int] | None = None
        for span in SPANS:
            hit = sum(last - span < number <= last for number in bins[component])
            bound = -divergence(hit, span, chance) if hit >= least else 0.0
            if best is None or bound < best[0]:
                best = bound, span
        if best is not None and best[0] - evidence <= -log(tests):
            found[component] = Leak(
                component=component,
                since_ns=max(0, (last - best[1] + 1) * BIN_NS),
                log_chance=best[0],
            )
    return found


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
