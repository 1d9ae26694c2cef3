"""Transitions, silences and notes to page by."""

from typing import Any

from schemas import topics
from schemas.enums import FaultLifecycle, Layer, NoteAction
from schemas.records import FaultEvent, IncidentNote, Matcher, Silence
from tests.unit.schemas.valid import valid_datum

CLUSTER = "lab"
S = 1_000_000
BEGIN = 1_790_000_000 * S


def transition(
    fault_id: str, seq: int, state: FaultLifecycle = FaultLifecycle.OPEN, **more: Any
) -> FaultEvent:
    """Return a transition of a link that is down."""
    values: dict[str, Any] = {
        **valid_datum(topics.FAULT_EVENT.name, CLUSTER),
        "fault_id": fault_id, "seq": seq, "state": state, "layer": Layer.UNDERLAY,
        "component_kind": "LINK", "component_id": f"link:{fault_id}", "fault_kind": "connectivity",
        "severity": "critical", "summary": f"link:{fault_id}: probes are lost", "flaps": 0,
        "event_at": BEGIN, "resolved_at": None, "decided": True, "tasks": ("job1",),
        "candidates": (), "evidence": ("12 of 12 probes lost",),
    }  # fmt: skip
    return FaultEvent(**{**values, **more})


def silence(silence_id: str, from_s: int, until_s: int, **labels: str) -> Silence:
    """Return a silence, in seconds after the begin."""
    return Silence(
        cluster=CLUSTER, silence_id=silence_id, from_at=BEGIN + from_s * S,
        until_at=BEGIN + until_s * S, created_at=BEGIN, author="ann", reason="maintenance",
        matchers=tuple(Matcher(label=k, pattern=v) for k, v in labels.items()),
    )  # fmt: skip


def note(fault_id: str, action: NoteAction, note_id: str = "n1") -> IncidentNote:
    """Return a note."""
    return IncidentNote(
        cluster=CLUSTER, fault_id=fault_id, note_id=note_id, action=action, noted_at=BEGIN,
        author="ann", text="", cause=None,
    )  # fmt: skip
