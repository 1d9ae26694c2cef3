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

An anomaly lasts while more of the last `RUN` answers than usual, a quarter, are above the bound of
its onset. Nothing else is kept: the answers are those of the last minute, and what is usual is in
the published windows.
"""

from dataclasses import replace
from math import comb
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Int32s, Int64s
from schemas.columns.compiled import compiled
from schemas.enums import AnomalyKind
from schemas.units import SECOND_NS, US_NS
from streams.columns.closing import rank
from streams.columns.quantities import FEATURES, NONE, OBSERVED
from streams.columns.rounds import FlowKey
from streams.config import REFRESH_STEP_NS, DetectionConfig
from streams.detectors.base import (
    P25,
    P50,
    P75,
    Decision,
    Evidence,
    FalseAlarmRate,
    FeatureBatch,
    OpenAnomaly,
    least_effects_ns,
)
from streams.detectors.late_answers import Side
from streams.detectors.levels import levels
from streams.detectors.lookback import ALL_MARKS, LookBack
from streams.detectors.moments import Moment, MomentDetector
from streams.detectors.recent import LATEST, RecentProbes
from streams.detectors.rises import outlasted
from streams.detectors.weak_latency import EFFECT_SHARE, MIN_COMPARED

# Answers in a row that are compared: with fewer, chance does the same more than once in a hundred
# moments; with more, a delay of ten seconds is over before they are there.
RUN: Final = 8
# Share of answers above an upper quartile.
ABOVE: Final = 0.25


class BriefLatencyDetector(MomentDetector):
    """Suspects 5-tuples nearly all of whose last answers are above the usual upper quartile."""

    kind: ClassVar = AnomalyKind.BRIEF_LATENCY
    name: ClassVar = "brief_latency"
    unit: ClassVar = "ns"
    reference: ClassVar = "Exact tail of the binomial distribution; quantile test, Conover 1999"

    def __init__(self, config: DetectionConfig, recent: RecentProbes, lookback: LookBack) -> None:
        super().__init__(config, recent, lookback)
        self.least_ns = least_effects_ns(config)

    def __len__(self) -> int:
        """Nothing is kept beside what is open."""
        return 0

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the bound of the module's text."""
        del config
        tail = sum(comb(RUN, n) * ABOVE**n * (1 - ABOVE) ** (RUN - n) for n in (RUN - 1, RUN))
        return FalseAlarmRate((LATEST - RUN + 1) * tail, "look at a 5-tuple")

    def observe_moment(self, moment: Moment) -> list[Decision]:
        """End what is over, and begin what is new."""
        decisions = [
            self._end(anomaly, moment.grid_ns, self.current_evidence(anomaly))
            for anomaly in self.open_in_order()
            if self._is_over(anomaly, moment)
        ]
        rows = self._heard(moment)
        runs = np.empty((len(rows), RUN), np.int64)
        full = highest_runs(self.recent, rows, runs)
        rows, runs = rows[full], runs[full]
        opens = self._first_open(rows, moment)
        found: dict[FlowKey, Evidence] = {}
        for index in np.unique(opens).tolist():
            here = opens == index
            found |= self._risen(rows[here], runs[here], int(index), moment)
        for key in sorted(found, key=lambda key: (key[1:], key[0])):
            row = self.recent.flows.row(key)
            began_ns = moment.now_ns(key[0]) - self.recent.seconds_since(row, RUN) * SECOND_NS
            decisions.append(self._begin(key, began_ns, moment.grid_ns, found[key]))
        return decisions

    def current_evidence(self, anomaly: OpenAnomaly) -> Evidence:
        """Return what the last answers show beside what is usual."""
        row = self.recent.flows.find(anomaly.key)
        if row is None:
            return anomaly.evidence
        return _with_run(anomaly.evidence, np.sort(self._last(row)))

    def _is_over(self, anomaly: OpenAnomaly, moment: Moment) -> bool:
        row, bound_ns = self.recent.flows.find(anomaly.key), anomaly.evidence.threshold
        if row is None or bound_ns is None:
            return True
        if outlasted(self.config, anomaly.onset_at, moment.now_ns(anomaly.key[0]) // US_NS):
            return True
        return bool((self._last(row) > bound_ns).sum() <= ABOVE * RUN)

    def _last(self, row: int) -> Int32s:
        """Return a 5-tuple's last answers."""
        turn = int(self.recent.flows["turn"][row])
        places = [(turn - 1 - age) % LATEST for age in range(RUN)]
        out: Int32s = self.recent.latest[places, row]
        return out

    def _first_open(self, rows: Int64s, moment: Moment) -> Int64s:
        """Return the index of the first open window of the agent of each row."""
        _, first, agents = np.unique(
            self.recent.flows["prober"][rows], return_index=True, return_inverse=True
        )
        keys = [self.recent.flows.key(row)[0] for row in rows[first].tolist()]
        out: Int64s = np.array([moment.first_open(agent) for agent in keys], np.int64)[agents]
        return out

    def _heard(self, moment: Moment) -> Int64s:
        """Return the rows of the 5-tuples of which a result came since the last look."""
        flows = self.recent.flows
        rows = flows.rows()
        out: Int64s = rows[flows["last_ns"][rows] > moment.active_ns - REFRESH_STEP_NS]
        return out

    def _risen(
        self, rows: Int64s, runs: Int64s, index: int, moment: Moment
    ) -> dict[FlowKey, Evidence]:
        """Return what is to be reported of 5-tuples whose agents have one first open window."""
        lower = runs[:, rank(RUN, 25)]
        features = np.zeros((len(rows), len(FEATURES)), np.int64)
        # Compared with the usual upper quartile.
        features[:, P75] = lower
        batch = FeatureBatch(
            index=index,
            flows=moment.flows,
            numbers=rows,
            features_ns=features,
            sent=np.full(len(rows), RUN, np.int64),
            answers=np.full(len(rows), RUN, np.int64),
            medians_ns=np.full((len(rows), len(OBSERVED)), NONE, np.int64),
            transports=self.recent.flows["transport"][rows],
        )
        least_ns = EFFECT_SHARE * self.least_ns[batch.transports]
        ratio = EFFECT_SHARE * self.config.effect_ratio
        places = self.lookback.may_have_risen(batch, P75, least_ns, ratio, ALL_MARKS)
        batch, least_ns = batch.select(places), least_ns[places]
        lower, runs = lower[places], runs[places]
        held = batch.rows(self.lookback.table)
        compared = self.lookback.compared(batch, ALL_MARKS)
        features = self.lookback.table["features"]
        usual = {column: levels(features, held, compared, column)[0] for column in (P25, P50, P75)}
        bound_ns = usual[P75] + np.maximum(least_ns, ratio * usual[P75])
        raised = (compared.sum(axis=1) >= MIN_COMPARED) & (lower > bound_ns)
        found = {}
        for place in np.flatnonzero(raised).tolist():
            row, key = int(batch.numbers[place]), batch.key(place)
            if key in self.open or not self._is_sound(row):
                continue
            onset = Evidence(
                reference=float(usual[P25][place]),
                threshold=float(bound_ns[place]),
                sent=RUN,
                baseline_p50_ns=round(float(usual[P50][place])),
            )
            found[key] = _with_run(onset, runs[place])
        return found

    def _is_sound(self, row: int) -> bool:
        """Return whether the last answers are those of the last minute, and no host held any up."""
        late = [self.recent.late_counts(row, side)[0] for side in Side]
        return not any(late) and self.recent.answers(row) >= LATEST


def _with_run(before: Evidence, ordered: Int64s | Int32s) -> Evidence:
    """Return the lower quartile and the median of a run, beside what it is compared with."""
    return replace(
        before, value=float(ordered[rank(RUN, 25)]), rtt_p50_ns=int(ordered[rank(RUN, 50)])
    )


def highest_runs(recent: RecentProbes, rows: Int64s, runs: Int64s) -> Bools:
    """Find of each 5-tuple the answers in a row whose lower quartile is the highest.

    Parameters
    ----------
    recent
        The last `LATEST` answers.
    rows : (n,) int64
        The 5-tuples.
    runs : (n, RUN) int64
        Where these answers go, ascending, ns.

    Returns
    -------
    (n,) bool
        Which 5-tuples have had `LATEST` answers; of the others nothing is found.
    """
    full = np.empty(len(rows), np.bool_)
    _highest_runs(
        recent.latest, recent.flows["turn"], rows, rank(RUN, 25), np.empty(RUN, np.int64), runs,
        full,
    )  # fmt: skip
    return full


@compiled
def _highest_runs(
    latest: NDArray[np.int32],
    turn: NDArray[np.int8],
    rows: NDArray[np.int64],
    place: int,
    ordered: NDArray[np.int64],
    runs: NDArray[np.int64],
    full: NDArray[np.bool_],
) -> None:
    """Write both; `place` is that of the quartile, `ordered` has room for one run."""
    length, width = len(latest), runs.shape[1]
    for number in range(len(rows)):
        row = rows[number]
        full[number] = True
        for other in range(length):
            full[number] &= latest[other, row] >= 0
        best = np.int64(-1)
        for first in range(length - width + 1):
            for nth in range(width):
                value = np.int64(latest[(turn[row] + first + nth) % length, row])
                at = nth
                while at > 0 and ordered[at - 1] > value:
                    ordered[at] = ordered[at - 1]
                    at -= 1
                ordered[at] = value
            if ordered[place] >= best:
                best = ordered[place]
                for nth in range(width):
                    runs[number, nth] = ordered[nth]
