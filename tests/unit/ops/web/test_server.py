"""Who may look, what a browser may do, and what wrong requests are told."""

import base64
import hashlib
import re

import pytest
from starlette.testclient import TestClient

from ops.view.cluster import ClusterView
from ops.web.security import LOCAL_NAMES, Access, faults_of, logins_of
from ops.web.server import FILES, build
from ops.web.source import Trouble
from schemas import topics as t
from tests.unit.ops.view_samples import Log, fault
from tests.unit.ops.web.held_source import HeldSource

TOKEN = "0123456789abcdef"  # noqa: S105 - made up
LOGINS = logins_of(TOKEN)


def client(access: Access | None = None, source: HeldSource | None = None) -> TestClient:
    """Return a client of the application."""
    app = build(source or HeldSource(), access or Access(hosts=LOCAL_NAMES))
    return TestClient(app, base_url="http://127.0.0.1:8440", follow_redirects=False)


def test_the_policy_allows_the_pages_own_files_only() -> None:
    """The import map is allowed by its hash; nothing inline else, no other origin."""
    answer = client().get("/")
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    index = (FILES / "index.html").read_text(encoding="utf-8")
    (inline,) = re.findall(r'<script type="importmap">(.*?)</script>', index, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?! type=)|style=|\son\w+=", answer.text)


def test_all_modules_are_fetched_side_by_side() -> None:
    """The frame names each module of the page, and each that they import by name."""
    told = client().get("/").text
    named = set(re.findall(r'modulepreload" href="/static/([^"]+)"', told))
    own = {path.relative_to(FILES).as_posix() for path in FILES.rglob("*.js")}
    assert own - named == {"app.js"}
    mapped = re.findall(r'"/static/(vendor/[^"]+)"', re.search(r"importmap.*", told)[0])  # type: ignore[index]
    assert set(mapped) <= named


def test_every_address_of_a_page_is_the_page() -> None:
    """So that a link can be shared; its files are there as well."""
    with client() as web:
        assert web.get("/incident?fault=x").text == web.get("/").text
        script = web.get("/static/app.js")
        assert script.status_code == 200
        assert "javascript" in script.headers["content-type"]
        module = web.get("/static/vendor/preact/preact.mjs")
        assert "javascript" in module.headers["content-type"]
        assert web.get("/static/%2e%2e/server.py").status_code == 404
        kept = {"if-none-match": script.headers["etag"]}
        assert web.get("/static/app.js", headers=kept).status_code == 304
        assert web.get("/static/lib/text.js", headers=kept).status_code == 200


def test_a_document_is_what_the_view_says() -> None:
    """As JSON, for whoever wants it without a browser."""
    view, log = ClusterView(), Log()
    view.apply(log.seen(t.FAULT_EVENT, fault()))
    found = client(source=HeldSource(view)).get("/api/pages/now").json()
    assert found["headline"]["answer"] == "yes"
    assert list(found["open"]) == ["f-1"]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/pages/nothing", 404, "no page 'nothing'"),
        ("/api/stream/nothing", 404, "no page 'nothing'"),
        ("/api/pages/now?at=noon", 404, "no time"),
    ],
)
def test_wrong_requests_are_told_what_and_what_to_do(path: str, status: int, words: str) -> None:
    """Never a bare number."""
    answer = client().get(path)
    assert answer.status_code == status
    assert words in answer.json()["what"]
    assert answer.json()["todo"]


def test_health_checks() -> None:
    """Alive as soon as it answers, ready once all was read; why not is said."""
    source = HeldSource()
    source.ready = False
    source.trouble = Trouble(what="no broker", todo="start one", since_ms=1)
    web = client(source=source)
    assert web.get("/healthz").status_code == 200
    assert (web.get("/readyz").status_code, web.get("/readyz").text) == (
        503,
        "not ready: no broker\n",
    )
    source.ready = True
    assert web.get("/readyz").status_code == 200
    source.alive = False
    assert web.get("/healthz").status_code == 503


def test_a_token_is_asked_for_and_kept_as_a_cookie() -> None:
    """Wrong, missing, right; the cookie is not the token."""
    web = client(Access(logins=LOGINS))
    page = web.get("/", headers={"accept": "text/html"})
    assert (page.status_code, "those who know its token" in page.text) == (401, True)
    refused = web.get("/api/pages/now")
    assert refused.status_code == 401
    assert "no token" in refused.json()["what"]
    assert "not the token" in web.post("/login", data={"token": "wrong"}).text
    assert web.get("/static/app.js").status_code == 401
    right = web.post("/login", data={"token": TOKEN})
    assert right.status_code == 303
    kept = right.headers["set-cookie"]
    assert TOKEN not in kept
    assert {"HttpOnly", "SameSite=strict"} <= set(kept.split("; "))
    assert web.get("/api/pages/now").status_code == 200
    bearer = client(Access(logins=LOGINS))
    assert (
        bearer.get("/api/pages/now", headers={"authorization": f"Bearer {TOKEN}"}).status_code
        == 200
    )
    assert bearer.get("/api/pages/now", headers={"authorization": "Bearer x"}).status_code == 401


def test_a_long_or_odd_login_is_no_error() -> None:
    """It is no token, either."""
    web = client(Access(logins=LOGINS))
    assert web.post("/login", content=b"token=" + b"x" * 9_000).status_code == 413
    assert web.post("/login", content=b"\xff\xfe&&=%zz").status_code == 401
    assert web.post("/login", data={"token": "\u202e<script>"}).status_code == 401


def test_a_page_of_another_name_cannot_reach_it() -> None:
    """A name that resolves to this machine is not enough (DNS rebinding)."""
    web = client()
    answer = web.get("/api/pages/now", headers={"host": "evil.example"})
    assert answer.status_code == 421
    assert "not served under the name" in answer.json()["what"]
    assert web.get("/api/pages/now", headers={"host": "localhost:1"}).status_code == 200


def test_beyond_this_machine_only_with_tls_and_a_token() -> None:
    """What is missing is named, all at once."""
    assert list(faults_of("127.0.0.1", tls=False, logins=())) == []
    assert list(faults_of("::1", tls=False, logins=())) == []
    assert len(list(faults_of("0.0.0.0", tls=False, logins=()))) == 2  # noqa: S104 - refused
    (short,) = faults_of("web.example", tls=True, logins=logins_of("ann: short"))
    assert short.startswith("the token of ann has 5 characters; it needs 16")
    assert list(faults_of("10.0.0.1", tls=True, logins=LOGINS)) == []
    (twice,) = faults_of("127.0.0.1", tls=False, logins=logins_of(f"ann: {TOKEN}\n{TOKEN}"))
    assert "have one token" in twice
