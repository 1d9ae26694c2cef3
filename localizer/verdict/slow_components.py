"""Turns small rises at a slow component into symptoms that inference explains and a fault owns.

`localizer.inference.pooled_latency` says that a component is slow. While it is, the 5-tuples that
cross it and whose round trip has risen by little count as late.
"""

from collections import Counter
from functools import partial
from typing import Final

from localizer.facts.anomalies import OpenAnomalies, Symptom
from localizer.facts.inputs import Sources
from localizer.inference.pooled_latency import find_slow
from localizer.network.directions import Directions, RemainingFlows
from schemas.enums import AnomalyFamily, AnomalyKind
from schemas.ids import FlowId
from schemas.units import SECOND_NS

# Windows of agents are closed one after the other; between two steps a few more are.
STEP_NS: Final = 2 * SECOND_NS


class SlowComponents:
    """The components whose 5-tuples are late now, each by little."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._slow: frozenset[str] = frozenset()
        self._next_ns = 0

    def observe_time(
        self, now_ns: int, places: Directions, faulty: frozenset[str] = frozenset()
    ) -> None:
        """Test the components every `STEP_NS`; let 5-tuples that cross slow ones count as late.

        `faulty`: components of open faults. What crosses them is late because of them, and counts
        for no other component.
        """
        if now_ns < self._next_ns:
            return
        # At multiples of it, so that a process that starts again tests when the former one would.
        self._next_ns = (now_ns // STEP_NS + 1) * STEP_NS
        sources = self._sources
        if sources.weak_latencies.empty and not self._slow:
            return
        late, index = late_now(sources, sources.weak_latencies, places), places.index
        # Only those whose crossing is counted, too: the others are on a path that was not traced.
        counted = [components for key, (_, components) in late.items() if key in index.by_key]
        # Of a cable also its directions, by one of which it may have been found.
        own = {c for c in set[str]().union(*counted) if places.cable(c) in faulty}
        mine = Counter(c for components in counted for c in components if c in own)
        others = [components for components in counted if faulty.isdisjoint(components)]
        beside = Counter(c for components in others for c in components)
        rest = RemainingFlows(places)
        for component in sorted(faulty):
            rest.remove(component)
        left = rest.counts(rest.counted(list(beside))).tolist()
        crossing = dict(zip(beside, left, strict=True))
        find = partial(find_slow, known=self._slow, step_ns=STEP_NS)
        self._slow = frozenset(
            find(mine, places.count, all_late=len(counted), flows=len(index))
        ) | frozenset(find(beside, crossing.__getitem__, all_late=len(others), flows=len(rest)))
        sources.anomalies.set_pooled(
            AnomalyKind.WEAK_LATENCY,
            {
                key: symptom
                for key, (symptom, components) in late.items()
                if not self._slow.isdisjoint(components)
            },
        )


def late_now(
    sources: Sources, board: OpenAnomalies, places: Directions
) -> dict[FlowId, tuple[Symptom, tuple[str, ...]]]:
    """Return the late 5-tuples that the network may be responsible for, and the places on them."""
    left = sources.roster.has_left
    # The round trips of probes that are not lost say little about latency.
    lossy = sources.anomalies.flows_of(AnomalyFamily.LOSS)
    found = {}
    for key, symptoms in board.by_family(AnomalyFamily.LATENCY):
        if key in lossy or symptoms[0].is_probers or left(key[0]) or left(key[1]):
            continue
        crossed = sources.paths.components(key, symptoms[0].onset_ns)
        found[key] = symptoms[0], places.crossed(crossed)
    return found
