"""Records that people write about faults.

The `.avsc` files are the truth and hold doc and unit of every field; a test
holds these classes to them. Times (`*_at`) are integer microseconds since the epoch.
"""

from schemas.enums import NoteAction
from schemas.records.base import record


@record
class Matcher:
    """A condition on one label of a fault."""

    label: str
    pattern: str


@record
class Silence:
    """Faults of which nobody is to be paged for a while."""

    cluster: str
    silence_id: str
    matchers: tuple[Matcher, ...]
    from_at: int
    until_at: int
    created_at: int
    author: str
    reason: str
    ended_by: str | None = None
    producer_version: str | None = None


@record
class IncidentNote:
    """What somebody said or did about a fault."""

    cluster: str
    fault_id: str
    note_id: str
    action: NoteAction
    noted_at: int
    author: str
    text: str
    cause: str | None = None
    producer_version: str | None = None
