"""Which anomalies are open on which 5-tuple.

In: anomaly.v1 records (onset, repetition, clearing). Out: the open anomalies as `Symptom`s, by
5-tuple and by family. All times are event times in nanoseconds.
"""

from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass, fields
from typing import Final

from localizer.network.traces import key_of
from schemas.enums import ANOMALY_FAMILY, AnomalyFamily, AnomalyKind, AnomalyState
from schemas.ids import FlowId
from schemas.process.names import shared
from schemas.records import Anomaly
from schemas.units import SECOND_NS, us_to_ns

# The worker repeats open anomalies every 5 s. One that it did not repeat three times belongs to a
# worker or an agent that is gone.
STALE_NS: Final = 16 * SECOND_NS
# A cut that ended within this time was none: three consecutive losses occur with partial loss (at
# 10 % per crossing, once in 150 rounds of a 5-tuple).
BRIEF_NS: Final = 10 * SECOND_NS
# Such a brief cut is evidence of loss for as long as the loss test looks back.
BRIEF_CUT_MEMORY_NS: Final = 20 * SECOND_NS
# An event time further than this from the effective time comes from a clock that is off, from a
# backlog, or from a window that was closed late.
SKEWED_NS: Final = 5 * SECOND_NS
# No backlog explains an event time that is still older.
BACKLOG_NS: Final = 60 * SECOND_NS
# The 5-tuple loses a share of its probes.
LOSSY: Final = frozenset({AnomalyKind.LOSS, AnomalyKind.STRAY_LOSS})
# What a 5-tuple's own test finds within seconds; all else adds up over windows or 5-tuples.
SUDDEN: Final = frozenset({AnomalyKind.CONNECTIVITY, AnomalyKind.LOSS})
MAX_FLOWS: Final = 262_144
NONE: Final[Mapping[AnomalyKind, "Symptom"]] = {}
# If the prober's own delay has risen by at least this share of the rise, the prober caused it.
OWN_DELAY_SHARE: Final = 0.5
# How many answers were late, of how many; (0, 0) where none was or it is not known.
LateCount = tuple[int, int]
NO_LATE: Final[LateCount] = (0, 0)


# Not frozen, since that is slower to create and there are hundreds of thousands; never modified.
@dataclass(slots=True, kw_only=True)
class Symptom:
    """An anomaly on one 5-tuple.

    Attributes
    ----------
    onset_ns
        First evidence.
    onset_at
        The same by the agent's clock, as in the record.
    seen_ns
        When it was detected.
    last_ns
        When it was last reported.
    renewed_ns
        When it was last reported with another value: since another window shows it.
    host_delay_baseline_ns
        The greatest of the prober's own delays in the windows before.
    median_rise_ns
        Rise of the median round trip; None if not known.
    over_ns
        When a brief cut ended; None if the anomaly is open.
    prober_late, responder_late
        Answers of the last seconds that the host of the prober, or of the target, held up for
        long: of all their 5-tuples, when it was last reported.
    lifted
        Whether the last answers have left the usual lower half (BRIEF_LATENCY), and what has risen
        is the least of them: its record has the usual median as its bound.
    """

    kind: AnomalyKind
    agent_id: str
    onset_ns: int
    onset_at: int
    seen_ns: int
    last_ns: int
    sent: int
    lost: int
    rtt_ns: int | None
    baseline_ns: int | None
    host_delay_ns: int | None
    host_delay_baseline_ns: int | None = None
    median_rise_ns: int | None = None
    renewed_ns: int = 0
    over_ns: int | None = None
    prober_late: LateCount = NO_LATE
    responder_late: LateCount = NO_LATE
    lifted: bool = False

    def at(self, *, seen_ns: int | None = None, last_ns: int | None = None) -> "Symptom":
        """Return it with other times; `replace` takes ten times as long."""
        copy = object.__new__(Symptom)
        for name in FIELDS:
            setattr(copy, name, getattr(self, name))
        if seen_ns is not None:
            copy.seen_ns = seen_ns
        if last_ns is not None:
            copy.last_ns = last_ns
        return copy

    @property
    def shift_ns(self) -> int | None:
        """Rise of the round trip in the detector's statistic; None if not known."""
        if self.rtt_ns is None or self.baseline_ns is None:
            return None
        return self.rtt_ns - self.baseline_ns

    @property
    def of_some(self) -> bool:
        """Whether only some of the last answers are late: their median has risen by less than half.

        Windows are compared by other quantiles: there a queue looks like this.
        """
        shift_ns, median_ns = self.shift_ns, self.median_rise_ns
        return (
            self.kind is AnomalyKind.BRIEF_LATENCY
            and not self.lifted
            and shift_ns is not None
            and median_ns is not None
            and 2 * median_ns < shift_ns
        )

    @property
    def is_probers(self) -> bool:
        """Whether nothing has risen, or the prober's own delay has risen with it.

        The round trip does not contain that delay. But a host that got busy is late with what the
        round trip does contain, so what counts is the increase above what is usual for it.
        """
        shift_ns = self.shift_ns
        if shift_ns is None:
            return False
        increase_ns = (self.host_delay_ns or 0) - (self.host_delay_baseline_ns or 0)
        return shift_ns <= 0 or increase_ns >= OWN_DELAY_SHARE * shift_ns


FIELDS: Final = tuple(f.name for f in fields(Symptom))


def _nanoseconds(anomaly: Anomaly, value: float | None) -> int | None:
    return None if value is None or anomaly.unit != "ns" else round(value)


def _difference(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one - other


def _is_lifted(anomaly: Anomaly) -> bool:
    bound_ns, median_ns = anomaly.threshold, anomaly.baseline_p50_ns
    return (
        anomaly.kind is AnomalyKind.BRIEF_LATENCY
        and bound_ns is not None
        and median_ns is not None
        and bound_ns <= median_ns
    )


def late_count(late: int | None, answers: int | None) -> LateCount:
    """Return the counts of a record; (0, 0) where no answer was late."""
    return (late, max(answers or 0, late)) if late else NO_LATE


class OpenAnomalies:
    """The open anomalies.

    Attributes
    ----------
    version
        Grows when an anomaly begins or ends; a repetition changes nothing.
    sudden_version
        The same of the `SUDDEN` kinds alone.
    stale
        Anomalies dropped because nobody repeated them.
    refused
        Anomalies beyond the bound.
    """

    def __init__(self, max_flows: int = MAX_FLOWS) -> None:
        self.version = 0
        self.sudden_version = 0
        self.stale = 0
        self.refused = 0
        self._max_flows = max_flows
        self._open: dict[FlowId, dict[AnomalyKind, Symptom]] = {}
        self._brief: dict[FlowId, Symptom] = {}
        # Open anomalies by family, and their 5-tuples in order; None: to be sorted again.
        self._by_family: dict[AnomalyFamily, dict[FlowId, tuple[Symptom, ...]]] = {
            f: {} for f in AnomalyFamily
        }
        self._order: dict[AnomalyFamily, list[FlowId] | None] = dict.fromkeys(AnomalyFamily)
        # What `set_pooled` was called with last.
        self._pooled: dict[AnomalyKind, Mapping[FlowId, Symptom]] = {}
        # Lower bound of when any open anomaly was last reported, except by the frozen agents.
        self._oldest_ns = 0
        self._frozen: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def empty(self) -> bool:
        """Whether no anomaly is open and no cut ended a moment ago."""
        return not self._open and not self._brief

    def apply_anomaly(self, anomaly: Anomaly, at_ns: int | None = None) -> None:
        """Apply an onset, a repetition or a clearing; duplicates change nothing.

        Parameters
        ----------
        at_ns
            Its effective time, which counts if the event time is far from it.
        """
        if anomaly.kind not in ANOMALY_FAMILY:
            return
        key = key_of(anomaly.src, anomaly.dst, anomaly.flow)
        known = self._open.get(key, NONE).get(anomaly.kind)
        event_ns = us_to_ns(anomaly.event_at)
        onset_ns = us_to_ns(anomaly.onset_at)
        last_ns = event_ns
        if at_ns is not None and abs(event_ns - at_ns) > SKEWED_NS:
            # Whether it is still reported is a matter of the log's time.
            last_ns = at_ns
        if at_ns is not None and not at_ns - BACKLOG_NS <= event_ns <= at_ns + SKEWED_NS:
            # The agent's clock is off: what it says of the onset is as well.
            onset_ns += at_ns - event_ns
            event_ns = at_ns
        if anomaly.state is AnomalyState.CLEARED:
            if known is not None:
                self._clear(key, known, event_ns)
            return
        if anomaly.state not in (AnomalyState.ONSET, AnomalyState.ONGOING):
            return
        if known is None and key not in self._open and len(self._open) >= self._max_flows:
            self.refused += 1
            return
        same = known is not None and known.onset_at == anomaly.onset_at
        rtt_ns = _nanoseconds(anomaly, anomaly.value)
        if known is None:
            # A repetition that is the first one known here says not since when it has its value.
            renewed_ns = event_ns if anomaly.state is AnomalyState.ONSET else onset_ns
        else:
            renewed_ns = known.renewed_ns if same and rtt_ns == known.rtt_ns else event_ns
        symptom = Symptom(
            kind=anomaly.kind,
            agent_id=shared(anomaly.agent_id),
            onset_ns=known.onset_ns if known is not None and same else onset_ns,
            onset_at=anomaly.onset_at,
            seen_ns=known.seen_ns if known is not None and same else event_ns,
            last_ns=last_ns,
            renewed_ns=renewed_ns,
            sent=anomaly.sent,
            lost=anomaly.lost,
            rtt_ns=rtt_ns,
            baseline_ns=_nanoseconds(anomaly, anomaly.reference),
            host_delay_ns=anomaly.host_delay_ns,
            host_delay_baseline_ns=anomaly.host_delay_baseline_ns,
            median_rise_ns=_difference(anomaly.rtt_p50_ns, anomaly.baseline_p50_ns),
            prober_late=late_count(anomaly.prober_late, anomaly.prober_answers),
            responder_late=late_count(anomaly.responder_late, anomaly.responder_answers),
            lifted=_is_lifted(anomaly),
        )
        kinds = self._open.get(key)
        if kinds is None:
            self._open[key] = {anomaly.kind: symptom}
            family = ANOMALY_FAMILY[anomaly.kind]
            self._by_family[family][key], self._order[family] = (symptom,), None
        else:
            kinds[anomaly.kind] = symptom
            self._update_family(key, ANOMALY_FAMILY[anomaly.kind])
        self._oldest_ns = min(self._oldest_ns, last_ns)
        if not same:
            self._note_change(anomaly.kind)

    def set_pooled(
        self, kind: AnomalyKind, symptoms: Mapping[FlowId, Symptom], now_ns: int | None = None
    ) -> None:
        """Set which 5-tuples have a symptom of a kind that is only believed of many together.

        Parameters
        ----------
        now_ns
            Present, if new ones are seen from now on only; else as the symptoms say.
        """
        before, self._pooled[kind] = self._pooled.get(kind, {}), symptoms
        for key in before:
            known = self._open.get(key, NONE).get(kind)
            if known is not None and key not in symptoms:
                self._clear(key, known, 0)
        for key, symptom in symptoms.items():
            kinds = self._open.setdefault(key, {})
            known = kinds.get(kind)
            if known is not None and before.get(key) is symptom:
                # It was not reported again since.
                continue
            if known is None:
                self._note_change(kind)
            seen_ns = now_ns if known is None else known.seen_ns
            kinds[kind] = symptom if seen_ns is None else symptom.at(seen_ns=seen_ns)
            self._update_family(key, ANOMALY_FAMILY[kind])
            self._oldest_ns = min(self._oldest_ns, symptom.last_ns)

    def drop_flow(self, key: FlowId) -> None:
        """Forget everything about a 5-tuple."""
        gone = self._open.pop(key, None), self._brief.pop(key, None)
        for family in AnomalyFamily:
            self._update_family(key, family)
        if gone != (None, None):
            self._note_change(
                *(gone[0] or ()), *(AnomalyKind.CONNECTIVITY,) * (gone[1] is not None)
            )

    def expire(self, now_ns: int, frozen_agents: frozenset[str]) -> None:
        """Drop what nobody repeats, except reports of dead agents: they cannot repeat them."""
        if now_ns - self._oldest_ns > STALE_NS or frozen_agents != self._frozen:
            self._forget_stale(now_ns, frozen_agents)
        for key, symptom in list(self._brief.items()):
            if symptom.over_ns is None or now_ns - symptom.over_ns > BRIEF_CUT_MEMORY_NS:
                del self._brief[key]
                self._note_change(AnomalyKind.CONNECTIVITY)

    def open(self, key: FlowId) -> dict[AnomalyKind, Symptom]:
        """Return the open anomalies of a 5-tuple by kind."""
        return self._open.get(key, {})

    def flows(self) -> list[FlowId]:
        """Return the 5-tuples with an open anomaly."""
        return list(self._open)

    def flows_of(self, family: AnomalyFamily) -> KeysView[FlowId]:
        """Return the 5-tuples with open anomalies of a family."""
        return self._by_family[family].keys()

    def by_family(self, family: AnomalyFamily) -> Iterator[tuple[FlowId, tuple[Symptom, ...]]]:
        """Yield each 5-tuple with open anomalies of a family, sorted, and these anomalies."""
        filed, order = self._by_family[family], self._order[family]
        if order is None:
            order = self._order[family] = sorted(filed)
        for key in order:
            yield key, filed[key]

    def symptoms(self, family: AnomalyFamily, key: FlowId) -> tuple[Symptom, ...]:
        """Return the open anomalies of a family of a 5-tuple that has some."""
        return self._by_family[family][key]

    def brief_cuts(self) -> Mapping[FlowId, Symptom]:
        """Return the 5-tuples that were cut off for a moment; some are bad again."""
        return self._brief

    def is_open(self, key: FlowId) -> bool:
        """Return whether a 5-tuple has open anomalies."""
        return key in self._open

    def _note_change(self, *kinds: AnomalyKind) -> None:
        self.version += 1
        self.sudden_version += not SUDDEN.isdisjoint(kinds)

    def _forget_stale(self, now_ns: int, frozen_agents: frozenset[str]) -> None:
        self._frozen, self._oldest_ns = frozen_agents, now_ns
        for key, kinds in list(self._open.items()):
            for kind, symptom in list(kinds.items()):
                if symptom.agent_id in frozen_agents:
                    continue
                if now_ns - symptom.last_ns > STALE_NS:
                    del kinds[kind]
                    self.stale += 1
                    self._note_change(kind)
                    self._update_family(key, ANOMALY_FAMILY[kind])
                else:
                    self._oldest_ns = min(self._oldest_ns, symptom.last_ns)
            if not kinds:
                del self._open[key]

    def _update_family(self, key: FlowId, family: AnomalyFamily) -> None:
        """Update the family index for a 5-tuple."""
        filed, symptoms = self._by_family[family], self._open.get(key, {}).values()
        found = tuple([s for s in symptoms if ANOMALY_FAMILY[s.kind] is family])
        if bool(found) != (key in filed):
            self._order[family] = None
        if found:
            filed[key] = found
        else:
            filed.pop(key, None)

    def _clear(self, key: FlowId, known: Symptom, event_ns: int) -> None:
        del self._open[key][known.kind]
        if not self._open[key]:
            del self._open[key]
        self._update_family(key, ANOMALY_FAMILY[known.kind])
        brief = event_ns - known.onset_ns <= BRIEF_NS
        if known.kind is AnomalyKind.CONNECTIVITY and brief and len(self._brief) < self._max_flows:
            self._brief[key] = Symptom(
                kind=known.kind,
                agent_id=known.agent_id,
                onset_ns=known.onset_ns,
                onset_at=known.onset_at,
                seen_ns=known.seen_ns,
                last_ns=event_ns,
                sent=known.sent,
                lost=known.lost,
                rtt_ns=None,
                baseline_ns=None,
                host_delay_ns=None,
                over_ns=event_ns,
                prober_late=known.prober_late,
                responder_late=known.responder_late,
            )
        self._note_change(known.kind)
