"""What people do from the page: who may, what is refused, and what is written."""

import json
import threading
from typing import Any

import pytest
from starlette.testclient import TestClient

from ops.web.actions import MAX_BODY_BYTES
from ops.web.security import ACTION_HEADER, LOCAL_NAMES, Access, logins_of
from ops.web.server import build
from schemas import topics as t
from schemas.records import IncidentNote, Matcher, Silence
from schemas.topics import Topic
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, fault
from tests.unit.ops.web.held_source import HeldSource

HOST = "http://127.0.0.1:8440"
OWN = {"origin": HOST, ACTION_HEADER: "1", "content-type": "application/json"}
TOKEN = "0123456789abcdef"  # noqa: S105 - made up
SILENCE = {
    "matchers": [{"label": "component", "pattern": "link:*"}], "duration_s": 3_600,
    "reason": "new optics", "author": "ann",
}  # fmt: skip
CLOSE = {"fault_id": "f-1", "action": "close", "cause": "dirty optics", "author": "ann"}


class HeldWriter:
    """Keeps what is written, as a broker does, or says why not."""

    cluster = "c"

    def __init__(self) -> None:
        self.written: list[tuple[str, Any]] = []
        self.away: str | None = None
        self.thread = ""

    def write(self, topic: Topic, record: Silence | IncidentNote) -> None:
        """Keep a record."""
        self.thread = threading.current_thread().name
        if self.away is not None:
            raise ConnectionError(self.away)
        self.written.append((topic.name, record))


class Bench:
    """A page that may act, of a cluster with one fault and one silence that is over."""

    def __init__(self, access: Access | None = None, *, acts: bool = True) -> None:
        self.writer = HeldWriter()
        self.source = HeldSource()
        self._log = Log()
        self.see(t.FAULT_EVENT, fault())
        self.see(t.FAULT_EVENT, fault(fault_id="f-2", cluster="another"))
        over = Silence(
            cluster="c", silence_id="s-over", matchers=(Matcher(label="task", pattern="a"),),
            from_at=1, until_at=2, created_at=1, author="eve", reason="r", ended_by="bob",
        )  # fmt: skip
        self.see(t.SILENCE, over)
        app = build(self.source, access or Access(hosts=LOCAL_NAMES), self.writer if acts else None)
        self.client = TestClient(app, base_url=HOST, follow_redirects=False)

    def see(self, topic: Topic, record: Any) -> None:
        """Show the page a record of a topic."""
        self.source.view.apply(self._log.seen(topic, record))

    def act(self, name: str, entry: Any, **headers: str | None) -> tuple[int, dict[str, Any]]:
        """Send an entry as the page does, with changed headers; None leaves one out."""
        merged = {**OWN, **{key.replace("_", "-"): value for key, value in headers.items()}}
        content = entry if isinstance(entry, bytes) else json.dumps(entry).encode()
        answer = self.client.post(
            f"/api/actions/{name}",
            content=content,
            headers={key: value for key, value in merged.items() if value is not None},
        )
        return answer.status_code, answer.json()


def test_a_silence_and_its_end_are_written() -> None:
    """By a thread that is not the server's own; the answer names the record."""
    bench = Bench()
    status, told = bench.act("silence", SILENCE)
    ((topic, silence),) = bench.writer.written
    assert (status, told, topic) == (201, {"written": silence.silence_id}, "silence.v1")
    assert (silence.cluster, silence.author, silence.reason) == ("c", "ann", "new optics")
    assert silence.until_at - silence.from_at == 3_600 * 10**6
    assert silence.from_at == silence.created_at
    assert "worker thread" in bench.writer.thread
    bench.see(t.SILENCE, silence)
    status, _ = bench.act("expire", {"silence_id": silence.silence_id, "author": "bob"})
    ended = bench.writer.written[-1][1]
    assert (status, ended.silence_id, ended.ended_by) == (201, silence.silence_id, "bob")
    bench.act("silence", {**SILENCE, "begins_in_s": 3_600})
    planned = bench.writer.written[-1][1]
    assert planned.until_at - planned.created_at == 7_200 * 10**6


def test_notes_are_written() -> None:
    """Acknowledged, closed with a cause, commented."""
    bench = Bench()
    for entry in (
        {"fault_id": "f-1", "action": "acknowledge", "author": "ann"},
        CLOSE,
        {"fault_id": "f-1", "action": "comment", "text": "case 4711", "author": "ann"},
    ):
        assert bench.act("note", entry)[0] == 201
    assert [(topic, n.action.value, n.cause, n.text) for topic, n in bench.writer.written] == [
        ("incident.note.v1", "ACKNOWLEDGE", None, ""),
        ("incident.note.v1", "CLOSE", "dirty optics", ""),
        ("incident.note.v1", "COMMENT", None, "case 4711"),
    ]


FOREIGN = [
    ({"origin": "https://evil.example"}, 403, "comes from https://evil.example"),
    ({"origin": "null"}, 403, "comes from null"),
    ({"origin": "https://127.0.0.1:8440"}, 403, "this page is http://127.0.0.1:8440"),
    ({"origin": "http://127.0.0.1:8441"}, 403, "this page is http://127.0.0.1:8440"),
    ({"origin": None}, 403, "no header Origin"),
    ({"sec-fetch-site": "same-site"}, 403, "Sec-Fetch-Site is same-site"),
    ({ACTION_HEADER: None}, 403, f"no header {ACTION_HEADER}"),
    ({"content-type": "text/plain"}, 415, "content-type is text/plain"),
    ({"content-type": "application/x-www-form-urlencoded"}, 415, "content-type is"),
    ({"content-type": None}, 415, "content-type is missing"),
    ({"host": "evil.example", "origin": "http://evil.example"}, 421, "not served under"),
]


@pytest.mark.parametrize(("headers", "status", "said"), FOREIGN)
def test_a_request_that_a_foreign_page_could_make_is_refused(
    headers: dict[str, str | None], status: int, said: str
) -> None:
    """And nothing is written; the answer lets no other origin read it."""
    bench = Bench()
    got, told = bench.act("silence", SILENCE, **headers)
    assert got == status
    assert said in told["what"]
    assert told["todo"]
    assert bench.writer.written == []
    preflight = bench.client.options("/api/actions/silence", headers={"origin": "http://a"})
    assert "access-control-allow-origin" not in preflight.headers


WRONG: list[tuple[str, Any, int, str]] = [
    ("silence", b"x" * (MAX_BODY_BYTES + 1), 413, "more than 16,384 bytes"),
    ("silence", b"\xff", 400, "no JSON object"),
    ("silence", b"[" * 9_000, 400, "no JSON object"),
    ("silence", [], 400, "no JSON object"),
    ("silence", {**SILENCE, "matchers": [{"label": "component", "pattern": "?*"}]}, 422,
     "say that all are meant"),
    ("silence", {**SILENCE, "matchers": []}, 422, "must say what is silenced"),
    ("silence", {**SILENCE, "matchers": ["a"]}, 422, "label and pattern"),
    ("silence", {**SILENCE, "matchers": [{"label": "colour", "pattern": "\ud800"}]}, 422, "labels"),
    ("silence", {**SILENCE, "everything": 1}, 422, "everything must be true or false"),
    ("silence", {**SILENCE, "duration_s": True}, 422, "duration_s must be a whole number"),
    ("silence", {**SILENCE, "duration_s": 1.5}, 422, "duration_s must be a whole number"),
    ("silence", {**SILENCE, "duration_s": -5}, 422, "after the begin"),
    ("silence", {**SILENCE, "duration_s": 91 * 86_400}, 422, "at most 90 days"),
    ("silence", {**SILENCE, "begins_in_s": 10**30}, 422, "out of bounds"),
    ("silence", {**SILENCE, "reason": ""}, 422, "reason is empty"),
    ("silence", {**SILENCE, "reason": "\ud800"}, 422, "half a character"),
    ("silence", {**SILENCE, "author": " "}, 422, "author is empty: say who you are"),
    ("silence", {**SILENCE, "\ud800": 1}, 422, "entry has '\\ud800'"),
    ("expire", {"silence_id": "s-over", "author": "a"}, 409, "has ended: by bob"),
    ("expire", {"silence_id": "\ud800", "author": "a"}, 404, "no silence '\\ud800' of cluster 'c'"),
    ("note", {**CLOSE, "fault_id": "f-9"}, 404, "no fault 'f-9' of cluster 'c'"),
    ("note", {**CLOSE, "fault_id": "f-2"}, 404, "no fault 'f-2' of cluster 'c'"),
    ("note", {**CLOSE, "cause": ""}, 422, "cause is empty"),
    ("note", {**CLOSE, "action": "unknown"}, 422, "must be one of comment, acknowledge, close"),
    ("nothing", {}, 404, "no such action"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "entry", "status", "said"), WRONG)
def test_what_is_wrong_is_said_and_nothing_is_written(
    name: str, entry: Any, status: int, said: str
) -> None:
    """With what to do, and the field where one is wrong."""
    bench = Bench()
    got, told = bench.act(name, entry)
    assert got == status, told
    assert said in told["what"]
    assert told["todo"]
    assert ("field" in told) == (status == 422)
    assert bench.writer.written == []


def test_who_has_a_token_of_their_own_writes_under_their_name() -> None:
    """Under no other; of a token that several share the name is asked for."""
    bench = Bench(Access(logins=logins_of(f"ann: {TOKEN}a\n{TOKEN}b")))
    nobody = bench.act("note", CLOSE)
    assert (nobody[0], "no token" in nobody[1]["what"]) == (401, True)
    ann, shared = (f"Bearer {TOKEN}{end}" for end in "ab")
    told = bench.client.get("/api/actions", headers={"authorization": ann}).json()
    assert (told["author"], told["cluster"]) == ("ann", "c")
    told = bench.client.get("/api/actions", headers={"authorization": shared}).json()
    assert told["author"] is None
    unsigned = {key: value for key, value in CLOSE.items() if key != "author"}
    assert bench.act("note", unsigned, authorization=ann)[0] == 201
    assert bench.writer.written[-1][1].author == "ann"
    status, said = bench.act("note", {**CLOSE, "author": "bob"}, authorization=ann)
    assert (status, "entry has 'author'" in said["what"]) == (422, True)
    assert bench.act("note", unsigned, authorization=shared)[1]["field"] == "author"
    bench.client.post("/login", data={"token": f"{TOKEN}a"})
    assert bench.act("note", unsigned)[0] == 201


def test_why_the_broker_did_not_take_it_is_said() -> None:
    """It may have taken it all the same, which is said as well."""
    bench = Bench()
    bench.writer.away = "no Kafka broker answers at k:9092: Connection refused"
    status, told = bench.act("note", CLOSE)
    assert status == 503
    assert told["what"].endswith("no Kafka broker answers at k:9092: Connection refused")
    assert "once Kafka answers" in told["todo"]


def test_nobody_acts_unless_it_was_allowed_nor_on_a_recording() -> None:
    """The frame says whether there are actions, and no action is taken before all was read."""
    bench = Bench(acts=False)
    status, told = bench.act("note", CLOSE)
    assert (status, "--allow-actions" in told["todo"]) == (403, True)
    assert bench.client.get("/api/actions").status_code == 403
    assert 'name="actions"' not in bench.client.get("/").text
    bench = Bench()
    assert 'name="actions" content="allowed"' in bench.client.get("/").text
    bench.source.ready = False
    assert bench.act("note", CLOSE)[0] == 503
    bench.source.folder = "incident"
    status, told = bench.act("note", CLOSE)
    assert (status, told["what"]) == (403, "a recording stays as it is")
    assert bench.source.view.latest_ms == START_MS
    assert bench.writer.written == []
