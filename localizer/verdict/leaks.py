"""Turns losses of a leaking component into symptoms that inference explains and a fault owns.

`localizer.inference.pooled_loss` says that a component leaks. The 5-tuples that lost a probe there
then count as lossy until the leak is over: it is over when no loss follows for several times the
usual gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from localizer.facts.anomalies import Symptom
from localizer.facts.inputs import Sources
from localizer.facts.stray_losses import StrayLoss
from localizer.inference.observations import ResolvedFaults
from localizer.inference.pooled_loss import PooledLoss, find_leaks
from localizer.network.flow_index import FlowIndex
from localizer.verdict.incident import Incident
from schemas.enums import AnomalyFamily, AnomalyKind
from schemas.ids import FlowId
from schemas.units import SECOND_NS

STEP_NS: Final = 5 * SECOND_NS
# A leak is over after so many usual gaps without a loss. One in ten thousand gaps is as long by
# chance (exp(-9)), and a leak that goes on has hundreds of them.
QUIET_GAPS: Final = 9
LEAST_QUIET_NS: Final = 30 * SECOND_NS
MOST_QUIET_NS: Final = 300 * SECOND_NS
# The ring of a worker, in which it counts `sent`.
COUNTED_S: Final = 60


@dataclass(slots=True)
class _Leak:
    """A leak that goes on; `losses_ns` are its losses in order."""

    since_ns: int
    losses_ns: list[int]

    def is_over(self, now_ns: int) -> bool:
        gap_ns = (self.losses_ns[-1] - self.losses_ns[0]) // max(1, len(self.losses_ns) - 1)
        quiet_ns = min(max(QUIET_GAPS * gap_ns, LEAST_QUIET_NS), MOST_QUIET_NS)
        return now_ns - self.losses_ns[-1] > quiet_ns


class Leaks:
    """The components that lose a small share of all packets now."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._leaks: dict[str, _Leak] = {}
        self._next_ns = 0

    def observe_time(
        self,
        now_ns: int,
        index: FlowIndex,
        resolved: ResolvedFaults,
        open_faults: Sequence[Incident],
    ) -> None:
        """Look for leaks every `STEP_NS`; let their 5-tuples count as lossy."""
        if now_ns < self._next_ns:
            return
        # At multiples of it, so that a process that starts again tests when the former one would.
        self._next_ns = (now_ns // STEP_NS + 1) * STEP_NS
        sources = self._sources
        sources.strays.expire(now_ns)
        if not len(sources.strays) and not self._leaks:
            return
        self._leave_to(resolved)
        crossed = self._crossed(now_ns)
        blamed = frozenset[str]().union(*(fault.components for fault in open_faults))
        free = [(loss, components) for loss, components in crossed if blamed.isdisjoint(components)]
        found = find_leaks(
            [PooledLoss(loss.lost_ns, components, loss.key[:2]) for loss, components in free],
            lambda component: int(index.crossing[index.components.get(component, 0)]),
            flows=len(index),
            rate_hz=_rate_hz([loss for loss, _ in free]),
            step_ns=STEP_NS,
            now_ns=now_ns,
            counted=lambda component: self._counted(component, free),
        )
        for component, leak in found.items():
            self._leaks.setdefault(component, _Leak(leak.since_ns, []))
        symptoms: dict[FlowId, Symptom] = {}
        for component, leak_now in list(self._leaks.items()):
            mine = [
                loss
                for loss, components in crossed
                if component in components and loss.lost_ns >= leak_now.since_ns
            ]
            leak_now.losses_ns = sorted(loss.lost_ns for loss in mine) or leak_now.losses_ns
            if not leak_now.losses_ns or leak_now.is_over(now_ns):
                del self._leaks[component]
                continue
            for loss in mine:
                known = symptoms.get(loss.key)
                symptoms[loss.key] = _symptom(loss, known, now_ns)
        sources.anomalies.set_pooled(AnomalyKind.STRAY_LOSS, symptoms)

    def _leave_to(self, resolved: ResolvedFaults) -> None:
        """Let the losses that resolved faults account for never count again.

        Faults are forgotten sooner than losses. Those of a cable that was healed would show the
        leak once more.
        """
        strays = self._sources.strays
        until_ns: dict[FlowId, int] = {}
        for loss in strays.losses():
            if loss.key not in until_ns:
                until_ns[loss.key] = resolved.until_ns(loss.key)
            if loss.lost_ns <= until_ns[loss.key]:
                strays.explain(loss.key, until_ns[loss.key])

    def _counted(
        self, component: str, losses: Sequence[tuple[StrayLoss, tuple[str, ...]]]
    ) -> float:
        """Return the evidence of a counter that went out of order when the losses began."""
        findings = self._sources.findings
        if not findings.any_near(component, AnomalyFamily.LOSS):
            return 0.0
        spans = {(loss.lost_ns, loss.lost_ns) for loss, crossed in losses if component in crossed}
        return findings.evidence(component, AnomalyFamily.LOSS, spans)

    def _crossed(self, now_ns: int) -> list[tuple[StrayLoss, tuple[str, ...]]]:
        """Return the losses that the network may be responsible for, with what they crossed."""
        sources = self._sources
        troubled = sources.liveness.excusable()
        left, agent_of = sources.roster.has_left, sources.roster.agent_of
        found = []
        for loss in sources.strays.losses():
            source, target = loss.key[:2]
            responder = agent_of(target)
            if responder is None or left(source) or left(target):
                continue
            if troubled and any(
                agent in troubled
                and sources.liveness.excused(
                    agent, loss.lost_ns, now_ns, prober=loss.agent_id, loss=True
                )
                for agent in (loss.agent_id, responder)
            ):
                continue
            path = sources.paths.path(loss.key, before_ns=loss.lost_ns)
            found.append((loss, tuple(path.components)))
        return found


def _rate_hz(losses: Sequence[StrayLoss]) -> float:
    """Return how often a 5-tuple is probed, by what those that lost a probe have sent."""
    return max(median([loss.sent for loss in losses]) / COUNTED_S, 1e-3) if losses else 1.0


def _symptom(loss: StrayLoss, known: Symptom | None, now_ns: int) -> Symptom:
    """Return that a 5-tuple loses probes: since its first loss, with the latest counts."""
    return Symptom(
        kind=AnomalyKind.STRAY_LOSS,
        agent_id=loss.agent_id,
        onset_ns=known.onset_ns if known is not None else loss.lost_ns,
        onset_at=known.onset_at if known is not None else loss.onset_at,
        seen_ns=now_ns,
        last_ns=now_ns,
        sent=loss.sent,
        lost=loss.lost,
        rtt_ns=None,
        baseline_ns=None,
        host_delay_ns=None,
        prober_late=loss.prober_late,
        responder_late=loss.responder_late,
    )
