"""Find components that lose a small share of all packets: losses pooled over the 5-tuples.

A cable that loses 0.5 % makes each of its 5-tuples lose a probe every few minutes; one that loses
nearly all for a third of a second, once a minute, makes many of them lose one probe at the same
time. The test of a single 5-tuple cannot tell either from chance; all of a component's together
can.

Moments. Time is cut into bins of `BIN_NS`. Losses of one bin have one cause and count once: they
are a moment. A moment is weak, or strong: it holds two losses without a host in common. Without a
fault, a component that n probes cross in a bin has a loss in it with probability
p = 1 - exp(-e n), e being the share of all probes that is lost; two or more with probability
1 - exp(-e n) (1 + e n). Besides, anything may lose packets for a moment, for instance when routing
changes: a strong moment of each component every `BLIP_NS` is no leak.

Test. Let k of the last m bins be moments. A leak is found when a bin is a moment and k - 1 others
are. With independent bins the expected number of such events is

    bins * p * P(Binomial(m - 1, p) >= k - 1)

in any stretch of time, so this bounds the false alarms. It is summed over a month, all components,
the spans `SPANS` and the two strengths, and must not exceed one (a scan statistic; Naus 1965,
Wallenstein and Neff 1987). What e is, is known by what is lost elsewhere in ten minutes: where that
is a dozen losses, false alarms are a few a month.

A counter of the component that went out of order (CRC errors, discards) makes it a suspect by
itself, and names it with few losses since then: as few as chance puts on the components whose
counters are out of order for no reason, once a month. It names nobody alone.

Losses must also lie where they would if the component lost them, rather than anywhere, or at one
host, whose busy processes lose packets as well: on 5-tuples that cross it, or whose replies may.
What open faults lose of replies is expected, and what the component itself may lose of them says
nothing about the network elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import expm1, log, log1p
from typing import Final

import numpy as np
from scipy.special import bdtrc, pdtrc

from localizer.inference.loss_columns import LossColumns
from schemas.columns.arrays import Floats, Int64s
from schemas.units import SECOND_NS

BIN_NS: Final = 5 * SECOND_NS
# Bins of the spans that are tested. The short ones find 1 % and more, the longest 0.05 %.
SPANS: Final = (3, 6, 12, 24, 48, 120)
LONGEST_NS: Final = SPANS[-1] * BIN_NS
# A moment of one loss, or of two losses without a host in common.
STRENGTHS: Final = (1, 2)
# Fewer moments, or losses between fewer pairs of endpoints, are no component's.
MIN_BINS: Final = 3
MIN_PAIRS: Final = 2
# The last moment is so new: nothing is found because losses elsewhere were forgotten. A lost probe
# is known after its timeout, and its round.
FRESH_BINS: Final = 2
# With a counter this is longer: it is read once a minute, and repeated.
READ_NS: Final = 120 * SECOND_NS
# With a counter that points at the component, so few: one may always be chance.
MIN_BINS_COUNTED: Final = 2
# What the network usually loses, as if so many probes had been watched and one of them lost: data
# centres report 1e-5 to 1e-4 of all packets (Guo et al., Pingmesh, SIGCOMM 2015). Much less than
# is watched in ten minutes, so that what a cluster really loses counts, as soon as it is known.
USUAL_PROBES: Final = 1e4
# Less likely than this is certain not to be chance.
LEAST_FLOAT: Final = 1e-300
# A component loses several packets at one moment once in so long for reasons that are over then.
BLIP_NS: Final = 86_400 * SECOND_NS
# False alarms that are accepted: one a month, over all components.
MONTH_NS: Final = 30 * 86_400 * SECOND_NS
# The losses must be so much likelier at the component than anywhere that, with the priors of
# `localizer.inference.evidence`, it is twenty times likelier that a cable loses them (-6.9) than
# that everything does (-9).
LOG_PLACE: Final = log(20) - (9.0 - 6.9)
# Share of the losses that a leaking component accounts for, at least: alternatives.
ITS_SHARES: Final = (0.5, 0.9)

# If losses elsewhere hit more of the bins, all are counted.
ALL_HIT: Final = 0.5
# Losses elsewhere that are counted one by one, and components for which they are: in a storm the
# surest of them tell enough.
MOST_COUNTED: Final = 2_048
MAX_TESTED: Final = 64

Shares = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PooledLoss:
    """A lost probe, and what it crossed.

    Attributes
    ----------
    pair
        Source and destination.
    hosts
        Who probes and who answers.
    replies
        By component the probability that the reply would have crossed it, see
        `localizer.network.replies`.
    explained
        Whether an open fault may have lost the reply.
    """

    lost_ns: int
    components: Sequence[str]
    pair: tuple[str, str]
    hosts: tuple[str, str]
    replies: Shares = field(default_factory=dict)
    explained: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """Losses at a component that open faults explain: replies that they lose.

    Attributes
    ----------
    share
        Of the component's probes.
    bins
        Share of the bins in which these faults lose anything, 0 to 1.
    """

    share: float
    bins: float


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter of a component that went out of order.

    Attributes
    ----------
    since_ns
        Since when it may be out of order.
    log_rate
        Log of how many such counters go out of order in a month for no reason, over all components.
    """

    since_ns: int
    log_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A component through which more is lost than by chance.

    Attributes
    ----------
    since_ns
        Begin of the span that shows it.
    log_chance
        Log of the number of false alarms a month that chance makes with this evidence, at most 0.
    """

    component: str
    since_ns: int
    log_chance: float


NO_FAULTS: Final = Expected(0.0, 0.0)


def find_leaks(
    losses: Sequence[PooledLoss],
    crossing: Callable[[str], int],
    *,
    flows: int,
    components: int,
    rate_hz: float,
    watched_ns: int,
    now_ns: int,
    expected: Callable[[str], Expected] = lambda _: NO_FAULTS,
    counted: Callable[[str], Counted | None] = lambda _: None,
    at_host: Callable[[str], int] = lambda _: 0,
) -> dict[str, Leak]:
    """Return the components that leak.

    Parameters
    ----------
    losses
        Of the last `LONGEST_NS`.
    crossing
        Gives the number of 5-tuples that cross a component.
    flows, components
        Number of all 5-tuples, and of all that they cross.
    rate_hz
        Probes of a 5-tuple a second.
    watched_ns
        For how long losses have been known.
    now_ns
        Present event time.
    expected
        Gives what open faults lose at a component.
    counted
        Gives a counter that names a component; None: there is none.
    at_host
        Gives the number of 5-tuples that begin or end at a host; 0: not known.

    Examples
    --------
    Forty 5-tuples, four of them over a cable; a loss of it every ten seconds.

    >>> lost = [PooledLoss(s * 10**9, ("cable",), ("a", f"b{s % 4}"), ("a", f"b{s % 4}"))
    ...         for s in range(0, 120, 10)]
    >>> found = find_leaks(lost, lambda _: 4, flows=40, components=100, rate_hz=1.0,
    ...                    watched_ns=120 * 10**9, now_ns=120 * 10**9)
    >>> list(found)
    ['cable']
    """
    columns = LossColumns(losses, BIN_NS, now_ns)
    moments = [columns.moments(strong=strength > 1) for strength in STRENGTHS]
    trials = log(max(components, 1) * len(SPANS) * len(STRENGTHS) * MONTH_NS / BIN_NS)
    watched_s = min(max(watched_ns, BIN_NS), LONGEST_NS) / SECOND_NS

    def usual_hz(number: int, elsewhere: float) -> float:
        """Return the losses a second by chance at a component if so many elsewhere are."""
        through = max(1, crossing(columns.names[number]))
        probes = max(1, flows - through) * rate_hz * watched_s
        # Not less than is seen, however little the network loses usually.
        share = max((elsewhere + 1) / (probes + USUAL_PROBES), elsewhere / probes)
        return share * through * rate_hz

    def test(number: int, elsewhere: float) -> Leak:
        """Return the leak if so many losses elsewhere are by chance."""
        component = columns.names[number]
        known, hz = expected(component), usual_hz(number, elsewhere)
        known_hz = known.share * max(1, crossing(component)) * rate_hz
        own = [ages[number] for ages in moments]
        log_chance, span_ns = _scan(own, hz, known_hz, known.bins)
        log_chance += trials
        counter = counted(component)
        if counter is not None and log_chance > 0:
            span_ns = now_ns - counter.since_ns
            pool = [losses[place] for place in columns.through(number).tolist()]
            lost = [loss for loss in pool if loss.lost_ns >= counter.since_ns]
            if not lost or now_ns - max(loss.lost_ns for loss in lost) > READ_NS:
                lost = []
            span_s = span_ns / SECOND_NS
            log_chance = counter.log_rate + _log_more(lost, (hz + known_hz) * span_s)
        return Leak(
            component=component, since_ns=max(0, now_ns - span_ns), log_chance=min(log_chance, 0.0)
        )

    def may_leak(number: int) -> bool:
        """Return whether chance is ruled out, if open faults explain nothing."""
        own = [ages[number] for ages in moments]
        return _scan(own, usual_hz(number, 0.0), 0.0, 0.0)[0] + trials < 0

    # First as if nothing were lost elsewhere, which is quick and leaves few.
    enough = (columns.pair_counts() >= MIN_PAIRS).tolist()
    maybe = [
        (leak, number)
        for name, number in sorted((name, number) for number, name in enumerate(columns.names))
        if enough[number]
        and (may_leak(number) or counted(name) is not None)
        and (leak := test(number, 0.0)).log_chance < 0
    ]
    maybe.sort(key=lambda found: found[0].log_chance)
    found = {}
    for suspect, number in maybe[:MAX_TESTED]:
        name = suspect.component
        replied = columns.replied(name)
        leak = test(number, _elsewhere(number, replied, columns))
        if leak.log_chance < 0 and _placed(
            number,
            replied,
            columns,
            losses,
            since_ns=leak.since_ns,
            through=crossing(name),
            flows=flows,
            at_host=at_host,
        ):
            found[name] = leak
    return found


def _elsewhere(component: int, replied: Floats, columns: LossColumns) -> float:
    """Return how many losses there were that a component has nothing to do with.

    As many as chance would need to hit as many bins: what is lost at one moment elsewhere, by a
    fault that nobody knows yet, is one loss and not many. A component loses replies about as often
    as probes: of 5-tuples whose replies may cross it, as many losses as its own may be its doing.
    """
    own = columns.through(component)
    step = 1 + len(columns.bins) // MOST_COUNTED
    other = ~columns.explained
    other[own] = False
    places = np.flatnonzero(other[::step]) * step
    bins = np.unique(columns.bins[places])
    share = len(bins) / SPANS[-1]
    back = places[replied[places] > 0]
    if share >= ALL_HIT or step > 1:
        return max(0, len(places) * step - min(len(back) * step, len(own)))
    count = -SPANS[-1] * log1p(-share)
    both = len(np.unique(columns.bins[back])), len(np.unique(columns.bins[own]))
    return max(0.0, count - min(both))


def _scan(
    moments: Sequence[Int64s], usual_hz: float, known_hz: float, known_bins: float
) -> tuple[float, int]:
    """Return the least log-chance of a new moment over spans and strengths, and its span.

    `moments`: the ages in bins of the moments of each strength, ascending.
    """
    best, best_span = 0.0, 0
    for strength, ages in zip(STRENGTHS, moments, strict=True):
        if len(ages) < MIN_BINS or ages[0] > FRESH_BINS:
            continue
        chance = moment_chance(strength, usual_hz, known_hz, known_bins)
        for span, hits in zip(SPANS, np.searchsorted(ages, SPANS).tolist(), strict=True):
            if hits < MIN_BINS:
                continue
            log_chance = log_false_onsets(hits, span, chance)
            if log_chance < best:
                best, best_span = log_chance, span
    return best, best_span * BIN_NS


def moment_chance(strength: int, usual_hz: float, known_hz: float, known_bins: float) -> float:
    """Return the probability that a bin is a moment although the component is well.

    Parameters
    ----------
    strength
        Of `STRENGTHS`.
    usual_hz
        Losses a second by chance.
    known_hz, known_bins
        Losses a second that open faults explain, and the share of the bins that they fall into.
    """
    bin_s = BIN_NS / SECOND_NS
    quiet = _poisson_tail(strength, usual_hz * bin_s)
    if known_hz > 0:
        known_bins = min(max(known_bins, BIN_NS / LONGEST_NS), 1.0)
        struck = _poisson_tail(strength, (usual_hz + known_hz / known_bins) * bin_s)
        quiet += known_bins * (struck - quiet)
    return min(1.0, quiet + (BIN_NS / BLIP_NS if strength > 1 else 0.0))


def _poisson_tail(least: int, mean: float) -> float:
    """Return P(Poisson(mean) >= least) for 1 or 2, without loss of digits."""
    return -expm1(-mean) if least == 1 else float(pdtrc(least - 1, mean))


def log_false_onsets(hits: int, span: int, chance: float) -> float:
    """Return the log of the expected number of false alarms for each bin that goes by.

    That is of bins that are moments, and of whose `span - 1` predecessors `hits - 1` are.

    Examples
    --------
    >>> from math import exp
    >>> round(exp(log_false_onsets(2, 3, 0.01)), 6)
    0.000199
    """
    tail = float(bdtrc(hits - 2, span - 1, chance)) if hits >= 2 else 1.0
    return log(chance) + log(max(tail, LEAST_FLOAT))


def _log_more(lost: Sequence[PooledLoss], mean: float) -> float:
    """Return the log of the chance that so many or more are lost since a counter rose."""
    bins = {loss.lost_ns // BIN_NS for loss in lost}
    if len(bins) < MIN_BINS_COUNTED or len({loss.pair for loss in lost}) < MIN_PAIRS:
        return 0.0
    # Losses of a moment between the same ends have one cause.
    count = len({(loss.lost_ns // BIN_NS, loss.pair) for loss in lost})
    return log(max(float(pdtrc(count - 1, mean)), LEAST_FLOAT))


def _placed(
    component: int,
    replied: Floats,
    columns: LossColumns,
    losses: Sequence[PooledLoss],
    *,
    since_ns: int,
    through: int,
    flows: int,
    at_host: Callable[[str], int],
) -> bool:
    """Return whether the losses lie as if the component lost them, and not anywhere or at a host.

    Under the one hypothesis a share of the losses (`ITS_SHARES`) hits 5-tuples that cross the
    component, or, as often, those whose replies do; under the others all 5-tuples are hit alike, or
    a share of the losses hits those of one host. A host is as likely to lose packets as a cable.
    """
    own = np.zeros(len(losses), np.bool_)
    own[columns.through(component)] = True
    recent = np.flatnonzero((columns.lost_ns >= since_ns) & (own | ~columns.explained))
    weights = np.where(own, 1.0, replied)[recent]
    # Replies cross it about as often as probes.
    replies = bool((replied[recent] > 0).any())
    best = _log_gain(weights, max(through, 1) * (2 if replies else 1), flows)
    if best < LOG_PLACE:
        return False
    # The host at most losses: another explains less.
    hosts = [set(losses[place].hosts) for place in recent.tolist()]
    counts = Counter(host for both in hosts for host in both)
    host = max(sorted(counts), key=counts.__getitem__)
    at = at_host(host)
    there = np.array([float(host in both) for both in hosts])
    return not at or best >= _log_gain(there, at, flows)


def _log_gain(weights: Floats, hit: int, flows: int) -> float:
    """Return how much likelier losses are if a share of them hits some 5-tuples only.

    Parameters
    ----------
    weights : (n,) float64
        Of each loss, the probability that it is on one of these.
    hit, flows
        Number of these, and of all.
    """
    values, counts = np.unique(weights, return_counts=True)
    return max(
        float(counts @ np.log1p(share * (max(flows, hit) * values / hit - 1)))
        for share in ITS_SHARES
    )
