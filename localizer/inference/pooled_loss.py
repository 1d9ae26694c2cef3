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

Replies are lost as often as probes, on ways that are known as probabilities only. A second test,
`localizer.inference.loss_both_ways`, pools both, and has another false alarm a month. Where the
component's own losses alone say too little, no other component may explain the same losses nearly
as well: `localizer.inference.loss_places`.

A counter of the component that went out of order (CRC errors, discards) makes it a suspect by
itself, and names it with few losses since then: as few as chance puts on the components whose
counters are out of order for no reason, once a month. It names nobody alone.

A place is a component, or one direction of a cable (`localizer.network.directions`): what harms one
direction leaves the 5-tuples of the other well. Below both are called components; false alarms are
those of all places.

Losses must also lie where they would if the component lost them, rather than anywhere, or at one
host, whose busy processes lose packets as well: on 5-tuples that cross it, or whose replies may.
What open faults lose of replies is expected, and what the component itself may lose of them says
nothing about the network elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from math import exp, lgamma, log, log1p, sqrt
from typing import Final

import numpy as np
from scipy.special import bdtrc, pdtrc

from localizer.inference.loss_both_ways import (
    NO_REPLIES,
    Returning,
    Usual,
    both_ways,
    outcomes_of,
)
from localizer.inference.loss_columns import LossColumns, PooledLoss
from localizer.inference.loss_moments import (
    BIN_NS,
    FRESH_BINS,
    LEAST_FLOAT,
    LONGEST_NS,
    MIN_BINS,
    SPANS,
    moment_chance,
)
from localizer.inference.loss_places import Losing, Places
from schemas.columns.arrays import Int64s
from schemas.units import SECOND_NS

# A moment of one loss, or of two losses without a host in common.
STRENGTHS: Final = (1, 2)
# Losses between fewer pairs of endpoints are no component's.
MIN_PAIRS: Final = 2
# With a counter this is longer: it is read once a minute, and repeated.
READ_NS: Final = 120 * SECOND_NS
# With a counter that points at the component, so few: one may always be chance.
MIN_BINS_COUNTED: Final = 2
# What the network usually loses, as if so many probes had been watched and one of them lost: data
# centres report 1e-5 to 1e-4 of all packets (Guo et al., Pingmesh, SIGCOMM 2015). Much less than
# is watched in ten minutes, so that what a cluster really loses counts, as soon as it is known.
USUAL_PROBES: Final = 1e4
# False alarms of each test that are accepted: one a month, over all components.
MONTH_NS: Final = 30 * 86_400 * SECOND_NS
# Normal deviates by which the losses of replies may exceed those of probes by chance.
MORE_REPLIES: Final = 2.0
# If losses elsewhere hit more of the bins, all are counted.
ALL_HIT: Final = 0.5
# Losses elsewhere that are counted one by one, and components for which they are: in a storm the
# surest of them tell enough.
MOST_COUNTED: Final = 2_048
MAX_TESTED: Final = 64


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
    gain
        Log of how much likelier the losses since the first leak began are if this component loses
        them than if all 5-tuples lose alike. It tells which of several components leaks: where some
        packets are lost in each bin, `log_chance` is the same for all.
    """

    component: str
    since_ns: int
    log_chance: float
    gain: float = 0.0


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
    returning: Callable[[str], Returning] = lambda _: NO_REPLIES,
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
    returning
        Gives the 5-tuples whose replies may cross a component.
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
    tests = _Tests(
        losses=losses, columns=columns,
        moments=[columns.moments(strong=strength > 1) for strength in STRENGTHS],
        crossing=crossing, flows=flows, rate_hz=rate_hz,
        watched_s=min(max(watched_ns, BIN_NS), LONGEST_NS) / SECOND_NS, now_ns=now_ns,
        log_bins=log(max(components, 1) * MONTH_NS / BIN_NS), expected=expected, counted=counted,
    )  # fmt: skip
    names = columns.names
    enough = np.flatnonzero(columns.pair_counts() >= MIN_PAIRS).tolist()
    # First as if nothing were lost elsewhere, which is quick and leaves few.
    maybe = [
        (leak, number)
        for name, number in sorted((names[number], number) for number in enough)
        if (tests.may_leak(number) or counted(name) is not None)
        and (leak := tests.own(number, 0.0)).log_chance < 0
    ]
    maybe.sort(key=lambda found: found[0].log_chance)
    numbers = [number for _, number in maybe[:MAX_TESTED]]
    if len(losses) <= MOST_COUNTED:
        # Of others, replies may tell more of those whose own losses are the least likely.
        numbers += nsmallest(
            MAX_TESTED,
            set(enough).difference(numbers),
            key=lambda number: (tests.log_moments(number), names[number]),
        )
    losing = [
        Losing(number, columns.replied(names[number]), crossing(names[number]))
        for number in numbers
    ]
    found: list[tuple[Losing, Leak]] = []
    for one in losing:
        back = returning(names[one.component])
        elsewhere = _elsewhere(one, columns, flows, back)
        leak = tests.own(one.component, elsewhere)
        alone = leak.log_chance < 0
        leak = min(leak, tests.both_ways(one, elsewhere, back), key=lambda leak: leak.log_chance)
        if leak.log_chance == 0:
            continue
        places = Places(columns, losses, leak.since_ns, flows)
        if places.fits(one, at_host) and (
            alone or not any(places.may_be(other, one) for other in losing)
        ):
            found.append((one, leak))
    since_ns = min((leak.since_ns for _, leak in found), default=0)
    gains = Places(columns, losses, since_ns, flows).gains([one for one, _ in found])
    return {
        leak.component: replace(leak, gain=gain)
        for (_, leak), gain in zip(found, gains, strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tests:
    """The tests of one time; arguments of `find_leaks`.

    Attributes
    ----------
    moments
        For each strength the ages of moments of each component, in bins.
    watched_s
        For how long losses have been known, of the longest span.
    log_bins
        Log of the bins of a month, over all components.
    """

    losses: Sequence[PooledLoss]
    columns: LossColumns
    moments: Sequence[list[Int64s]]
    crossing: Callable[[str], int]
    flows: int
    rate_hz: float
    watched_s: float
    now_ns: int
    log_bins: float
    expected: Callable[[str], Expected]
    counted: Callable[[str], Counted | None]

    def own(self, number: int, elsewhere: float) -> Leak:
        """Return the leak by the losses of a component's probes if so many elsewhere are chance."""
        component = self.columns.names[number]
        known_hz, known_bins = self._known(component)
        hz = self._usual_hz(number, elsewhere)
        log_chance, span_ns = _scan(self._moments(number), hz, known_hz, known_bins)
        log_chance += self._trials
        counter = self.counted(component)
        if counter is not None and log_chance > 0:
            span_ns = self.now_ns - counter.since_ns
            pool = [self.losses[place] for place in self.columns.through(number).tolist()]
            lost = [loss for loss in pool if loss.lost_ns >= counter.since_ns]
            if not lost or self.now_ns - max(loss.lost_ns for loss in lost) > READ_NS:
                lost = []
            span_s = span_ns / SECOND_NS
            log_chance = counter.log_rate + _log_more(lost, (hz + known_hz) * span_s)
        return self._leak(component, log_chance, span_ns)

    def both_ways(self, one: Losing, elsewhere: float, back: Returning) -> Leak:
        """Return the leak by what is lost of probes and replies."""
        component = self.columns.names[one.component]
        hz = self._usual_hz(one.component, elsewhere)
        if elsewhere > 0:
            # How often chance loses packets is uncertain. The mean of the k-th power of a rate of
            # which E events were seen is E (E + 1) ... (E + k - 1) times that of one: what chance
            # makes of k moments.
            count = len(self.moments[0][one.component])
            several = exp((lgamma(elsewhere + count) - lgamma(elsewhere)) / count)
            hz = max(hz, self._usual_hz(one.component, several - 1))
        usual = Usual(max(1, one.through), hz, *self._known(component))
        outcomes = outcomes_of(
            one.component, one.replied, self._moments(one.component), self.columns, self.now_ns
        )
        log_chance, span_ns = both_ways(outcomes, usual, back)
        return self._leak(component, log_chance + self.log_bins, span_ns)

    def may_leak(self, number: int) -> bool:
        """Return whether chance is ruled out, if open faults explain nothing."""
        hz = self._usual_hz(number, 0.0)
        return _scan(self._moments(number), hz, 0.0, 0.0)[0] + self._trials < 0

    def log_moments(self, number: int) -> float:
        """Return the log of the chance of a component's moments, were none other than its own."""
        each = moment_chance(1, self._usual_hz(number, 0.0), 0.0, 0.0)
        return len(self.moments[0][number]) * log(each)

    @property
    def _trials(self) -> float:
        return self.log_bins + log(len(SPANS) * len(STRENGTHS))

    def _moments(self, number: int) -> list[Int64s]:
        return [ages[number] for ages in self.moments]

    def _known(self, component: str) -> tuple[float, float]:
        """Return the losses a second that open faults explain, and the share of bins with any."""
        known = self.expected(component)
        return known.share * max(1, self.crossing(component)) * self.rate_hz, known.bins

    def _usual_hz(self, number: int, elsewhere: float) -> float:
        """Return the losses a second by chance at a component if so many elsewhere are."""
        through = max(1, self.crossing(self.columns.names[number]))
        probes = max(1, self.flows - through) * self.rate_hz * self.watched_s
        # Not less than is seen, however little the network loses usually.
        share = max((elsewhere + 1) / (probes + USUAL_PROBES), elsewhere / probes)
        return share * through * self.rate_hz

    def _leak(self, component: str, log_chance: float, span_ns: int) -> Leak:
        since_ns = max(0, self.now_ns - span_ns)
        return Leak(component=component, since_ns=since_ns, log_chance=min(log_chance, 0.0))


def _elsewhere(one: Losing, columns: LossColumns, flows: int, back: Returning) -> float:
    """Return how many losses there were that a component has nothing to do with.

    As many as chance would need to hit as many bins: what is lost at one moment elsewhere, by a
    fault that nobody knows yet, is one loss and not many. A component loses replies about as often
    as probes: of 5-tuples whose replies may cross it, as many losses as its own may be its doing,
    and some more by chance; but not fewer are left to all than the others show that have no such
    way, less a standard deviation.
    """
    own = columns.through(one.component)
    step = 1 + len(columns.bins) // MOST_COUNTED
    other = ~columns.explained
    other[own] = False
    places = np.flatnonzero(other[::step]) * step
    returns = one.replied[places] > 0
    counted = _by_chance if step == 1 else len
    count, hit = counted(columns.bins[places]) * step, counted(columns.bins[places[returns]]) * step
    left = count - min(hit, _most_replies(counted(columns.bins[own])))
    apart = flows - one.through - back.flows
    if apart <= 0:
        return max(0.0, left)
    unrelated = counted(columns.bins[places[~returns]]) * step
    share = (unrelated - sqrt(unrelated)) / apart
    return max(0.0, left, share * (flows - one.through))


def _by_chance(bins: Int64s) -> float:
    """Return how many losses hit so many bins on average, all if they hit most."""
    share = len(np.unique(bins)) / SPANS[-1]
    return len(bins) if share >= ALL_HIT else -SPANS[-1] * log1p(-share)


def _most_replies(own: float) -> float:
    """Return how many replies a component loses at most that loses so many probes.

    If it loses both alike, one in two of all, up to `MORE_REPLIES` standard deviations.

    Examples
    --------
    >>> round(_most_replies(4), 1)
    12.0
    """
    z = MORE_REPLIES
    return own + z * z / 2 + z * sqrt(2 * own + z * z / 4)


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
