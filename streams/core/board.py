"""The open anomalies of a partition, and the records that tell of them.

An anomaly begins (ONSET), is repeated every few seconds of event time while it
lasts (ONGOING) and ends (CLEARED). What a later record needs from an earlier one
stands in the record itself, so that the tail of the topic restores the board.

What a LATENCY or LATENCY_TREND record says of the windows that it is about. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

from schemas.enums import AnomalyKind, AnomalyState
from schemas.ids import path_id
from schemas.records import Anomaly
from schemas.units import US_NS
from schemas.version import VERSION
from streams.columns.rounds import FlowKey
from streams.core.outputs import anomaly_identity
from streams.detectors.latency import Verdicts
from streams.detectors.lognormal import Shift

AlarmKey = tuple[FlowKey, AnomalyKind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a record says about an anomaly beside who, when and what."""

    value: float | None = None
    reference: float | None = None
    threshold: float | None = None
    sent: int = 0
    lost: int = 0
    rtt_p50_ns: int | None = None
    baseline_p50_ns: int | None = None
    host_delay_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """An open anomaly. Times in microseconds, as in the record, so that both are the same."""

    key: FlowKey
    kind: AnomalyKind
    onset_at: int
    evidence: Evidence


DETECTORS: Final = {
    AnomalyKind.CONNECTIVITY: ("fast_path", "probes"),
    AnomalyKind.LOSS: ("loss_test", "ratio"),
    AnomalyKind.LATENCY: ("lof", "ns"),
    AnomalyKind.LATENCY_TREND: ("lognormal_z", "ns"),
}


class Board:
    """Open anomalies by 5-tuple and kind."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._alarms: dict[AlarmKey, Alarm] = {}
        # Begun in the present round, and for which time: told already, not to be repeated at once.
        self._fresh: dict[AlarmKey, int] = {}

    def __len__(self) -> int:
        return len(self._alarms)

    def next_round(self) -> None:
        """Forget which anomalies began in the round before."""
        self._fresh.clear()

    def find(self, key: FlowKey, kind: AnomalyKind) -> Alarm | None:
        """Return the open anomaly of that 5-tuple and kind."""
        return self._alarms.get((key, kind))

    def alarms(self, kind: AnomalyKind | None = None) -> list[Alarm]:
        """Return the open anomalies (of a kind) in an order that depends on nothing else."""
        chosen = [a for a in self._alarms.values() if kind is None or a.kind is kind]
        return sorted(chosen, key=lambda a: (a.key[1:], a.key[0], a.kind.value))

    def keys(self, kind: AnomalyKind) -> Iterator[FlowKey]:
        """Return the 5-tuples with an open anomaly of that kind."""
        return (key for key, found in self._alarms if found is kind)

    def open(
        self, key: FlowKey, kind: AnomalyKind, onset_ns: int, event_ns: int, evidence: Evidence
    ) -> Anomaly:
        """Open an anomaly and return its ONSET."""
        alarm = Alarm(key=key, kind=kind, onset_at=onset_ns // US_NS, evidence=evidence)
        self._alarms[key, kind] = alarm
        self._fresh[key, kind] = event_ns
        return self._record(alarm, AnomalyState.ONSET, event_ns // US_NS)

    def due(self, known_ns: int) -> list[Alarm]:
        """Return the open anomalies to be repeated: all but those of the present round.

        Parameters
        ----------
        known_ns
            Also of the present round are those that began before: a round after a long silence
            tells of what was before it, and a restart does not read so far back.
        """
        fresh = self._fresh
        return [a for a in self.alarms() if fresh.get((a.key, a.kind), -1) < known_ns]

    def update(self, alarm: Alarm, evidence: Evidence) -> Alarm:
        """Change what the next records say."""
        changed = replace(alarm, evidence=evidence)
        self._alarms[alarm.key, alarm.kind] = changed
        return changed

    def repeat(self, alarm: Alarm, event_ns: int) -> Anomaly:
        """Return an ONGOING record."""
        return self._record(alarm, AnomalyState.ONGOING, event_ns // US_NS)

    def clear(self, alarm: Alarm, event_ns: int, evidence: Evidence | None = None) -> Anomaly:
        """Close an anomaly and return its CLEARED."""
        del self._alarms[alarm.key, alarm.kind]
        final = alarm if evidence is None else replace(alarm, evidence=evidence)
        return self._record(final, AnomalyState.CLEARED, event_ns // US_NS)

    def restore(self, tail: Iterable[Anomaly]) -> None:
        """Set the open anomalies from the records of the topic's tail, in their order."""
        self._alarms.clear()
        for anomaly in tail:
            if anomaly.kind not in DETECTORS:
                continue
            key = (anomaly.agent_id, anomaly.src, anomaly.dst, anomaly.flow)
            if anomaly.state is AnomalyState.CLEARED:
                self._alarms.pop((key, anomaly.kind), None)
            else:
                self._alarms[key, anomaly.kind] = Alarm(
                    key=key,
                    kind=anomaly.kind,
                    onset_at=anomaly.onset_at,
                    evidence=Evidence(
                        value=anomaly.value,
                        reference=anomaly.reference,
                        threshold=anomaly.threshold,
                        sent=anomaly.sent,
                        lost=anomaly.lost,
                        rtt_p50_ns=anomaly.rtt_p50_ns,
                        baseline_p50_ns=anomaly.baseline_p50_ns,
                        host_delay_ns=anomaly.host_delay_ns,
                    ),
                )

    def _record(self, alarm: Alarm, state: AnomalyState, event_at: int) -> Anomaly:
        agent, src, dst, flow = alarm.key
        detector, unit = DETECTORS[alarm.kind]
        said = alarm.evidence
        return Anomaly(
            cluster=self._cluster,
            anomaly_id=anomaly_identity(alarm.key, alarm.kind, state, alarm.onset_at, event_at),
            kind=alarm.kind,
            state=state,
            path_id=path_id(src, dst),
            src=src,
            dst=dst,
            flow=flow,
            agent_id=agent,
            event_at=event_at,
            onset_at=alarm.onset_at,
            detector=detector,
            value=said.value,
            reference=said.reference,
            threshold=said.threshold,
            unit=None if said.value is None else unit,
            sent=said.sent,
            lost=said.lost,
            rtt_p50_ns=said.rtt_p50_ns,
            baseline_p50_ns=said.baseline_p50_ns,
            host_delay_ns=said.host_delay_ns,
            producer_version=VERSION,
        )


class Judged(Protocol):
    """As much of a window as evidence shows."""

    @property
    def p75_ns(self) -> int | None:
        """Upper quartile."""
        ...

    @property
    def p50_ns(self) -> int | None:
        """Median."""
        ...

    @property
    def sent(self) -> int:
        """Probes sent."""
        ...

    @property
    def lost(self) -> int:
        """Probes lost."""
        ...

    @property
    def host_delay_p50_ns(self) -> int | None:
        """Median of the prober's own delay."""
        ...


def window_evidence(before: Evidence, window: Judged) -> Evidence:
    """Return what a window says, against the reference of the onset."""
    return Evidence(
        value=None if window.p75_ns is None else float(window.p75_ns),
        reference=before.reference,
        threshold=before.threshold,
        sent=window.sent,
        lost=window.lost,
        rtt_p50_ns=window.p50_ns,
        baseline_p50_ns=before.baseline_p50_ns,
        host_delay_ns=window.host_delay_p50_ns,
    )


def onset_evidence(verdicts: Verdicts, place: int) -> Evidence:
    """Return what a verdict compares with."""
    baseline = float(verdicts.baseline_ns[place])
    return Evidence(
        reference=baseline,
        threshold=baseline + float(verdicts.effect_ns[place]),
        baseline_p50_ns=round(float(verdicts.baseline_p50_ns[place])),
    )


def shift_evidence(shift: Shift) -> Evidence:
    """Return what a slow trend says."""
    return Evidence(
        value=float(shift.median_ns),
        reference=float(shift.reference_ns),
        threshold=shift.reference_ns + shift.least_ns,
        rtt_p50_ns=shift.median_ns,
        baseline_p50_ns=shift.reference_ns,
    )
