"""Rows that several pages show."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from localizer.collectives.ranges import rank_text
from localizer.verdict.catalogue import KINDS
from ops.bridge.paging.labels import is_silenced
from ops.view.cluster import ClusterView
from ops.view.faults import FaultHistory
from ops.web.pages.page import Document, without_none
from schemas.enums import NoteAction
from schemas.ids import rank_key
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
            "ranks": ranks_by_job(event.ranks) or None,
            "related": list(event.related_fault_ids) or None,
            "candidates": [
                {"component": c.component_id, "score": round(c.score, 3)} for c in event.candidates
            ],
        }
    )


def ranks_by_job(ranks: Iterable[str]) -> Document:
    """Return ranks, by their ids, as text for each job: a fault may stop thousands.

    >>> ranks_by_job(["job1|0", "job1|1", "job1|5"])
    {'job1': 'ranks 0–1, 5'}
    """
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for task_id, number in sorted(map(rank_key, ranks)):
        numbers[task_id].append(number)
    return {task_id: rank_text(held) for task_id, held in numbers.items()}


def beside(view: ClusterView, fault: FaultEvent) -> Document:
    """Return the faults that are beside a fault, by id: those it names, and those that name it."""
    naming = (h.last for h in view.faults.open() if fault.fault_id in h.last.related_fault_ids)
    found: Document = {name: {} for name in fault.related_fault_ids}
    found |= {event.fault_id: {} for event in naming}
    for name in found:
        history = view.faults.get(name)
        if history is not None:
            last = history.last
            found[name] = {
                "component": last.component_id, "kind": last.fault_kind, "open": history.open,
            }  # fmt: skip
    return found


def answers(view: ClusterView) -> dict[str, Document]:
    """Return who acknowledged and who closed which fault last, by its id, to put beside its row.

    Who closed a fault that came back since is left out, as the bridge pages again.
    """
    found: defaultdict[str, Document] = defaultdict(dict)
    for note in sorted(view.notes.values(), key=lambda note: (note.noted_at, note.note_id)):
        if note.action is NoteAction.ACKNOWLEDGE:
            found[note.fault_id]["acknowledged_by"] = note.author
        elif note.action is NoteAction.CLOSE:
            history = view.faults.get(note.fault_id)
            found[note.fault_id].pop("closed", None)
            if history is not None and history.last.flaps <= history.flaps_at(note.noted_at):
                found[note.fault_id]["closed"] = without_none(
                    {"by": note.author, "at_ms": note.noted_at // US_PER_MS, "cause": note.cause}
                )
    return found


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
    """Return what is known of a fault now, for a list of faults; `answers` apart."""
    last = history.last
    return {
        **(silenced(view, last, now_ms) if history.open else {}),
        "id": last.fault_id,
        "cluster": last.cluster,
        "open": history.open,
        "transitions": last.seq,
        **event_row(last),
    }
