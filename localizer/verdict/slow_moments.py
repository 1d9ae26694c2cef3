"""Turns brief rises at a component into symptoms that inference explains and a fault owns.

`localizer.inference.pooled_moments` says that a component is slow by what its 5-tuples showed in
the last ten minutes. While some are late they count as late. Where moments recur they count on in
between, until none follows for several times the usual gap.

Of some 5-tuples only some answers are late. A job that begins to fill a queue once an iteration
does that, and a virtual switch that handles packets itself since their entries are not in hardware.
So those count only where flow tables or states show that, at a component that all of them cross.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from localizer.facts.anomalies import Symptom
from localizer.facts.inputs import Sources
from localizer.inference.pooled_moments import (
    BIN_NS,
    BINS,
    RECURRING,
    LateFlow,
    UsualShares,
    find_moments,
    log_false_alarms,
)
from localizer.network.directions import Directions
from localizer.verdict.leaks import is_over
from localizer.verdict.slow_components import STEP_NS, late_now
from schemas.enums import AnomalyKind
from schemas.ids import FlowId

# Of a component's moments each 5-tuple that is slow with it shows in about half or more; by chance
# one shows in a tenth at most.
RECURRING_SHARE: Final = 1 / 3

Late = Mapping[FlowId, tuple[Symptom, tuple[str, ...]]]


@dataclass(slots=True)
class _Moments:
    """What a component showed.

    Attributes
    ----------
    log_chance
        By bin the log of the chance.
    late
        By 5-tuple its last symptom, and the bins of moments in which it was late.
    """

    log_chance: dict[int, float] = field(default_factory=dict)
    late: dict[FlowId, tuple[Symptom, set[int]]] = field(default_factory=dict)
    slow: bool = False

    @property
    def events(self) -> int:
        """How often it was slow with a pause before."""
        return sum(one - 1 not in self.log_chance for one in self.log_chance)

    def note(self, symptoms: Mapping[FlowId, Symptom], now_bin: int) -> None:
        """Note which 5-tuples are late now; those of no moment are so by chance."""
        if now_bin not in self.log_chance:
            return
        for key, symptom in symptoms.items():
            bins = self.late[key][1] if key in self.late else set[int]()
            self.late[key] = symptom, bins | {now_bin}

    def recurring(self) -> dict[FlowId, Symptom]:
        """Return the last symptoms of those that were late in enough of the moments."""
        least = RECURRING_SHARE * len(self.log_chance)
        return {
            key: symptom
            for key, (symptom, bins) in self.late.items()
            if len(bins & self.log_chance.keys()) >= least
        }


@dataclass(frozen=True, slots=True)
class _Look:
    """What all tests of one time share; arguments of `SlowMoments.observe_time`."""

    now_ns: int
    places: Directions
    faulty: frozenset[str]

    @property
    def bin(self) -> int:
        """Return the number of the bin."""
        return self.now_ns // BIN_NS

    def returns(self, key: FlowId, place: str) -> float:
        """Return the share of the replies of a 5-tuple's pair that cross a place."""
        return self.places.returning(*key[:2], place)


class SlowMoments:
    """The components whose 5-tuples are late together, now or again and again."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        # Of 5-tuples all of whose answers are late, and of those with some late answers.
        self._all: dict[str, _Moments] = {}
        self._some: dict[str, _Moments] = {}
        # Of the former.
        self._usual = UsualShares()
        self._next_ns = 0

    def observe_time(
        self,
        now_ns: int,
        places: Directions,
        faulty: frozenset[str] = frozenset(),
    ) -> None:
        """Test the components every `STEP_NS`; let 5-tuples that cross slow ones count as late.

        Parameters
        ----------
        places
            What may be slow: components, and directed cables.
        faulty
            Components of open faults, which explain what crosses them.
        """
        if now_ns < self._next_ns:
            return
        # At multiples of it, so that a process that starts again tests when the former one would.
        self._next_ns = (now_ns // STEP_NS + 1) * STEP_NS
        board = self._sources.brief_latencies
        if board.empty and not self._all and not self._some:
            return
        late = late_now(self._sources, board, places)
        some = {key: one for key, one in late.items() if one[0].of_some}
        shifted = {key: one for key, one in late.items() if key not in some}
        look = _Look(now_ns, places, faulty)
        symptoms = self._observe(self._some, some, look)
        symptoms |= self._observe(self._all, shifted, look)
        # What a 5-tuple showed by itself before, chance shows as well.
        self._sources.anomalies.set_pooled(AnomalyKind.BRIEF_LATENCY, symptoms, now_ns)

    def _observe(
        self, moments: dict[str, _Moments], late: Late, look: _Look
    ) -> dict[FlowId, Symptom]:
        """Note what the components show now; return the 5-tuples that count as late."""
        some = moments is self._some
        flows = {
            key: LateFlow(crossed, one.shift_ns or 0, one.median_rise_ns or 0)
            for key, (one, crossed) in late.items()
        }
        if some:
            found = find_moments(
                flows, look.places, look.faulty, any_shape=True, returns=look.returns
            )
        else:
            found = self._find_shifted(late, flows, look)
        _note_moments(moments, found, look.bin)
        symptoms: dict[FlowId, Symptom] = {}
        for component, known in list(moments.items()):
            if some and not known.slow and not self._in_software(_through(component, late)):
                continue
            if not self._is_slow(known, look):
                continue
            now = {key: one for key, (one, _) in _through(component, late).items()}
            known.note(now, look.bin)
            if known.events >= RECURRING:
                now = {
                    key: now.get(key) or symptom.at(last_ns=look.now_ns)
                    for key, symptom in known.recurring().items()
                }
            symptoms |= now
        return symptoms

    def _find_shifted(
        self, late: Late, flows: dict[FlowId, LateFlow], look: _Look
    ) -> dict[str, float]:
        """Return the components with a moment now; note what is usual."""
        usual = self._usual
        crossed = {component for flow in flows.values() for component in flow.components}
        shares = {component: usual.share(component, look.bin) for component in crossed}
        # Phases of a job lift many. Where it is not known how many, these tell nothing.
        told = {component for component, share in shares.items() if share is not None}
        flows = {
            key: replace(flow, components=[c for c in flow.components if c in told])
            if late[key][0].lifted
            else flow
            for key, flow in flows.items()
        }
        found = find_moments(
            flows,
            look.places,
            look.faulty,
            usual=lambda name: shares.get(name) or 0.0,
            returns=look.returns,
        )
        slow = {name for name, known in self._all.items() if known.slow}
        counts = Counter(c for _, components in late.values() for c in components)
        of_faults = {place for place in counts if look.places.cable(place) in look.faulty}
        usual.note(counts, slow.union(of_faults, found), look.places, look.bin)
        return found

    def _in_software(self, late: Late) -> bool:
        """Return whether a component that all of them cross has entries not in hardware."""
        crossed = [frozenset(components) for _, components in late.values()]
        common = frozenset[str]() if not crossed else crossed[0].intersection(*crossed[1:])
        return any(map(self._sources.findings.in_software, common))

    def _is_slow(self, known: _Moments, look: _Look) -> bool:
        """Return whether a component is slow; update what is known of it."""
        bins = sorted(known.log_chance)
        if known.slow:
            known.slow = not is_over([one * BIN_NS for one in bins], look.now_ns)
        elif bins[-1] == look.bin:
            components = look.places.place_count()
            known.slow = (
                log_false_alarms(known.log_chance, components=components, step_ns=STEP_NS) <= 0
            )
        if not known.slow:
            known.late.clear()
        return known.slow


def _through(component: str, late: Late) -> Late:
    """Return those that cross a component."""
    return {key: pair for key, pair in late.items() if component in pair[1]}


def _note_moments(moments: dict[str, _Moments], found: Mapping[str, float], now_bin: int) -> None:
    """Note what components show now, and forget what is too old."""
    for component, log_chance in found.items():
        bins = moments.setdefault(component, _Moments()).log_chance
        bins[now_bin] = min(bins.get(now_bin, 0.0), log_chance)
    for component, known in list(moments.items()):
        for old in [one for one in known.log_chance if one <= now_bin - BINS]:
            del known.log_chance[old]
        if not known.log_chance:
            del moments[component]
