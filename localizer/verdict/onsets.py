"""What the times of bad 5-tuples say about what they cross.

A cut hits everything that it hits within seconds. So a component that is at fault on 5-tuples of
one time is hardly at fault on those of another: it had let these pass. Each function here notes
such components as `passed_before` of a 5-tuple; inference then takes them as its cause with a small
probability only. None of this holds for what hits one 5-tuple after another (`GRADUAL`).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from localizer.facts.bad_flows import BadFlow
from localizer.facts.roster import Roster
from localizer.facts.states import SPECIFIC
from localizer.verdict.catalogue import AGENT, GRADUAL, LATENCY, LOSS
from localizer.verdict.incident import SPREAD_NS, Incident
from schemas.ids import FlowId
from schemas.units import SECOND_NS

# Between the first 5-tuples that a cut hits and the last ones: each is probed once a round, so that
# its first lost probe is at most one round late; two more are for rounds that were late and for
# clocks that differ. What lost none for longer was answered where the others were not.
SAMPLING_NS: Final = 3 * SECOND_NS
# An agent probes a new pair, and is answered, so soon after the pair came to its list. What is bad
# by then was never well: no fault had let it pass.
NEW_PAIR_NS: Final = 30 * SECOND_NS


def never_well(bad: Iterable[BadFlow], roster: Roster) -> frozenset[FlowId]:
    """Return the 5-tuples that have been bad since they are probed."""
    return frozenset(
        flow.key
        for flow in bad
        if (new_ns := roster.new_ns(flow.prober, flow.key))
        and flow.onset_ns <= new_ns + NEW_PAIR_NS
    )


def passed_before(flow: BadFlow, faults: list[Incident]) -> BadFlow:
    """Note the older faults on a 5-tuple's path that had let it pass."""
    late = (
        frozenset(
            i.place
            for i in faults
            if i.place in flow.components and i.let_pass(flow.key, flow.onset_ns)
        )
        if faults
        else None
    )
    return replace(flow, passed_before=late) if late else flow


def broken_later(
    bad: list[BadFlow], incident: Incident, now_ns: int, new: frozenset[FlowId] = frozenset()
) -> list[BadFlow]:
    """Note what an open fault's 5-tuples cross that can only have broken long after it began.

    A component that is at fault on 5-tuples of both times would have shown on all of them at the
    first. Small rises show on one 5-tuple after another, so that those of one RNIC may be the first
    of a slow host; a fault of which a state says that it is there is no part of another.

    Parameters
    ----------
    new
        5-tuples that were never well: when they were broken is not known.
    """
    since_ns, first = incident.began_ns + SPREAD_NS, incident.first
    dated = incident.group in (LOSS, AGENT) or (
        incident.group == LATENCY and incident.event.fault_kind in SPECIFIC
    )
    if not first or now_ns <= since_ns or not dated or incident.event.fault_kind in GRADUAL:
        return bad
    news = [
        f
        for f in bad
        if f.open and f.onset_ns > since_ns and f.key not in first and f.key not in new
    ]
    if not news:
        return bad
    later = frozenset[str]().union(*(f.components for f in news)) - incident.components
    return [
        replace(flow, passed_before=flow.passed_before | met)
        if flow.key in first
        and flow.onset_ns <= incident.began_ns
        and (met := later.intersection(flow.components))
        else flow
        for flow in bad
    ]


def apart(bad: list[BadFlow], dated: frozenset[str]) -> list[BadFlow]:
    """Note on 5-tuples that are cut off what has cut off more of them at another time.

    Each component that they cross began to cut when most of its 5-tuples did; the others it had let
    pass, or they were bad without it. A component that also loses single probes is left out: there
    it is chance when a 5-tuple appears to be cut off.

    Parameters
    ----------
    bad
        5-tuples that are bad because of lost probes.
    dated
        Components of open faults: it is known when these began, and they explain what crosses them.
    """
    cut = [f for f in bad if f.open and f.cut and dated.isdisjoint(f.components)]
    begin_ns = _busiest_ns(flow.onset_ns for flow in cut)
    # In a storm nearly all begin together: only what the others cross needs a look.
    strays = [flow for flow in cut if not begin_ns <= flow.onset_ns <= begin_ns + SAMPLING_NS]
    if not strays:
        return bad
    lossy = (flow.components for flow in bad if flow.lossy)
    asked = frozenset[str]().union(*(f.components for f in strays)).difference(*lossy)
    onsets_ns: defaultdict[str, list[int]] = defaultdict(list)
    for flow in cut:
        for component in asked.intersection(flow.components):
            onsets_ns[component].append(flow.onset_ns)
    began_ns = {component: _busiest_ns(times) for component, times in onsets_ns.items()}
    late = {
        flow.key: frozenset(
            c
            for c in asked.intersection(flow.components)
            if not began_ns[c] <= flow.onset_ns <= began_ns[c] + SAMPLING_NS
        )
        for flow in cut
    }
    return [
        replace(flow, passed_before=flow.passed_before | met)
        if (met := late.get(flow.key))
        else flow
        for flow in bad
    ]


def _busiest_ns(times_ns: Iterable[int]) -> int:
    """Return the begin of the span of sampling with most of the times, the latest of equals."""
    times = sorted(times_ns)
    counts = [bisect_right(times, at + SAMPLING_NS) - place for place, at in enumerate(times)]
    return max(zip(counts, times, strict=True), default=(0, 0))[1]
