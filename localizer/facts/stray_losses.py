"""Single lost probes of the last minutes, by 5-tuple.

In: the STRAY_LOSS records of anomaly.v1. Out: `StrayLoss`es, for tests that pool the 5-tuples of a
component (`localizer.inference.pooled_loss`).
"""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from localizer.facts.anomalies import BACKLOG_NS, SKEWED_NS, LateCount, late_count
from localizer.network.traces import key_of
from schemas.enums import AnomalyState
from schemas.ids import FlowId
from schemas.process.names import shared
from schemas.records import Anomaly
from schemas.units import SECOND_NS, us_to_ns

# As long as a weak loss may take to show: 0.05 % on a cable with twenty 5-tuples is six losses.
HORIZON_NS: Final = 600 * SECOND_NS
# Of more the oldest are forgotten, so that pooling looks back less far.
MAX_LOSSES: Final = 16_384

# 5-tuples whose explained losses are remembered. In a larger storm open faults account for them.
MAX_EXPLAINED: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayLoss:
    """A lost probe.

    Attributes
    ----------
    lost_ns
        When it was sent, event time.
    onset_at
        The same by the agent's clock, as in the record.
    sent, lost
        Probes of its 5-tuple in the last minute, and how many of them were lost.
    """

    key: FlowId
    agent_id: str
    lost_ns: int
    onset_at: int
    sent: int
    lost: int
    prober_late: LateCount
    responder_late: LateCount


class StrayLosses:
    """The single losses of the last `HORIZON_NS`.

    Attributes
    ----------
    forgotten
        Losses beyond the bound.
    """

    def __init__(self, max_losses: int = MAX_LOSSES) -> None:
        self.forgotten = 0
        self._max_losses = max_losses
        self._losses: deque[StrayLoss] = deque()
        # The last loss of each 5-tuple, as in the record: repetitions are no further losses.
        self._latest: dict[FlowId, int] = {}
        # Until when the losses of a 5-tuple have another cause: a cut, or a fault that is over.
        self._explained_ns: dict[FlowId, int] = {}

    def __len__(self) -> int:
        return len(self._losses)

    def observe_loss(self, anomaly: Anomaly, at_ns: int) -> None:
        """Observe a STRAY_LOSS record that becomes known at `at_ns`; repetitions change nothing."""
        key = key_of(anomaly.src, anomaly.dst, anomaly.flow)
        begins = anomaly.state is AnomalyState.ONSET
        if not begins or self._latest.get(key) == anomaly.onset_at:
            return
        self._latest[key] = anomaly.onset_at
        lost_ns = us_to_ns(anomaly.onset_at)
        if not at_ns - BACKLOG_NS <= lost_ns <= at_ns + SKEWED_NS:
            lost_ns = at_ns
        loss = StrayLoss(
            key=key,
            agent_id=shared(anomaly.agent_id),
            lost_ns=lost_ns,
            onset_at=anomaly.onset_at,
            sent=anomaly.sent,
            lost=anomaly.lost,
            prober_late=late_count(anomaly.prober_late, anomaly.prober_answers),
            responder_late=late_count(anomaly.responder_late, anomaly.responder_answers),
        )
        self._losses.append(loss)
        if len(self._losses) > self._max_losses:
            self.forgotten += 1
            self._forget(self._losses.popleft())

    def explain(self, key: FlowId, until_ns: int) -> None:
        """Note that what a 5-tuple lost so far was no weak loss: it was cut off, or at a fault."""
        known_ns = self._explained_ns.get(key)
        if known_ns is not None or len(self._explained_ns) < MAX_EXPLAINED:
            self._explained_ns[key] = max(until_ns, known_ns or 0)

    def expire(self, now_ns: int) -> None:
        """Forget what is too old."""
        while self._losses and self._losses[0].lost_ns < now_ns - HORIZON_NS:
            self._forget(self._losses.popleft())
        old = [key for key, at_ns in self._explained_ns.items() if at_ns < now_ns - HORIZON_NS]
        for key in old:
            del self._explained_ns[key]

    def losses(self) -> list[StrayLoss]:
        """Return the losses that nothing else explains."""
        until_ns = self._explained_ns
        if not until_ns:
            return list(self._losses)
        return [loss for loss in self._losses if loss.lost_ns > until_ns.get(loss.key, -1)]

    def counts(self) -> Counter[FlowId]:
        """Return by 5-tuple the number of `losses`."""
        return Counter(loss.key for loss in self.losses())

    def _forget(self, loss: StrayLoss) -> None:
        if self._latest.get(loss.key) == loss.onset_at:
            del self._latest[loss.key]
