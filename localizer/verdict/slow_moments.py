"""Turns brief rises at a component into symptoms that inference explains and a fault owns.

`localizer.inference.pooled_moments` says that a component is slow by what its 5-tuples showed in
the last ten minutes. While some are late they count as late. Where moments recur they count on in
between, until none follows for several times the usual gap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from localizer.facts.anomalies import Symptom
from localizer.facts.inputs import Sources
from localizer.inference.pooled_moments import (
    BIN_NS,
    BINS,
    RECURRING,
    LateFlow,
    find_moments,
    log_false_alarms,
)
from localizer.network.flow_index import FlowIndex
from localizer.verdict.leaks import is_over
from localizer.verdict.slow_components import STEP_NS, late_now
from schemas.enums import AnomalyKind
from schemas.ids import FlowId

Late = Mapping[FlowId, tuple[Symptom, tuple[str, ...]]]


@dataclass(slots=True)
class _Moments:
    """What a component showed: by bin the log of the chance; by 5-tuple its last symptom."""

    log_chance: dict[int, float] = field(default_factory=dict)
    symptoms: dict[FlowId, Symptom] = field(default_factory=dict)
    slow: bool = False

    @property
    def events(self) -> int:
        """How often it was slow with a pause before."""
        return sum(one - 1 not in self.log_chance for one in self.log_chance)


class SlowMoments:
    """The components whose 5-tuples are late together, now or again and again."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._moments: dict[str, _Moments] = {}
        self._next_ns = 0

    def observe_time(
        self, now_ns: int, index: FlowIndex, faulty: frozenset[str] = frozenset()
    ) -> None:
        """Test the components every `STEP_NS`; let 5-tuples that cross slow ones count as late.

        `faulty`: components of open faults, which explain what crosses them.
        """
        if now_ns < self._next_ns:
            return
        # At multiples of it, so that a process that starts again tests when the former one would.
        self._next_ns = (now_ns // STEP_NS + 1) * STEP_NS
        board = self._sources.brief_latencies
        if board.empty and not self._moments:
            return
        late = late_now(self._sources, board)
        self._note_moments(now_ns, index, late, faulty)
        symptoms: dict[FlowId, Symptom] = {}
        for component, known in list(self._moments.items()):
            if not self._is_slow(known, index, now_ns):
                continue
            mine = {key: one for key, (one, crossed) in late.items() if component in crossed}
            known.symptoms |= mine
            if known.events >= RECURRING:
                for key, symptom in known.symptoms.items():
                    symptoms.setdefault(key, replace(symptom, last_ns=now_ns))
            symptoms |= mine
        self._sources.anomalies.set_pooled(AnomalyKind.BRIEF_LATENCY, symptoms)

    def _note_moments(
        self, now_ns: int, index: FlowIndex, late: Late, faulty: frozenset[str]
    ) -> None:
        """Note what the components show now, and forget what is too old."""
        last = now_ns // BIN_NS
        flows = {
            key: LateFlow(crossed, one.shift_ns or 0, one.median_rise_ns or 0)
            for key, (one, crossed) in late.items()
        }
        found = find_moments(flows, index, faulty)
        for component, log_chance in found.items():
            bins = self._moments.setdefault(component, _Moments()).log_chance
            bins[last] = min(bins.get(last, 0.0), log_chance)
        for component, known in list(self._moments.items()):
            for old in [one for one in known.log_chance if one <= last - BINS]:
                del known.log_chance[old]
            if not known.log_chance:
                del self._moments[component]

    def _is_slow(self, known: _Moments, index: FlowIndex, now_ns: int) -> bool:
        """Return whether a component is slow; update what is known of it."""
        bins = sorted(known.log_chance)
        if known.slow:
            known.slow = not is_over([one * BIN_NS for one in bins], now_ns)
        elif bins[-1] == now_ns // BIN_NS:
            known.slow = (
                log_false_alarms(
                    known.log_chance, components=len(index.components), step_ns=STEP_NS
                )
                <= 0
            )
        if not known.slow:
            known.symptoms.clear()
        return known.slow
