"""Find components whose 5-tuples are late at the same moments: brief rises, pooled.

A worker reports a 5-tuple nearly all of whose last answers were late (BRIEF_LATENCY), a few per
cent of them by chance. A component that delays packets for ten seconds a minute shows in that the
5-tuples that cross it are reported together, again and again; one that has just become slow, in
that they are reported from now on.

Moments. Time is cut into bins of `BIN_NS`; no answer counts in two that do not adjoin. Of a bin
and a component the chance p that so many of its 5-tuples are late, beside all others at the same
time, is bounded as in `localizer.inference.pooled_latency`. A moment is a bin with p below
`MOMENT_CHANCE`. Components of open faults come first, then that with the least p; its 5-tuples do
not count for others, which would seem to be late because of it.

Replies. Those that come back through it are late as well, on other 5-tuples. How many is expected:
of a 5-tuple whose reply crosses it with probability q it makes one late with q times the share that
is late of those that cross it. The late ones of another component may be so with the mean of that,
if the others' share is less. Each reply takes its way by a hash of its own 5-tuple, so they are
drawn one by one, and of draws with different chances no more succeed than of as many with their
mean (Hoeffding 1956). The late ones have the greater chances, so that their mean is above that of
all.

A component may be one direction of a cable, too (`localizer.network.directions`).

Shape. What delays every packet moves all quantiles equally, a queue does not: waits are
exponentially distributed. Over the late 5-tuples together the lower quartile must have risen by
`LEVEL_SHARE` of the median's rise at least. By a queue that is never empty it does so by 0.42
(ln(4/3) / ln 2), by two, four and six of them by 0.57, 0.69 and 0.74 (quantiles of Erlang's
distribution). So the burst of a job makes no moment.

Reach. What delays a switch's packets, or those of one direction of a cable, delays all that cross
it, and a look at the last answers shows half of these or more. So fewer than `REACHED` of a
component of the fabric are no moment of it, however unlikely: of two hundred 5-tuples a job's phase
makes thirty late together, which thirty that were drawn one by one are not once in a month. At a
host's components entries of a flow table may delay the packets to some targets only.

Usual. A job's iteration fills the same queues every few seconds, and for most of a worker's look.
What crosses a component is late together then, all the time. So the chance is not that of the
others alone: it is at least the share that was late in the median of the last `USUAL_BINS` bins
(`UsualShares`). Those that were moments themselves, beside calm ones, do not count.

Stragglers. What delays some packets only, by much, is reported with a risen upper quartile and the
usual median. Such 5-tuples are counted by themselves: in the other test a queue's would pass for
them. Nothing in their shape tells a fault from a queue, so the caller asks for more.

Test. The chances of m moments, no two of which adjoin, are put together by Fisher's method: without
a fault the sum s of their -log p exceeds what is seen with at most the probability Q(m, s) of a
gamma distribution. The moments may be any such m of the `BINS` last bins, so this is multiplied by
the number of ways to choose them; by that of the counts `MOST_MOMENTS` that m may be; and by that
of the tests in a month and of the components. A component is slow if the product, the expected
number of false alarms in a month, is at most one (Fisher 1925; Bonferroni).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, lgamma, log
from typing import Final

import numpy as np
from scipy.special import gammaincc

from localizer.inference.loss_moments import LEAST_FLOAT
from localizer.inference.pooled_latency import counted_chances
from localizer.inference.pooled_loss import MONTH_NS
from localizer.network.directions import Directions, RemainingFlows
from schemas.ids import FlowId
from schemas.units import SECOND_NS

# The worker looks at the last twelve answers, twelve seconds.
BIN_NS: Final = 15 * SECOND_NS
# As far as a process that starts again reads back.
BINS: Final = 40
MOMENT_CHANCE: Final = 1e-3
LOG_MOMENT: Final = log(MOMENT_CHANCE)
LEVEL_SHARE: Final = 0.75
# Least share of the 5-tuples of a switch or cable that is late in a moment of it: a look shows each
# that is slow with it half of the time or more.
REACHED: Final = 1 / 3
# Shares of late replies are rounded to so many digits: components of equal ones are tested at once.
ECHO_DIGITS: Final = 3
# More components than this at once are one larger fault, or noise.
MOST_AT_ONCE: Final = 8
# Moments that are put together: the least likely ones.
MOST_MOMENTS: Final = 8
# A job iterates within half a minute, and phases that are in every other bin are its usual ones:
# after so many bins they would have shown, of five minutes they are still known.
LEAST_USUAL: Final = 4
USUAL_BINS: Final = 20
# So many are a component that comes and goes, and not a single event.
RECURRING: Final = 3


@dataclass(frozen=True, slots=True)
class LateFlow:
    """A 5-tuple that is late now.

    Attributes
    ----------
    components
        What it crosses.
    lower_rise_ns, median_rise_ns
        Rise of lower quartile and median of its last round trips.
    """

    components: Sequence[str]
    lower_rise_ns: int
    median_rise_ns: int

    @property
    def rises_ns(self) -> tuple[int, int]:
        """Both rises, see `is_shift`."""
        return self.lower_rise_ns, self.median_rise_ns


class UsualShares:
    """Which share of a component's 5-tuples is late as a rule, by component."""

    def __init__(self) -> None:
        # The bin of the first late one; the greatest share of each bin, None where it was a moment.
        self._first: dict[str, int] = {}
        self._greatest: dict[str, dict[int, float | None]] = {}
        # The bin in which what is too old was forgotten last.
        self._tidied = -1
        # What `share` has said in a bin: it looks at those before.
        self._said: tuple[int, dict[str, float | None]] = (-1, {})

    def note(
        self, late: Mapping[str, int], moments: Collection[str], places: Directions, now_bin: int
    ) -> None:
        """Note how many 5-tuples of components are late now, and for which it is a moment."""
        for component, count in late.items():
            bins = self._greatest.setdefault(component, {})
            before = bins.get(now_bin, 0.0)
            first = self._first.setdefault(component, now_bin)
            if before is None or (component in moments and now_bin - first >= LEAST_USUAL):
                bins[now_bin] = None
            else:
                bins[now_bin] = max(before, count / max(count, places.count(component)))
        if self._tidied != now_bin:
            self._tidied = now_bin
            self._tidy(places, now_bin)

    def _tidy(self, places: Directions, now_bin: int) -> None:
        """Forget old bins, and components that no 5-tuple crosses any more."""
        for component, bins in list(self._greatest.items()):
            for old in [one for one in bins if one < now_bin - USUAL_BINS]:
                del bins[old]
            if places.cable(component) not in places.index.components:
                del self._greatest[component], self._first[component]

    def share(self, component: str, now_bin: int) -> float | None:
        """Return the median of the bins before this one; None: too few since the first late one."""
        if self._said[0] != now_bin:
            self._said = now_bin, {}
        said = self._said[1]
        if component not in said:
            said[component] = self._share(component, now_bin)
        return said[component]

    def _share(self, component: str, now_bin: int) -> float | None:
        first = max(self._first.get(component, now_bin), now_bin - USUAL_BINS)
        if now_bin - first < LEAST_USUAL:
            return None
        bins = self._greatest.get(component, {})
        shares = [bins.get(one, 0.0) for one in range(first, now_bin)]
        known = sorted(share for share in shares if share is not None)
        return known[(len(known) - 1) // 2] if known else 0.0


def find_moments(
    late: Mapping[FlowId, LateFlow],
    places: Directions,
    known: Iterable[str] = (),
    *,
    any_shape: bool = False,
    usual: Callable[[str], float] = lambda _: 0.0,
    returns: Callable[[FlowId, str], float] = lambda _key, _place: 0.0,
) -> dict[str, float]:
    """Return the components for which it is a moment now, with the log of the chance.

    Parameters
    ----------
    late
        The late 5-tuples.
    places
        What all 5-tuples cross. Only late ones in its index count: the others are on a path that
        was not traced.
    known
        Components of open faults. Each direction of a cable is tested with it.
    any_shape
        Whether a queue makes a moment, too, and whether some of a component's 5-tuples do.
    usual
        Gives the share of a component's 5-tuples that is late as a rule, where that is known.
    returns
        Gives the share of the replies of a 5-tuple's pair that cross a component: they are late
        with it, too.
    """
    keys = [key for key in late if key in places.index.by_key]
    flows = [late[key] for key in keys]
    names = sorted({name for flow in flows for name in flow.components})
    if not names:
        return {}
    number = {name: place for place, name in enumerate(names)}
    # The components of each late 5-tuple, one 5-tuple after the other.
    crossed = np.array([number[name] for flow in flows for name in flow.components], np.int64)
    owner = np.repeat(np.arange(len(flows)), [len(flow.components) for flow in flows])
    left = np.ones(len(flows), np.bool_)
    # Chance that a 5-tuple is late because its reply crosses what was tested before.
    echo = np.zeros(len(flows))
    rest = RemainingFlows(places)
    numbers, shares = rest.counted(names), np.array([usual(name) for name in names])
    reached = np.array([0.0 if any_shape else least_reached(name, places) for name in names])
    expecting: dict[str, list[int]] = {name: [] for name in known}
    for name, place in number.items():
        if (component := places.cable(name)) in expecting:
            expecting[component].append(place)
    found: dict[str, float] = {}
    for expected in (*sorted(expecting), *(None,) * MOST_AT_ONCE):
        here = left[owner]
        counts = np.bincount(crossed[here], minlength=len(names))
        through = rest.counts(numbers)
        echoes = np.bincount(crossed[here], echo[owner[here]], minlength=len(names))
        expected_late = np.maximum(shares, np.round(echoes / np.maximum(counts, 1), ECHO_DIGITS))
        chances = counted_chances(
            counts, through, expected_late, all_late=int(left.sum()), flows=len(rest)
        )
        chances[counts < reached * through] = 0.0
        tested = expecting[expected] if expected else [int(chances.argmin())]
        if not expected and chances[tested[0]] > LOG_MOMENT:
            break
        for place in tested:
            chance = float(chances[place])
            late_here = owner[crossed == place]
            rises = [flows[one].rises_ns for one in late_here[left[late_here]].tolist()]
            if chance <= LOG_MOMENT and (any_shape or is_shift(rises)):
                # Those with the same 5-tuples, such as an RNIC and its cable, are one place.
                same = np.flatnonzero((chances == chance) & (counts > 0))
                found |= {names[one]: chance for one in same.tolist()}
        gone = expected or names[tested[0]]
        rest.remove(gone)
        left[owner[crossed == number.get(gone, -1)]] = False
        slow = [
            (names[place], min(1.0, float(counts[place] / max(through[place], 1))))
            for place in _apart(tested, names, places)
        ]
        for one in np.flatnonzero(left).tolist() if slow else ():
            chance = min(1.0, sum(returns(keys[one], name) * share for name, share in slow))
            echo[one] = 1.0 - (1.0 - echo[one]) * (1.0 - chance)
    return found


def _apart(tested: Sequence[int], names: Sequence[str], places: Directions) -> Sequence[int]:
    """Return those of a component and its directions that no packet crosses two of."""
    directed = [place for place in tested if places.is_directed(names[place])]
    return directed or tested


def least_reached(place: str, places: Directions) -> float:
    """Return the least share of a place's 5-tuples that is late in a moment of it."""
    return REACHED if places.replies.belongs_to_fabric(places.cable(place)) else 0.0


def is_shift(rises_ns: Sequence[tuple[int, int]]) -> bool:
    """Return whether all packets of 5-tuples are delayed alike, and not by a queue.

    Parameters
    ----------
    rises_ns
        By 5-tuple the rise of lower quartile and median.
    """
    lower_ns = sum(lower for lower, _ in rises_ns)
    return lower_ns >= LEVEL_SHARE * sum(median for _, median in rises_ns)


def log_false_alarms(moments: Mapping[int, float], *, components: int, step_ns: int) -> float:
    """Return the log of the number of false alarms a month that chance makes with such moments.

    Parameters
    ----------
    moments
        By bin the log of the chance, of the last `BINS`.
    components
        How many are tested.
    step_ns
        How often they are, nanoseconds.

    Examples
    --------
    One moment has to be very unlikely; three need not be:

    >>> round(log_false_alarms({5: -20.0}, components=100, step_ns=2 * 10**9), 1)
    4.4
    >>> round(log_false_alarms({5: -20.0, 9: -20.0, 14: -20.0}, components=100, step_ns=10**9), 1)
    -22.0
    """
    tests = log(max(components, 1) * MOST_MOMENTS * MONTH_NS / step_ns)
    best = 0.0
    for count, total in enumerate(sums_apart(moments)):
        if count and total > 0:
            ways = lgamma(BINS - count + 2) - lgamma(count + 1) - lgamma(BINS - 2 * count + 2)
            chance = log(max(float(gammaincc(count, total)), LEAST_FLOAT))
            best = min(best, chance + ways)
    return best + tests


def sums_apart(moments: Mapping[int, float]) -> list[float]:
    """Return the greatest sums of -log chance over 0 to `MOST_MOMENTS` moments, none adjoining.

    Examples
    --------
    >>> sums_apart({1: -8.0, 2: -9.0, 3: -8.0})[:4]
    [0.0, 9.0, 16.0, -inf]
    """
    none = [0.0] + [-inf] * MOST_MOMENTS
    # Of all moments up to a bin.
    rows = [(min(moments, default=0) - 2, none)]
    for bin_number in sorted(moments):
        until = rows[-1][1]
        before = next(sums for number, sums in reversed(rows) if number < bin_number - 1)
        sums = [0.0] + [
            max(until[count], before[count - 1] - moments[bin_number])
            for count in range(1, MOST_MOMENTS + 1)
        ]
        rows.append((bin_number, sums))
    return rows[-1][1]
