"""The pipeline of the paper as printed: its detectors, and its algorithm 1.

"SkeletonHunter", SIGCOMM 2025, DOI 10.1145/3718958.3750513. Its code is not public; what the text
leaves open is set in its favour and stands in `features` and here.

Detection: loss is flagged directly, every 5 s; LOF and Z-test (`features`) find slow paths.

Algorithm 1, over the failing paths: *overlay*: replay each over the flow tables; a missing entry
or a loop is the fault. *Underlay*: each failing path that the overlay does not explain
counts for all it crosses; if nothing counts more than once there is no underlay failure, otherwise
the greatest count is. *RNIC validation*, if both find nothing: flow entries that should
be offloaded and are not. Paths that work have no say, nor have heartbeats.

The paper has one path per pair of RNICs. Here ECMP spreads a pair over several, so each
5-tuple stands for a pair: votes of a pair's good 5-tuples would only blur the count.
"""

from typing import Final

import numpy as np

from arena.baselines.crossing import Crossing, symptom
from arena.baselines.features import HalfHours, LookBack
from arena.baselines.observing import WINDOW_NS, Window, joined
from arena.baselines.plugin import Accusation
from localizer.facts.overlay import Break
from schemas.columns.arrays import Bools
from schemas.enums import ComponentKind
from schemas.ids import FlowId
from schemas.units import SECOND_NS

# The paper's median of 8 s from fault to alarm leaves no room for 30-s windows of loss.
SLICE_NS: Final = 5 * SECOND_NS
# What counts as high loss is not printed: here any lost probe of a slice.
LEAST_LOST: Final = 1
UNDERLAY: Final = (ComponentKind.LINK, ComponentKind.RNIC, ComponentKind.SWITCH)
OF_BREAK: Final = {Break.MISSING: "flow_missing", Break.LOOP: "flow_loop"}


class Published:
    """Detection and localization as printed."""

    name = "SkeletonHunter as printed"
    window_ns = SLICE_NS

    def __init__(self) -> None:
        self._slices: list[Window] = []
        self._look_back = LookBack()
        self._half_hours = HalfHours()
        self._slow: set[FlowId] = set()

    def observe(self, window: Window) -> list[Accusation]:
        """Accuse what algorithm 1 finds for the paths that fail."""
        self._slices.append(window)
        if window.end_ns - self._slices[0].begin_ns >= WINDOW_NS:
            whole, self._slices = joined(self._slices), []
            self._slow = self._look_back.put(whole) | self._half_hours.put(whole)
        lossy = window.lost >= LEAST_LOST
        slow = np.array([key in self._slow for key in window.flows], np.bool_)
        failing = lossy | slow
        if not failing.any():
            return []
        overlay, explained = _overlay(window, failing)
        underlay = _underlay(window, failing & ~explained)
        return overlay + underlay or _validation(window, failing)


def _overlay(window: Window, failing: Bools) -> tuple[list[Accusation], Bools]:
    """Replay failing paths over the flow tables.

    Returns
    -------
    Accusations of the nodes at which chains break, or to which they come back; and
    which 5-tuples they explain.
    """
    broken: dict[str, tuple[str, int]] = {}
    explained = np.zeros(len(window), np.bool_)
    for place in np.flatnonzero(failing).tolist():
        src, dst, _ = window.flows[place]
        fault = window.network.tables.round_trip(src, dst)
        if fault is not None:
            explained[place] = True
            node = fault.others[0] if fault.how is Break.LOOP and fault.others else fault.node
            _, count = broken.get(node, ("", 0))
            broken[node] = OF_BREAK[fault.how], count + 1
    found = [
        Accusation(component_id=node, kind=kind, score=float(count))
        for node, (kind, count) in broken.items()
    ]
    return found, explained


def _underlay(window: Window, failing: Bools) -> list[Accusation]:
    """Count failing paths over what they cross; accuse the greatest count if it is above one."""
    crossing = Crossing(window)
    mine = failing[crossing.places]
    if not mine.any():
        return []
    counts = np.where(crossing.is_kind(*UNDERLAY), crossing.sums(mine), 0.0)
    best = crossing.best(counts)
    most = float(counts[best[0]])
    if most <= 1:
        return []
    through = crossing.through(best[0]) & mine
    sent, lost = int(crossing.sent[through].sum()), int(crossing.lost[through].sum())
    kind = symptom(sent, lost, slow=0) if lost else "high_latency"
    first, *rest = (crossing.names[n] for n in best)
    return [Accusation(component_id=first, kind=kind, score=most, also=tuple(rest))]


def _validation(window: Window, failing: Bools) -> list[Accusation]:
    """Accuse the hosts at the ends of failing paths whose RNICs lack entries."""
    tables, topology = window.network.tables, window.network.topology
    found: dict[str, int] = {}
    for place in np.flatnonzero(failing).tolist():
        for end in window.flows[place][:2]:
            host = topology.host_of(end)
            if host is None:
                continue
            vswitches = topology.children(host, ComponentKind.VSWITCH)
            holders = (end, *vswitches, *topology.children(host, ComponentKind.RNIC))
            if any(tables.findings(holder) for holder in holders):
                for vswitch in vswitches:
                    found[vswitch] = found.get(vswitch, 0) + 1
    return [
        Accusation(component_id=vswitch, kind="not_offloaded", score=float(count))
        for vswitch, count in sorted(found.items())
    ]
