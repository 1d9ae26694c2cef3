"""Rises of the round trip that last seconds, or began seconds ago, for whoever can pool them.

A delay that comes for ten seconds and goes moves no quartile of a window of thirty, and one that
stays is in a window only when that has closed. Here the last answers are looked at every few
seconds. The localizer knows which 5-tuples cross the same component, and tests them together
(`localizer.inference.pooled_moments`). To be worth that, a report need only be rare by chance.

A 5-tuple is reported when of `RUN` answers in a row, among its last `LATEST`, the lower quartile
lies above the usual upper one, the median of the look-back's: all but one took longer than three in
four usually do. While nothing is wrong each does so with probability 1/4, whatever the
distribution, and if answers are independent the report has at most the probability

    (LATEST - RUN + 1) * P(Binomial(RUN, 1/4) >= RUN - 1)

A queue does the same. What delays every packet moves all equally, so that the lower quartile has
risen by as much as the median; the records carry both, and the localizer compares them over many
5-tuples: of eight answers of one it would be mostly chance.

A fault may delay only some packets, by much: those of flows whose entries are in software just
now. That moves no quartile and makes no run. So a 5-tuple is reported, too, when some of its
`LATEST` answers (`STRAGGLERS`) are later, by the effect that alarms on a 5-tuple, than a window's
greatest one usually is: the median of the look-back's maxima. If answers are independent, one
exceeds it with probability 1 - V**(1/n): n is the number of answers in a window, and V, the chance
that a window has no greater one, is distributed as the median of as many uniform numbers as windows
are compared (order statistics, David and Nagaraja 2003). A report has at most the probability

    E P(Binomial(LATEST, 1 - V**(1/n)) >= STRAGGLERS)

with the fewest windows, and the fewest answers of a row of that table, the worst of them. Its
record says that the upper quartile of `LATEST` answers has risen and, if the median has not,
that these are some packets of many. So does a job's burst that is shorter than the look at it: the
localizer asks for more.

A delay that is smaller than the spread of the round trips lifts hardly an answer above their upper
quartile. But none is as early any more as many were: no queue is shorter than empty, so that round
trips have a sharp lower edge, and all of them leave it. So a 5-tuple is reported, too, when none of
`LATEST` answers lies at or below the usual lower quartile, and at most one at or below the usual
median. Its record says by how much the least of them has risen. If answers are independent, it has
at most the probability

    (1/2)**LATEST + LATEST * 1/4 * (1/2)**(LATEST - 1)

An anomaly lasts while more of the answers than usual are above the bound of its onset: of the last
`RUN` a quarter, where the bound is the usual median three quarters, or of the last `LATEST` a
single one. All state but the open anomalies follows from the answers of the last minute, and from
the published windows.
"""

from math import comb, gamma
from typing import ClassVar, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Floats, Int32s, Int64s
from schemas.columns.compiled import compiled
from schemas.enums import AnomalyKind
from schemas.units import SECOND_NS, US_NS
from streams.columns.closing import rank
from streams.columns.quantities import FEATURES
from streams.config import REFRESH_STEP_NS, DetectionConfig
from streams.detectors.base import (
    MAX,
    MIN,
    P25,
    P50,
    P75,
    Decision,
    Evidence,
    FalseAlarmRate,
    Moved,
    OpenAnomaly,
    least_effects_ns,
)
from streams.detectors.late_answers import Side
from streams.detectors.lookback import LookBack
from streams.detectors.moments import Moment, MomentDetector
from streams.detectors.recent import LATEST, RING_S, RecentProbes
from streams.detectors.rises import outlasted
from streams.detectors.weak_latency import EFFECT_SHARE, MIN_COMPARED

# Answers in a row that are compared: with fewer, chance does the same more than once in a hundred
# moments; with more, a delay of ten seconds is over before they are there.
RUN: Final = 8
# No bound is known yet; and no answer that is kept is above it.
UNKNOWN: Final = -1
NEVER_NS: Final = 2**31 - 1
# 5-tuples that the quick test takes together.
TILE: Final = 64
# Share of answers above an upper quartile.
ABOVE: Final = 0.25
# Of the last answers so many, above the usual median, keep an anomaly that began by that: halfway
# between the half that usually are and all that were.
STILL_LIFTED: Final = 0.75
# How many of `LATEST` answers have to be later than a window's greatest usually is, by the least
# number of answers of a window. Probes each second make thirty, each two seconds fifteen, less one
# where rounds and windows do not fit. Chance does the same at 0.5 and 0.6 % of the looks; three
# where a window has fifteen it makes at 3 %. Of 5-tuples with fewer answers nothing is told.
STRAGGLERS: Final = ((29, 3), (14, 4))
FEWEST: Final = min(late for _, late in STRAGGLERS)
# What is known of a 5-tuple: the bound of a run, that of stragglers, and those of the lower half:
# at most one of the last answers is not above the middle one, and none not above the lower one.
IN_A_ROW, SOME, MIDDLE, LOWER = range(4)
# By which bounds what began by another one goes on.
SURER: Final = {SOME: (MIDDLE, IN_A_ROW), MIDDLE: (IN_A_ROW,), IN_A_ROW: ()}
# By turn the places of the last answers, the latest first.
LATEST_FIRST: Final = (np.arange(LATEST)[:, None] - 1 - np.arange(LATEST)) % LATEST


class BriefLatencyDetector(MomentDetector):
    """Suspects 5-tuples of whose last answers nearly all are late, or some by much."""

    kind: ClassVar = AnomalyKind.BRIEF_LATENCY
    name: ClassVar = "brief_latency"
    unit: ClassVar = "ns"
    reference: ClassVar = "Exact tail of the binomial distribution; quantile test, Conover 1999"

    def __init__(self, config: DetectionConfig, recent: RecentProbes, lookback: LookBack) -> None:
        super().__init__(config, recent, lookback)
        self.least_ns = least_effects_ns(config)
        # By row in `recent`, see `_bounds_ns`.
        self._known_ns = np.zeros((4, 0), np.int32)
        # Agents of which windows have closed since the last look.
        self._moved: set[str] = set()

    def __len__(self) -> int:
        """Return of how many 5-tuples it is known what is usual."""
        return int((self._known_ns[IN_A_ROW] != UNKNOWN).sum())

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the sum of the bounds of the module's text."""
        del config
        some = max(_straggler_chance(answers, late) for answers, late in STRAGGLERS)
        tail = sum(comb(RUN, n) * ABOVE**n * (1 - ABOVE) ** (RUN - n) for n in (RUN - 1, RUN))
        lifted = 0.5**LATEST + LATEST * (0.5 - ABOVE) * 0.5 ** (LATEST - 1)
        return FalseAlarmRate((LATEST - RUN + 1) * tail + some + lifted, "look at a 5-tuple")

    def observe_moment(self, moment: Moment) -> list[Decision]:
        """End what is over, and begin what is new."""
        decisions = [
            self._end(anomaly, moment.grid_ns, self.current_evidence(anomaly))
            for anomaly in self._over(moment)
        ]
        self._know(moment)
        # The row of a 5-tuple that is gone heard nothing for longer.
        since_ns = moment.active_ns - REFRESH_STEP_NS
        rows = suspicious_rows(self.recent, self._known_ns, since_ns)
        bounds_ns = self._known_ns.take(rows, axis=1).astype(np.int64)
        in_a_row = late_runs(self.recent, rows, bounds_ns[IN_A_ROW])
        lifted = lifted_whole(self.recent, rows, bounds_ns[MIDDLE], bounds_ns[LOWER])
        late = later_than(self.recent, rows, bounds_ns[SOME])
        bound = np.where(in_a_row, IN_A_ROW, np.where(lifted, MIDDLE, SOME))
        chosen = (bound != SOME) | (late >= FEWEST)
        rows = rows[chosen]
        usual_ns = self._usual_ns(rows, moment)
        found = zip(
            rows.tolist(), bound[chosen].tolist(), late[chosen].tolist(), usual_ns, strict=True
        )
        by_row = {row: each for row, *each in found}
        for row in self._in_order(rows):
            which, count, usual = by_row[row]
            key = self.recent.flows.key(row)
            known = self.open.get(key)
            if known is not None:
                if which in SURER[_bound_of(known.evidence)]:
                    # At first only some were late, or all by little; now all are.
                    self._update(known, self._evidence(row, which, usual))
            elif self._is_sound(row, count if which == SOME else None):
                evidence = self._evidence(row, which, usual)
                lasts_s = self.recent.seconds_since(row, evidence.sent)
                began_ns = moment.now_ns(key[0]) - lasts_s * SECOND_NS
                decisions.append(self._begin(key, began_ns, moment.grid_ns, evidence))
        return decisions

    def observe_closed(self, moved: Moved) -> None:
        """Note whose look-back changes."""
        self._moved.update(moved)

    def forget_row(self, row: int) -> None:
        """Forget what was usual of a 5-tuple."""
        self._known_ns[:, row : row + 1] = UNKNOWN

    def current_evidence(self, anomaly: OpenAnomaly) -> Evidence:
        """Return what the last answers show beside what is usual."""
        row = self.recent.flows.find(anomaly.key)
        if row is None:
            return anomaly.evidence
        last = np.sort(self._last(row, anomaly.evidence.sent))
        return _with_answers(anomaly.evidence, last, _bound_of(anomaly.evidence))

    def _over(self, moment: Moment) -> list[OpenAnomaly]:
        """Return the open anomalies that are over, in order."""
        anomalies = self.open_in_order()
        found = [self.recent.flows.find(anomaly.key) for anomaly in anomalies]
        rows = np.array([0 if row is None else row for row in found], np.int64)
        bounds_ns = np.array([anomaly.evidence.threshold or 0.0 for anomaly in anomalies])
        places = LATEST_FIRST[self.recent.flows["turn"][rows]]
        late = self.recent.latest[places, rows[:, None]] > bounds_ns[:, None]
        # How many of no answer, of the latest, of the latest two, and so on.
        counts = np.pad(np.cumsum(late, axis=1), ((0, 0), (1, 0))).tolist()
        return [
            anomaly
            for anomaly, row, above in zip(anomalies, found, counts, strict=True)
            if row is None or self._is_over(anomaly, above, moment)
        ]

    def _is_over(self, anomaly: OpenAnomaly, above: list[int], moment: Moment) -> bool:
        """Return whether too few of the last answers are above an anomaly's bound."""
        if anomaly.evidence.threshold is None:
            return True
        if outlasted(self.config, anomaly.onset_at, moment.now_ns(anomaly.key[0]) // US_NS):
            return True
        which = _bound_of(anomaly.evidence)
        if which == MIDDLE:
            return above[RUN] < STILL_LIFTED * RUN
        least = ABOVE * RUN if which == IN_A_ROW else 1
        return above[min(anomaly.evidence.sent, LATEST)] <= least

    def _last(self, row: int, count: int) -> Int32s:
        """Return so many of a 5-tuple's last answers, the latest first."""
        turn = int(self.recent.flows["turn"][row])
        out: Int32s = self.recent.latest[LATEST_FIRST[turn, :count], row]
        return out

    def _in_order(self, rows: Int64s) -> list[int]:
        """Return rows in an order that depends on their 5-tuples only."""
        key = self.recent.flows.key
        return sorted(rows.tolist(), key=lambda row: (key(row)[1:], key(row)[0]))

    def _know(self, moment: Moment) -> None:
        """See that the bounds are known of all rows of which a result came since the last look.

        Answers that are above them are late. They change only as windows of the 5-tuple's agent
        close.
        """
        flows = self.recent.flows
        if self._known_ns.shape[1] < flows.capacity:
            more = flows.capacity - self._known_ns.shape[1]
            self._known_ns = np.pad(self._known_ns, ((0, 0), (0, more)), constant_values=UNKNOWN)
        if self._moved:
            agents = [self.recent.late_answers.number(Side.PROBER, one) for one in self._moved]
            changed = np.zeros(int(flows["prober"].max(initial=0)) + 1, np.bool_)
            changed[[number for number in agents if number < len(changed)]] = True
            self._known_ns[IN_A_ROW, : flows.capacity][changed[flows["prober"]]] = UNKNOWN
            self._moved.clear()
        heard = flows["last_ns"] > moment.active_ns - REFRESH_STEP_NS
        unknown = np.flatnonzero(heard & (self._known_ns[IN_A_ROW, : len(heard)] == UNKNOWN))
        if len(unknown):
            least_ns = self.least_ns[flows["transport"][unknown]]
            usual_ns = self._usual_ns(unknown, moment)
            upper, greatest, middle, lower, least = (
                usual_ns[:, column] for column in (P75, MAX, P50, P25, MIN)
            )

            def above(usual_ns: Floats, share: float) -> Floats:
                relative_ns = self.config.effect_ratio * usual_ns
                out: Floats = usual_ns + share * np.maximum(least_ns, relative_ns)
                return out

            bounds_ns = np.empty((4, len(unknown)))
            bounds_ns[IN_A_ROW] = above(upper, EFFECT_SHARE)
            bounds_ns[SOME] = above(greatest, 1.0)
            bounds_ns[MIDDLE] = middle
            # A least answer that has risen by less is not worth a report.
            bounds_ns[LOWER] = np.maximum(lower, above(least, EFFECT_SHARE))
            # Without a look-back nothing is late.
            self._known_ns[:, unknown] = np.fmin(bounds_ns, NEVER_NS)

    def _usual_ns(self, rows: Int64s, moment: Moment) -> Floats:
        """Return medians of all features over the look-back, nan with too few windows."""
        held = moment.flows.rows(self.lookback.table, rows, create=False)
        opens = self._first_open(rows, moment)
        found = np.full((len(rows), len(FEATURES)), np.nan)
        for index in np.unique(opens).tolist():
            here = opens == index
            found[here] = self.lookback.medians(held[here], index, MIN_COMPARED)
        return found

    def _first_open(self, rows: Int64s, moment: Moment) -> Int64s:
        """Return the index of the first open window of the agent of each row."""
        numbers = self.recent.flows["prober"][rows]
        present = np.flatnonzero(np.bincount(numbers))
        first_open = np.zeros(int(numbers.max(initial=0)) + 1, np.int64)
        for number in present.tolist():
            _, agent = self.recent.late_answers.hosts.key(number)
            first_open[number] = moment.first_open(agent)
        out: Int64s = first_open[numbers]
        return out

    def _evidence(self, row: int, which: int, usual: Floats) -> Evidence:
        """Return an onset's evidence: the highest run, or all `LATEST`, and what is usual."""
        column = {IN_A_ROW: P25, SOME: MAX, MIDDLE: MIN}[which]
        onset = Evidence(
            reference=float(usual[column]),
            threshold=float(self._known_ns[which, row]),
            sent=RUN if which == IN_A_ROW else LATEST,
            baseline_p50_ns=round(float(usual[P50])),
        )
        last = self._last(row, LATEST)
        ordered = highest_run(last) if which == IN_A_ROW else np.sort(last)
        return _with_answers(onset, ordered, which)

    def _is_sound(self, row: int, stragglers: int | None) -> bool:
        """Return whether the last answers are those of the last minute, and no host held any up.

        And, if so many of them are all that there is, whether that is rare for how many answers a
        window has.
        """
        if any(self.recent.late_counts(row, side)[0] for side in Side):
            return False
        answers = self.recent.answers(row)
        if stragglers is None or answers < LATEST:
            return answers >= LATEST
        of_window = answers * self.config.window_ns // (RING_S * SECOND_NS)
        return any(of_window >= least and stragglers >= needed for least, needed in STRAGGLERS)


def _straggler_chance(answers: int, stragglers: int) -> float:
    """Return the bound of the module's text for so many answers of a window, and stragglers.

    The median of m uniform numbers has Beta(h, h)'s distribution, h = (m + 1) / 2, so that
    E V**x = B(h + x, h) / B(h, h); powers of 1 - V**(1/n) are expanded.
    """
    half = (MIN_COMPARED + 1) / 2

    def power(count: int) -> float:
        x = count / answers
        return gamma(half + x) / gamma(2 * half + x) * gamma(2 * half) / gamma(half)

    fewer = sum(
        comb(LATEST, late) * comb(late, n) * (-1.0) ** n * power(LATEST - late + n)
        for late in range(stragglers)
        for n in range(late + 1)
    )
    return 1.0 - fewer


def _bound_of(evidence: Evidence) -> int:
    """Return by which bound an anomaly began, as its records tell.

    The bound of those that left the lower half is the usual median; the others' lie above it.
    """
    bound_ns, median_ns = evidence.threshold, evidence.baseline_p50_ns
    if bound_ns is not None and median_ns is not None and bound_ns <= median_ns:
        return MIDDLE
    return IN_A_ROW if evidence.sent == RUN else SOME


def _with_answers(before: Evidence, ordered: Int32s, which: int) -> Evidence:
    """Return what answers show beside what they are compared with.

    A straggler, the lower quartile of a run, or the least of all; and the median.
    """
    count = len(ordered)
    place = {IN_A_ROW: rank(count, 25), SOME: count - FEWEST, MIDDLE: 0}[which]
    # Of an evidence of this detector; `replace` takes several times as long.
    return Evidence(
        value=float(ordered[place]),
        reference=before.reference,
        threshold=before.threshold,
        sent=before.sent,
        lost=before.lost,
        rtt_p50_ns=int(ordered[rank(count, 50)]),
        baseline_p50_ns=before.baseline_p50_ns,
        host_delay_ns=before.host_delay_ns,
        host_delay_baseline_ns=before.host_delay_baseline_ns,
    )


def highest_run(answers_ns: Int32s) -> Int32s:
    """Return, ascending, the answers in a row whose lower quartile is the highest.

    Parameters
    ----------
    answers_ns : (LATEST,) int32
        The last answers in order, either way.
    """
    runs = np.sort(sliding_window_view(answers_ns, RUN), axis=1)
    out: Int32s = runs[runs[:, rank(RUN, 25)].argmax()]
    return out


def suspicious_rows(recent: RecentProbes, bounds_ns: NDArray[np.int32], since_ns: int) -> Int64s:
    """Return the 5-tuples that a test may find late, ascending: few of a healthy network.

    Their last answers are counted, in whatever order they came.

    Parameters
    ----------
    recent
        The last answers.
    bounds_ns : (4, all rows or more) int32
        What is known of each 5-tuple; `UNKNOWN` for a run: it is not looked at.
    since_ns
        Only those are looked at of which a result came after this active time.
    """
    rows = np.empty(recent.flows.rows_ever, np.int64)
    count = _suspicious(
        recent.latest, recent.flows["last_ns"], since_ns, bounds_ns, RUN - rank(RUN, 25), FEWEST,
        np.empty((4, TILE), np.int32), rows,
    )  # fmt: skip
    return rows[:count].copy()


@compiled
def _suspicious(
    latest: NDArray[np.int32],
    last_ns: NDArray[np.int64],
    since_ns: int,
    known_ns: NDArray[np.int32],
    in_a_row: int,
    some: int,
    counts: NDArray[np.int32],
    rows: NDArray[np.int64],
) -> int:
    """Write the rows; return how many.

    So many answers have to be above the bound of a run, or of stragglers; `counts` is room.
    """
    found = 0
    for first in range(0, len(rows), counts.shape[1]):
        width = min(counts.shape[1], len(rows) - first)
        last = first + width
        run_ns, some_ns = known_ns[IN_A_ROW, first:last], known_ns[SOME, first:last]
        middle_ns, lower_ns = known_ns[MIDDLE, first:last], known_ns[LOWER, first:last]
        runs, stragglers = counts[IN_A_ROW, :width], counts[SOME, :width]
        middles, lowers = counts[MIDDLE, :width], counts[LOWER, :width]
        counts[:] = 0
        for place in range(len(latest)):
            answers = latest[place, first:last]
            for nth in range(width):
                runs[nth] += answers[nth] > run_ns[nth]
                stragglers[nth] += answers[nth] > some_ns[nth]
                middles[nth] += answers[nth] > middle_ns[nth]
                lowers[nth] += answers[nth] > lower_ns[nth]
        for nth in range(width):
            lifted = lowers[nth] == len(latest) and middles[nth] >= len(latest) - 1
            suspicious = lifted or runs[nth] >= in_a_row or stragglers[nth] >= some
            if suspicious and run_ns[nth] != UNKNOWN and last_ns[first + nth] > since_ns:
                rows[found] = first + nth
                found += 1
    return found


def later_than(recent: RecentProbes, rows: Int64s, bounds_ns: Int64s) -> Int64s:
    """Return how many of the last `LATEST` answers of 5-tuples are above a bound.

    Parameters
    ----------
    recent
        The last answers.
    rows, bounds_ns : (n,) int64
        The 5-tuples, and the bound of each, not negative.
    """
    out: Int64s = (recent.latest[:, rows] > bounds_ns).sum(axis=0)
    return out


def lifted_whole(recent: RecentProbes, rows: Int64s, middle_ns: Int64s, lower_ns: Int64s) -> Bools:
    """Return of which 5-tuples the last `LATEST` answers have left the usual lower half.

    None of them is at or below the lower bound, and at most one at or below the middle one.

    Parameters
    ----------
    recent
        The last answers.
    rows, middle_ns, lower_ns : (n,) int64
        The 5-tuples, and the bounds of each, not negative.
    """
    lifted = np.empty(len(rows), np.bool_)
    _lifted_whole(recent.latest, rows, middle_ns, lower_ns, lifted)
    return lifted


@compiled
def _lifted_whole(
    latest: NDArray[np.int32],
    rows: NDArray[np.int64],
    middle_ns: NDArray[np.int64],
    lower_ns: NDArray[np.int64],
    lifted: NDArray[np.bool_],
) -> None:
    """Write the marks."""
    for number in range(len(rows)):
        row, middle, lower = rows[number], middle_ns[number], lower_ns[number]
        below = 0
        for place in range(len(latest)):
            answer = latest[place, row]
            below += 2 if answer <= lower else answer <= middle
            if below > 1:
                break
        lifted[number] = below <= 1


def late_runs(recent: RecentProbes, rows: Int64s, bounds_ns: Int64s) -> Bools:
    """Return of which 5-tuples a run among the last answers has its lower quartile above a bound.

    Parameters
    ----------
    recent
        The last `LATEST` answers.
    rows : (n,) int64
        The 5-tuples.
    bounds_ns : (n,) int64
        The bounds, not negative.
    """
    late = np.empty(len(rows), np.bool_)
    _late_runs(recent.latest, recent.flows["turn"], rows, bounds_ns, rank(RUN, 25), late)
    return late


@compiled
def _late_runs(
    latest: NDArray[np.int32],
    turn: NDArray[np.int8],
    rows: NDArray[np.int64],
    bounds_ns: NDArray[np.int64],
    most: int,
    late: NDArray[np.bool_],
) -> None:
    """Write the marks; at most so many answers of a run may be below the bound."""
    length = len(latest)
    for number in range(len(rows)):
        row, bound = rows[number], bounds_ns[number]
        # The answers in the middle belong to every run: nearly always they tell.
        below = 0
        for nth in range(length - RUN, RUN):
            below += latest[(turn[row] + nth) % length, row] <= bound
        late[number] = False
        if below > most:
            continue
        for first in range(length - RUN + 1):
            below = 0
            for nth in range(first, first + RUN):
                below += latest[(turn[row] + nth) % length, row] <= bound
            if below <= most:
                late[number] = True
                break
