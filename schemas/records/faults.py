"""Records that the localizer writes.

The `.avsc` files are the truth and hold doc and unit of every field; a test
holds these classes to them. Times (`*_at`) are integer microseconds since the
epoch, durations (`*_ns`) integer nanoseconds.
"""

from schemas.enums import FaultLifecycle, Layer
from schemas.records.base import record


@record
class Candidate:
    """A component that may be the cause."""

    component_id: str
    score: float


@record
class FaultEvent:
    """One transition in the life of a fault."""

    cluster: str
    fault_id: str
    seq: int
    state: FaultLifecycle
    event_at: int
    onset_at: int
    opened_at: int
    resolved_at: int | None = None
    layer: Layer
    component_kind: str
    component_id: str
    decided: bool
    fault_kind: str
    severity: str
    confidence: float
    summary: str
    bad_paths: int
    good_paths: int
    unexplained_paths: int
    flaps: int
    producer_version: str | None = None
    tasks: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    evidence: tuple[str, ...]
    related_fault_ids: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()


@record
class FaultState(FaultEvent):
    """The latest state of a fault: the same fields as its last transition."""
