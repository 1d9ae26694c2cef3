"""Lost connectivity: consecutive losses of a 5-tuple, in the order of the log.

An agent's rounds stand in the log in the order in which they were made.

Three losses in a row are an onset in the very round that brings the third; as
many answers in a row clear it. On a link that loses 10 % such a run happens by
chance (1 in 1,000 rounds of three probes), so the anomaly carries how many of
the last seconds' probes were lost: a cut shows all of them lost, a lossy link a
mixture, and it clears at the next answers.

State is kept only of 5-tuples with a recent loss; healthy ones cost nothing. It is a function
of the 5-tuple's results that arrived in the last `RUN_NS` of active time, not of what was decided:
a restart rebuilds it from the log.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from schemas.enums import AnomalyKind
from schemas.units import SECOND_NS
from streams.columns.rounds import NEVER_NS, FlowKey
from streams.config import DetectionConfig
from streams.detectors.base import (
    FOREVER_S,
    Baseline,
    Decision,
    Evidence,
    FalseAlarmRate,
    OpenAnomaly,
    ProbeDetector,
    ResultBatch,
)
from streams.detectors.recent import RecentProbes

# Losses further apart are no run: at an interval above 10 s a run of three needs
# the re-probes of one round.
RUN_NS: Final = 30 * SECOND_NS
# A record says how many probes of these last seconds were lost.
COUNT_SPAN_S: Final = 10
# Values of `watched` in `RecentProbes.flows`: no loss lately; a loss lately; the latest probe lost.
HEALTHY: Final = 0
WATCHED: Final = 1
CUT: Final = 2


@dataclass(frozen=True, slots=True)
class Result:
    """One probe of a 5-tuple: when its result arrived, in active time, and when it was sent."""

    active_ns: int
    sent_ns: int
    lost: bool


@dataclass(frozen=True, slots=True)
class Run:
    """The latest results of a 5-tuple that are all alike; sending times of the first and last."""

    lost: bool
    count: int
    first_ns: int
    last_ns: int
    # Nothing but this run within RUN_NS.
    alone: bool


@dataclass(slots=True)
class _Recent:
    """The results of a 5-tuple within `RUN_NS`, and how many of the latest are alike."""

    results: list[Result]
    alike: int

    def append(self, result: Result) -> Run:
        """Observe a result and return the latest run."""
        results = self.results
        self.alike = self.alike + 1 if results and results[-1].lost == result.lost else 1
        results.append(result)
        old = 0
        while results[old].active_ns < result.active_ns - RUN_NS:
            old += 1
        del results[:old]
        self.alike = min(self.alike, len(results))
        return self.latest()

    def latest(self) -> Run:
        """Return the latest run."""
        first, last = self.results[-self.alike], self.results[-1]
        alone = self.alike == len(self.results)
        return Run(last.lost, self.alike, first.sent_ns, last.sent_ns, alone)


class Runs:
    """Recent results of the 5-tuples that lost a probe, by row, in the order of the log.

    Parameters
    ----------
    losses
        Length of a run after which a 5-tuple is cut off, or healthy again.

    Examples
    --------
    >>> runs = Runs(3)
    >>> times = [second * SECOND_NS for second in range(4)]
    >>> [runs.observe(0, Result(time, time, True), None).count for time in times[:3]]
    [1, 2, 3]
    >>> runs.observe(0, Result(times[3], times[3], False), None).count
    1
    """

    def __init__(self, losses: int) -> None:
        self._losses = losses
        self._recent: dict[int, _Recent] = {}

    def __len__(self) -> int:
        return len(self._recent)

    def __contains__(self, row: int) -> bool:
        return row in self._recent

    def observe(self, row: int, result: Result, answered_ns: int | None) -> Run:
        """Observe a result and return the latest run.

        Parameters
        ----------
        row
            The 5-tuple.
        result
            What came of a probe.
        answered_ns
            Active time of the last answer before, for a 5-tuple that was healthy until now; None:
            never probed.
        """
        recent = self._recent.get(row)
        if recent is None:
            before = [] if answered_ns is None else [Result(answered_ns, 0, lost=False)]
            recent = self._recent[row] = _Recent(before, len(before))
        run = recent.append(result)
        if not run.lost and (run.count >= self._losses or run.alone):
            del self._recent[row]
        return run

    def latest(self, row: int) -> Run | None:
        """Return the latest run of a 5-tuple that is kept here."""
        recent = self._recent.get(row)
        return None if recent is None else recent.latest()

    def watch_state(self, row: int) -> int:
        """Return HEALTHY, WATCHED or CUT."""
        recent = self._recent.get(row)
        if recent is None:
            return HEALTHY
        return CUT if recent.results[-1].lost else WATCHED

    def forget(self, row: int) -> None:
        """Forget a 5-tuple."""
        self._recent.pop(row, None)


class ConnectivityDetector(ProbeDetector):
    """Decides by runs of losses and of answers; sets which 5-tuples are watched."""

    kind: ClassVar = AnomalyKind.CONNECTIVITY
    name: ClassVar = "fast_path"
    unit: ClassVar = "probes"
    reference: ClassVar = "Run of losses; its probability is a power of the base rate of loss"

    def __init__(self, config: DetectionConfig, recent: RecentProbes, baseline: Baseline) -> None:
        super().__init__(config, recent, baseline)
        self.runs = Runs(config.connectivity_losses)

    def __len__(self) -> int:
        return len(self.runs)

    @classmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the probability of a run of independent losses."""
        return FalseAlarmRate(config.loss_base_rate**config.connectivity_losses, "probe")

    def observe_results(self, results: ResultBatch, *, decide: bool) -> list[Decision]:
        """Observe the results of 5-tuples that lost a probe, now or lately, one by one."""
        decisions: list[Decision] = []
        watched = self.recent.flows["watched"]
        rows, ok = results.rows.tolist(), results.ok.tolist()
        lost = {row for row, answered in zip(rows, ok, strict=True) if not answered}
        # A 5-tuple that is cut off is watched until it answers.
        watched_before = watched[results.rows].tolist()
        each = zip(
            rows,
            watched_before,
            ok,
            results.active_ns.tolist(),
            results.sent_ns.tolist(),
            results.before_ns.tolist(),
            strict=True,
        )
        for row, state, answered, active_ns, sent_ns, before_ns in each:
            if state == HEALTHY and row not in lost:
                continue
            result = Result(active_ns, sent_ns, not answered)
            run = self.runs.observe(row, result, None if before_ns == NEVER_NS else before_ns)
            watched[row] = self.runs.watch_state(row)
            if decide:
                decisions += self._decide(row, run)
        return decisions

    @property
    def next_decision_s(self) -> int:
        """Only results decide."""
        return FOREVER_S

    def current_evidence(self, anomaly: OpenAnomaly) -> Evidence:
        """Return the latest run of losses and the counts of the last seconds."""
        row = self.recent.flows.find(anomaly.key)
        if row is None:
            return anomaly.evidence
        run = self.runs.latest(row)
        return self._evidence(anomaly.key, row, run.count if run is not None and run.lost else 0)

    def forget_row(self, row: int) -> None:
        """Forget a 5-tuple's results."""
        self.runs.forget(row)

    def _decide(self, row: int, run: Run) -> list[Decision]:
        key = self.recent.flows.key(row)
        anomaly = self.open.get(key)
        enough = run.count >= self.config.connectivity_losses
        if anomaly is None and run.lost and enough:
            evidence = self._evidence(key, row, run.count)
            return [self._begin(key, run.first_ns, run.last_ns, evidence)]
        if anomaly is not None and not run.lost and (enough or run.alone):
            return [self._end(anomaly, run.last_ns, self._evidence(key, row, 0))]
        return []

    def _evidence(self, key: FlowKey, row: int, losses: int) -> Evidence:
        sent, lost = self.recent.totals(row, COUNT_SPAN_S)
        return Evidence(
            value=float(losses),
            threshold=float(self.config.connectivity_losses),
            sent=sent,
            lost=lost,
            baseline_p50_ns=self.baseline_p50_ns(key),
        )
