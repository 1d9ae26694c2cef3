"""Rows that several pages show."""

from typing import Final

from localizer.verdict.catalogue import KINDS
from ops.view.cluster import ClusterView
from ops.view.faults import FaultHistory
from ops.web.pages.page import Document, without_none
from schemas.enums import NoteAction
from schemas.records import FaultEvent

US_PER_MS: Final = 1_000
NO_STEP: Final = "This version does not know the kind of fault: see its summary and evidence."


def event_row(event: FaultEvent) -> Document:
    """Return what a transition says of its fault."""
    kind = KINDS.get(event.fault_kind)
    return without_none(
        {
            "seq": event.seq,
            "state": event.state.value,
            "at_ms": event.event_at // US_PER_MS,
            "onset_ms": event.onset_at // US_PER_MS,
            "opened_ms": event.opened_at // US_PER_MS,
            "resolved_ms": None if event.resolved_at is None else event.resolved_at // US_PER_MS,
            "layer": event.layer.value,
            "component_kind": event.component_kind,
            "component": event.component_id,
            "decided": event.decided,
            "kind": event.fault_kind,
            "severity": event.severity,
            "confidence": round(event.confidence, 3),
            "summary": event.summary,
            "first_step": NO_STEP if kind is None else kind.runbook,
            "bad": event.bad_paths,
            "good": event.good_paths,
            "unexplained": event.unexplained_paths,
            "flaps": event.flaps,
            "tasks": list(event.tasks),
            "candidates": [
                {"component": c.component_id, "score": round(c.score, 3)} for c in event.candidates
            ],
        }
    )


def acknowledged(view: ClusterView) -> dict[str, str]:
    """Return who acknowledged which fault last, by fault id."""
    notes = sorted(view.notes.values(), key=lambda note: (note.noted_at, note.note_id))
    return {n.fault_id: n.author for n in notes if n.action is NoteAction.ACKNOWLEDGE}


def fault_row(history: FaultHistory, acknowledged_by: str | None = None) -> Document:
    """Return what is known of a fault now, for a list of faults."""
    last = history.last
    return {
        **without_none({"acknowledged_by": acknowledged_by}),
        "id": last.fault_id,
        "cluster": last.cluster,
        "open": history.open,
        "transitions": last.seq,
        **event_row(last),
    }
