"""Moments of a recording that are worth a jump: the transitions of its faults."""

from typing import Any, Final

from ops.view.cluster import ClusterView
from schemas.units import US_PER_MS

MAX_MOMENTS: Final = 1_000


def moments(view: ClusterView) -> list[dict[str, Any]]:
    """Return the transitions of all faults that are known at the end, in order of time."""
    found = [
        {
            "at_ms": event.event_at // US_PER_MS,
            "fault": event.fault_id,
            "state": event.state.value,
            "text": event.summary,
        }
        for history in (*view.faults.open(), *view.faults.over())
        for event in history.transitions
    ]
    return sorted(found, key=lambda one: (one["at_ms"], one["fault"]))[:MAX_MOMENTS]
