"""What a LATENCY or LATENCY_TREND record says of the windows that it is about. Pure."""

from typing import Protocol

from streams.board import Evidence
from streams.detectors.latency import Verdicts
from streams.detectors.lognormal import Shift


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
