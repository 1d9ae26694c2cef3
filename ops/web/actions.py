"""What people do about faults from the page: silences and notes, written to their topics.

Off unless asked for. A browser sends what a foreign page makes it send: so a request counts only
if it has the page's own origin, a header that no form can set, and JSON as its type, as OWASP's
Cross-Site Request Forgery Prevention Cheat Sheet advises.

What is written comes back from its topic like everybody's: the page shows it then, and not before.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ops.bridge.operator_records import (
    MAX_DAYS,
    MAX_MATCHERS,
    MAX_TEXT,
    Authorship,
    InvalidEntryError,
    expired,
    new_note,
    new_silence,
)
from ops.bridge.operator_topics import new_id
from ops.bridge.paging.labels import SILENCE_LABELS
from ops.web.security import ACTION_HEADER, Access, foreign
from ops.web.source import Source, waits_for
from schemas import topics
from schemas.enums import NoteAction
from schemas.records import IncidentNote, Matcher, Silence
from schemas.topics import Topic
from schemas.units import US_PER_S, ns_to_us

R = TypeVar("R")

JSON_TYPE: Final = "application/json"
# A silence with the longest texts that anybody would type; the rules' own bounds are narrower.
MAX_BODY_BYTES: Final = 16_384
# Each takes at most as long as a broker that does not answer; more of them wait.
MAX_WRITES: Final = 4
NOTE_ACTIONS: Final = {
    action.value.lower(): action for action in NoteAction if action is not NoteAction.UNKNOWN
}


class Writer(Protocol):
    """Writes silences and notes of a cluster."""

    cluster: str

    def write(self, topic: Topic, record: Silence | IncidentNote) -> None:
        """Write a record, and wait until the broker has it.

        Raises
        ------
        ConnectionError
            If the broker does not take it.
        """
        ...


class RefusedError(Exception):
    """A request that is not acted on, and what to do instead."""

    def __init__(self, status: int, what: str, todo: str) -> None:
        self.status = status
        self.todo = todo
        super().__init__(what)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What an entry asks to be written; `name` is what people call it."""

    topic: Topic
    record: Silence | IncidentNote
    name: str


class _Entry:
    """What somebody entered: values of the types that are wanted, and no others."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._used: set[str] = set()

    def text(self, name: str) -> str:
        """Return a text, "" where there is none."""
        return self._value(name, str, "", "a text")

    def flag(self, name: str) -> bool:
        """Return whether something is said."""
        return self._value(name, bool, False, "true or false")

    def number(self, name: str, default: int | None = None) -> int:
        """Return a number without fraction."""
        found = self._value(name, int, default, "a whole number")
        if isinstance(found, bool):
            raise InvalidEntryError(name, "must be a whole number")
        return found

    def matchers(self) -> list[Matcher]:
        """Return the conditions of a silence."""
        found = []
        for one in self._value("matchers", list, [], "a list"):
            texts = one if isinstance(one, dict) else {}
            label, pattern = texts.get("label"), texts.get("pattern")
            if not (isinstance(label, str) and isinstance(pattern, str) and len(texts) == 2):
                raise InvalidEntryError("matchers", "are objects with the texts label and pattern")
            found.append(Matcher(label=label, pattern=pattern))
        return found

    def check_all_used(self) -> None:
        """Refuse what nobody asked for: it may have been meant for something."""
        for name in self._given:
            if name not in self._used:
                there = ", ".join(sorted(self._used))
                raise InvalidEntryError("entry", f"has {name!r}, and takes {there} only")

    def _value(self, name: str, kind: type[R], default: R | None, what: str) -> R:
        self._used.add(name)
        found = self._given.get(name, default)
        if not isinstance(found, kind):
            raise InvalidEntryError(name, f"must be {what}")
        return found


async def _entry(request: Request) -> _Entry:
    """Return what a request holds."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise RefusedError(415, f"content-type is {kind or 'missing'}", f"send {JSON_TYPE}")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise RefusedError(
                413,
                f"that is more than {MAX_BODY_BYTES:,} bytes",
                "say it shorter, link to the rest",
            )
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise RefusedError(400, "that is no JSON object", "send what the page sends; see the guide")
    return _Entry(given)


def _problem(status: int, what: str, todo: str, **more: str) -> Response:
    return JSONResponse({"what": what, "todo": todo, **more}, status_code=status)


class Actions:
    """Answers `/api/actions/...`.

    Parameters
    ----------
    source
        What is known of faults and silences.
    access
        Who may look; whoever may look may act.
    writer
        None: nobody may act.
    """

    def __init__(self, source: Source, access: Access, writer: Writer | None) -> None:
        self._source = source
        self._access = access
        self._writer = writer
        self._writes = CapacityLimiter(MAX_WRITES)
        self._kinds: Final[Mapping[str, Callable[[_Entry, Authorship], _Written]]] = {
            "silence": _silence,
            "expire": self._expire,
            "note": self._note,
        }

    async def about(self, request: Request) -> Response:
        """Say who acts and within which bounds."""
        try:
            writer = self._allowed()
        except RefusedError as error:
            return _problem(error.status, str(error), error.todo)
        login = self._access.who(request.headers)
        return JSONResponse(
            {
                "author": None if login is None else login.name,
                "cluster": writer.cluster,
                "labels": list(SILENCE_LABELS),
                "max_days": MAX_DAYS,
                "max_matchers": MAX_MATCHERS,
                "max_text": MAX_TEXT,
            }
        )

    async def act(self, request: Request) -> Response:
        """Write what is asked for; 201 once the broker has it."""
        try:
            writer = self._allowed()
            why = foreign(request.headers, tls=self._access.tls)
            if why is not None:
                raise RefusedError(
                    403,
                    f"this request is not from the page itself: {why}",
                    f"programs send Origin and {ACTION_HEADER} as the page does; see the guide",
                )
            kind = self._kinds.get(request.path_params["name"])
            if kind is None:
                there = ", ".join(self._kinds)
                raise RefusedError(404, "there is no such action", f"there are {there}")
            if (why := waits_for(self._source)) is not None:
                raise RefusedError(503, f"not ready: {why}", "try again in a moment")
            entry = await _entry(request)
            login = self._access.who(request.headers)
            # Whose a token is known to be writes under no other name.
            name = None if login is None else login.name
            by = Authorship(
                cluster=writer.cluster,
                author=entry.text("author") if name is None else name,
                at_us=ns_to_us(time.time_ns()),
            )
            written = kind(entry, by)
            entry.check_all_used()
            await to_thread.run_sync(
                writer.write, written.topic, written.record, limiter=self._writes
            )
        except RefusedError as error:
            return _problem(error.status, str(error), error.todo)
        except InvalidEntryError as error:
            return _problem(422, str(error), "correct it and send it again", field=error.field)
        except ConnectionError as error:
            # A broker that did not answer in time may have taken it.
            todo = "if it does not show on the page once Kafka answers, send it again"
            return _problem(503, f"Kafka has not confirmed it: {error}", todo)
        return JSONResponse({"written": written.name}, status_code=201)

    def _allowed(self) -> Writer:
        if self._source.folder is not None:
            raise RefusedError(403, "a recording stays as it is", "act on the live page")
        if self._writer is None:
            todo = (
                "start `skeletonhunter web` with --allow-actions, or use `skeletonhunter silence`"
            )
            raise RefusedError(403, "this page only shows", todo)
        return self._writer

    def _expire(self, entry: _Entry, by: Authorship) -> _Written:
        silence_id = entry.text("silence_id")
        silence = self._source.look(lambda view, _now_ms: view.silences.get(silence_id))
        if silence is None or silence.cluster != by.cluster:
            raise RefusedError(
                404,
                f"no silence {silence_id!r} of cluster {by.cluster!r} is known here",
                "choose one on the page Silences",
            )
        ended = expired(silence, by)
        if ended is None:
            who = "its time is over" if silence.ended_by is None else f"by {silence.ended_by}"
            raise RefusedError(
                409, f"silence {silence_id} has ended: {who}", "nothing is to be done"
            )
        return _Written(topic=topics.SILENCE, record=ended, name=silence_id)

    def _note(self, entry: _Entry, by: Authorship) -> _Written:
        fault_id, said = entry.text("fault_id"), entry.text("action")
        action = NOTE_ACTIONS.get(said)
        if action is None:
            raise InvalidEntryError("action", f"{said!r} must be one of {', '.join(NOTE_ACTIONS)}")
        fault = self._source.look(lambda view, _now_ms: view.faults.get(fault_id))
        if fault is None or fault.last.cluster != by.cluster:
            raise RefusedError(
                404,
                f"no fault {fault_id!r} of cluster {by.cluster!r} is known here",
                "is the id whole? Faults older than --faults-from: `skeletonhunter incident`",
            )
        note = new_note(
            by,
            new_id("n"),
            fault_id,
            action,
            text=entry.text("text"),
            cause=entry.text("cause") or None,
        )
        return _Written(topic=topics.INCIDENT_NOTE, record=note, name=note.note_id)


def _silence(entry: _Entry, by: Authorship) -> _Written:
    # By the server's clock: a browser's may be wrong.
    from_us = by.at_us + entry.number("begins_in_s", 0) * US_PER_S
    silence = new_silence(
        by,
        new_id("s"),
        matchers=entry.matchers(),
        everything=entry.flag("everything"),
        from_us=from_us,
        until_us=from_us + entry.number("duration_s") * US_PER_S,
        reason=entry.text("reason"),
    )
    return _Written(topic=topics.SILENCE, record=silence, name=silence.silence_id)
