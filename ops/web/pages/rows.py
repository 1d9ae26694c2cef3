"""Rows that several pages show."""

from typing import Final

from localizer.verdict.catalogue import KINDS
from ops.bridge.paging.labels import is_silenced
from ops.view.cluster import ClusterView
from ops.view.faults import FaultHistory
from ops.web.pages.page import Document, without_none
from schemas.enums import NoteAction
from schemas.records import FaultEvent
from schemas.units import US_PER_MS

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


def acknowledged(view: ClusterView) -> dict[str, Document]:
    """Return who acknowledged which fault last, by fault id, to put beside its row."""
    notes = sorted(view.notes.values(), key=lambda note: (note.noted_at, note.note_id))
    return {
        n.fault_id: {"acknowledged_by": n.author}
        for n in notes
        if n.action is NoteAction.ACKNOWLEDGE
    }


def silenced(view: ClusterView, fault: FaultEvent, now_ms: int) -> Document:
    """Return the silence that hides a fault's page for longest; nothing if none does."""
    hiding = [s for s in view.silences.values() if is_silenced(fault, s, now_ms * US_PER_MS)]
    if not hiding:
        return {}
    last = max(hiding, key=lambda s: (s.until_at, s.silence_id))
    return {
        "silenced": {
            "until_ms": last.until_at // US_PER_MS,
            "author": last.author,
            "reason": last.reason,
        }
    }


def fault_row(view: ClusterView, history: FaultHistory, now_ms: int) -> Document:
    """Return what is known of a fault now, for a list of faults; `acknowledged` apart."""
    last = history.last
    return {
        **(silenced(view, last, now_ms) if history.open else {}),
        "id": last.fault_id,
        "cluster": last.cluster,
        "open": history.open,
        "transitions": last.seq,
        **event_row(last),
    }
