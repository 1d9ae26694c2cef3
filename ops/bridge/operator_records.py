"""Silences and notes as people may write them: one set of rules for command line and page.

What passes is within the contract's bounds, so that no reader of the topic refuses it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ops.bridge.paging.labels import SILENCE_LABELS, says_nothing
from schemas.bounds import bound_of, violation
from schemas.codec import Codec, to_datum
from schemas.enums import NoteAction
from schemas.records import IncidentNote, Matcher, Silence
from schemas.topics import INCIDENT_NOTE, SILENCE, Topic
from schemas.units import US_PER_S
from schemas.version import VERSION

R = TypeVar("R", Silence, IncidentNote)

# PagerDuty cuts a summary at 1,024 characters; what is longer belongs into a ticket.
MAX_TEXT: Final = 1_000
# A longer one is a decision, not a silence: change what is paged.
MAX_DAYS: Final = 90
MAX_US: Final = MAX_DAYS * 86_400 * US_PER_S
MAX_MATCHERS: Final = round(bound_of(SILENCE.name, "matchers").greatest)
IN_FORCE: Final = "in force"
PLANNED: Final = "planned"
ENDED: Final = "ended"


class InvalidEntryError(ValueError):
    """What somebody entered cannot be written.

    Attributes
    ----------
    field
        Where it stands in the record.
    why
        What is wrong with it; a sentence behind the name of the field.
    """

    def __init__(self, field: str, why: str) -> None:
        self.field = field
        self.why = why
        super().__init__(f"{field} {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorship:
    """Who writes of which cluster, and when, in microseconds since the epoch."""

    cluster: str
    author: str
    at_us: int


def new_silence(
    by: Authorship,
    silence_id: str,
    *,
    matchers: Sequence[Matcher],
    everything: bool,
    from_us: int,
    until_us: int,
    reason: str,
) -> Silence:
    """Return a silence.

    Parameters
    ----------
    matchers
        All of them must fit a fault.
    everything
        That every fault is meant: said in a word of its own, never by a pattern that fits all.
    from_us, until_us
        Microseconds since the epoch.

    Raises
    ------
    InvalidEntryError
        If the rules do not allow it.
    """
    if bool(matchers) is everything:
        raise InvalidEntryError(
            "matchers", "must say what is silenced: patterns, or every fault, not both"
        )
    for one in matchers:
        if one.label not in SILENCE_LABELS or not one.pattern:
            raise InvalidEntryError(
                "matchers",
                f"{f'{one.label}={one.pattern}'!r} must be LABEL=PATTERN; labels are "
                f"{', '.join(SILENCE_LABELS)}",
            )
    if matchers and all(says_nothing(one.label, one.pattern) for one in matchers):
        raise InvalidEntryError(
            "matchers", "have no pattern but * and ?, which name nothing; say that all are meant"
        )
    _check_text("reason", reason, needed=True)
    if until_us <= max(from_us, by.at_us):
        raise InvalidEntryError("until_at", "must be after the begin and after now")
    if until_us - from_us > MAX_US:
        raise InvalidEntryError("until_at", f"is too late: a silence lasts at most {MAX_DAYS} days")
    written = Silence(
        cluster=by.cluster, silence_id=silence_id, matchers=tuple(matchers), from_at=from_us,
        until_at=until_us, created_at=by.at_us, author=by.author, reason=reason,
        producer_version=VERSION,
    )  # fmt: skip
    return _checked(SILENCE, written, by)


def state_of(silence: Silence, now_us: int) -> str:
    """Return whether a silence is in force, planned or ended."""
    if silence.until_at <= now_us:
        return ENDED
    return IN_FORCE if silence.from_at <= now_us else PLANNED


def expired(silence: Silence, by: Authorship) -> Silence | None:
    """Return a silence that ends now, with who ended it; None: it is over already.

    Raises
    ------
    InvalidEntryError
        If the author is none.
    """
    if silence.until_at <= by.at_us:
        return None
    ended = replace(
        silence,
        from_at=min(silence.from_at, by.at_us),
        until_at=by.at_us,
        ended_by=by.author,
        producer_version=VERSION,
    )
    return _checked(SILENCE, ended, by)


def new_note(
    by: Authorship,
    note_id: str,
    fault_id: str,
    action: NoteAction,
    *,
    text: str = "",
    cause: str | None = None,
) -> IncidentNote:
    """Return a note on a fault, open or over: who closes one says what it was.

    Raises
    ------
    InvalidEntryError
        If the rules do not allow it.
    """
    _check_text("text", text, needed=action is NoteAction.COMMENT)
    if action is NoteAction.CLOSE:
        _check_text("cause", cause or "", needed=True)
    elif cause is not None:
        raise InvalidEntryError("cause", "is said by who closes a fault")
    written = IncidentNote(
        cluster=by.cluster, fault_id=fault_id, note_id=note_id, action=action, noted_at=by.at_us,
        author=by.author, text=text, cause=cause, producer_version=VERSION,
    )  # fmt: skip
    return _checked(INCIDENT_NOTE, written, by)


def _check_text(field: str, text: str, *, needed: bool) -> None:
    """Refuse a text for people that says nothing, or too much."""
    if needed and not text.strip():
        raise InvalidEntryError(field, "is empty: say it in some words")
    if len(text) > MAX_TEXT:
        raise InvalidEntryError(
            field, f"has {len(text):,} characters, at most {MAX_TEXT:,}: link to the rest"
        )


def _checked(topic: Topic, record: R, by: Authorship) -> R:
    """Return a record that every reader of its topic takes."""
    if not by.author.strip():
        raise InvalidEntryError("author", "is empty: say who you are")
    found = violation(topic.name, to_datum(record))
    if found is not None:
        raise InvalidEntryError(found.bound.field, f"is out of bounds: {found}")
    try:
        Codec().encode(topic, record)
    except UnicodeEncodeError as error:
        raise InvalidEntryError("text", f"holds half a character: {error.reason}") from error
    return record
