"""Turns brief rises at a component into symptoms that inference explains and a fault owns.

`localizer.inference.pooled_moments` says that a component is slow by what its 5-tuples showed in
the last ten minutes. While some are late they count as late. Where moments recur they count on in
between, until none follows for several times the usual gap.

Of some 5-tuples only some answers are late. A job that begins to fill a queue once an iteration
does that, and a virtual switch that handles packets itself since their entries are not in hardware.
So those count only where flow tables or states show that, at a component that all of them cross.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        # Of 5-tuples all of whose answers are late, and of those with some late answers.
        self._all: dict[str, _Moments] = {}
        self._some: dict[str, _Moments] = {}
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
        if board.empty and not self._all and not self._some:
            return
        late = late_now(self._sources, board)
        some = {key: one for key, one in late.items() if one[0].of_some}
        shifted = {key: one for key, one in late.items() if key not in some}
        symptoms = self._observe(self._some, some, index, now_ns, faulty)
        symptoms |= self._observe(self._all, shifted, index, now_ns, faulty)
        self._sources.anomalies.set_pooled(AnomalyKind.BRIEF_LATENCY, symptoms)

    def _observe(
        self,
        moments: dict[str, _Moments],
        late: Late,
        index: FlowIndex,
        now_ns: int,
        faulty: frozenset[str],
    ) -> dict[FlowId, Symptom]:
        """Note what the components show now; return the 5-tuples that count as late."""
        some = moments is self._some
        _note_moments(moments, late, index, now_ns, faulty, any_shape=some)
        symptoms: dict[FlowId, Symptom] = {}
        for component, known in list(moments.items()):
            if some and not known.slow and not self._in_software(_through(component, late)):
                continue
            if not self._is_slow(known, index, now_ns):
                continue
            mine = _through(component, late)
            known.symptoms |= {key: one for key, (one, _) in mine.items()}
            if known.events >= RECURRING:
                for key, symptom in known.symptoms.items():
                    if key not in symptoms and key not in mine:
                        symptoms[key] = symptom.at(last_ns=now_ns)
            symptoms |= {key: one for key, (one, _) in mine.items()}
        return symptoms

    def _in_software(self, late: Late) -> bool:
        """Return whether a component that all of them cross has entries not in hardware."""
        crossed = [frozenset(components) for _, components in late.values()]
        common = frozenset[str]() if not crossed else crossed[0].intersection(*crossed[1:])
        return any(map(self._sources.findings.in_software, common))

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


def _through(component: str, late: Late) -> Late:
    """Return those that cross a component."""
    return {key: pair for key, pair in late.items() if component in pair[1]}


def _note_moments(
    moments: dict[str, _Moments],
    late: Late,
    index: FlowIndex,
    now_ns: int,
    faulty: frozenset[str],
    *,
    any_shape: bool,
) -> None:
    """Note what the components show now, and forget what is too old."""
    last = now_ns // BIN_NS
    flows = {
        key: LateFlow(crossed, one.shift_ns or 0, one.median_rise_ns or 0)
        for key, (one, crossed) in late.items()
    }
    found = find_moments(flows, index, faulty, any_shape=any_shape)
    for component, log_chance in found.items():
        bins = moments.setdefault(component, _Moments()).log_chance
        bins[last] = min(bins.get(last, 0.0), log_chance)
    for component, known in list(moments.items()):
        for old in [one for one in known.log_chance if one <= last - BINS]:
            del known.log_chance[old]
        if not known.log_chance:
            del moments[component]
