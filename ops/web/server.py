"""The web server: pages as documents, their streams, and the files of the page itself."""

import asyncio
import contextlib
import hashlib
import html
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from ops.web.actions import Actions, Writer
from ops.web.hub import Hub
from ops.web.pages.incident import INCIDENT
from ops.web.pages.moments import moments
from ops.web.pages.page import Document, UnknownItemError
from ops.web.pages.registry import PAGES
from ops.web.pages.report import commands, to_html, to_markdown
from ops.web.security import COOKIE, Access, Guard, content_security_policy
from ops.web.source import Source, waits_for

FILES: Final = Path(__file__).parent / "page"
TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
}
# A proxy or browser that gave up is noticed after so long.
PING_S: Final = 15
# A browser whose stream ended comes back after so long.
RETRY_MS: Final = 1_000
MAX_FORM_BYTES: Final = 4_096
# Not parameters of a page.
RESERVED: Final = frozenset({"at", "after"})


def build(source: Source, access: Access, writer: Writer | None = None) -> Starlette:
    """Return the application; it begins to send when it starts, and ends with the server.

    Parameters
    ----------
    writer
        Writes what people do about faults; None: they may not.
    """
    index = _index(live=source.folder is None, acts=writer is not None)
    hub = Hub(source)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(hub.run())
        source.start(hub.notify)
        try:
            yield
        finally:
            running.cancel()
            source.stop()

    handlers = _Handlers(hub, source, access, index)
    actions = Actions(source, access, writer)
    app = Starlette(
        routes=[
            Route("/healthz", handlers.alive),
            Route("/readyz", handlers.ready),
            Route("/login", handlers.login, methods=["POST"]),
            Route("/refused/host", handlers.refuse_host, methods=["GET", "POST"]),
            Route("/refused/token", handlers.refuse_token, methods=["GET", "POST"]),
            Route("/api/source", handlers.about),
            Route("/api/report.html", handlers.report_html),
            Route("/api/report.md", handlers.report_markdown),
            Route("/api/actions", actions.about),
            Route("/api/actions/{name}", actions.act, methods=["POST"]),
            Route("/api/pages/{name}", handlers.document),
            Route("/api/stream/{name}", handlers.stream),
            Route("/static/{path:path}", handlers.file),
            Route("/{path:path}", handlers.index),
        ],
        lifespan=lifespan,
    )
    app.add_middleware(Guard, access=access, policy=content_security_policy(index))
    return app


def _index(*, live: bool, acts: bool) -> str:
    """Return the page's frame: it says what is shown, whether one may act, and names all modules.

    A browser then fetches them side by side, and not each when the one before asks for it.
    """
    modules = [*sorted(FILES.glob("lib/*.js")), *sorted(FILES.glob("pages/*.js"))]
    links = "".join(
        f'<link rel="modulepreload" href="/static/{path.relative_to(FILES).as_posix()}">\n'
        for path in modules
    )
    told = f'<meta name="source" content="{"live" if live else "recording"}">\n'
    told += '<meta name="actions" content="allowed">\n' if acts else ""
    text = (FILES / "index.html").read_text(encoding="utf-8")
    return text.replace("</head>", f"{told}{links}</head>")


def _files() -> Iterator[tuple[str, tuple[bytes, dict[str, str]]]]:
    """Yield the page's files with their headers: some forty, held in memory."""
    for path in sorted(FILES.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            # A browser asks whether its copy is still right: after an upgrade it is not.
            headers = {
                "content-type": TYPES.get(path.suffix, "text/plain; charset=utf-8"),
                "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
                "cache-control": "no-cache",
            }
            yield path.relative_to(FILES).as_posix(), (content, headers)


class _Handlers:
    """What answers requests."""

    def __init__(self, hub: Hub, source: Source, access: Access, index: str) -> None:
        self._hub = hub
        self._source = source
        self._access = access
        self._index = index
        self._files = dict(_files())

    async def index(self, _request: Request) -> Response:
        return HTMLResponse(self._index)

    async def file(self, request: Request) -> Response:
        found = self._files.get(request.path_params["path"])
        if found is None:
            return _error(404, "there is no such file", "load the page anew")
        content, headers = found
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    async def alive(self, _request: Request) -> Response:
        if self._source.alive:
            return PlainTextResponse("alive\n")
        return PlainTextResponse("the reader has ended\n", status_code=503)

    async def ready(self, _request: Request) -> Response:
        why = waits_for(self._source)
        if why is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {why}\n", status_code=503)

    async def about(self, _request: Request) -> Response:
        source = self._source
        live = source.folder is None
        told = {"live": live, "ready": source.ready, "pages": list(PAGES)}
        if not live and source.ready:
            told |= {
                "folder": source.folder,
                "span_ms": source.span_ms,
                "moments": source.look(lambda view, _now_ms: moments(view)),
                "trouble": None if source.trouble is None else source.trouble.what,
            }
        return JSONResponse(told)

    async def report_html(self, request: Request) -> Response:
        return self._report(request, lambda *parts: HTMLResponse(to_html(*parts)))

    async def report_markdown(self, request: Request) -> Response:
        return self._report(
            request,
            lambda *parts: PlainTextResponse(to_markdown(*parts), media_type="text/markdown"),
        )

    def _report(
        self, request: Request, made: Callable[[list[Document], list[str]], Response]
    ) -> Response:
        try:
            at_ms = _time(request.query_params.get("at"))
            found = self._hub.document(INCIDENT, _params(request), at_ms)
        except UnknownItemError as error:
            return _error(404, str(error), error.todo)
        span = found["span"]
        return made([found], commands(self._source.folder, span["from_ms"], span["to_ms"]))

    async def document(self, request: Request) -> Response:
        page = PAGES.get(request.path_params["name"])
        if page is None:
            return _error(404, f"no page {request.path_params['name']!r}", "see the links on top")
        try:
            at_ms = _time(request.query_params.get("at"))
            return JSONResponse(self._hub.document(page, _params(request), at_ms))
        except UnknownItemError as error:
            return _error(404, str(error), error.todo)

    async def stream(self, request: Request) -> Response:
        page = PAGES.get(request.path_params["name"])
        if page is None:
            return _error(404, f"no page {request.path_params['name']!r}", "see the links on top")
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        events = self._hub.stream(page, _params(request), after)

        async def sent() -> AsyncIterator[ServerSentEvent]:
            yield ServerSentEvent(retry=RETRY_MS, comment="skeletonhunter")
            async for event in events:
                yield ServerSentEvent(data=event.data, event=event.event, id=event.id)

        return EventSourceResponse(sent(), ping=PING_S)

    async def login(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                return _login_form("This is no token.", 413)
        given = parse_qs(body.decode(errors="replace")).get("token", [""])[0]
        login = self._access.login(given)
        if login is None:
            return _login_form(
                "This is not the token. It is in the file that --token-file names.", 401
            )
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(
            COOKIE, login.cookie, httponly=True, samesite="strict", secure=self._access.tls
        )
        return answer

    async def refuse_host(self, request: Request) -> Response:
        return _error(
            421,
            f"this page is not served under the name {request.headers.get('host', '')!r}",
            "use the address that `skeletonhunter web` printed",
        )

    async def refuse_token(self, request: Request) -> Response:
        wants_page = "text/html" in request.headers.get("accept", "")
        if wants_page:
            return _login_form("This page is for those who know its token.", 401)
        return _error(
            401, "no token, or a wrong one", "open the page in a browser, or send it as a Bearer"
        )


def _params(request: Request) -> dict[str, str]:
    return {key: value for key, value in request.query_params.items() if key not in RESERVED}


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise UnknownItemError(
            f"at={text!r} is no time", "give milliseconds since the epoch"
        ) from None


def _error(status: int, what: str, todo: str) -> Response:
    return JSONResponse({"what": what, "todo": todo}, status_code=status)


def _login_form(why: str, status: int) -> Response:
    return HTMLResponse(
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        "<title>SkeletonHunter: token</title><link rel=stylesheet href=/static/style.css>"
        f"<main class=login><h1>SkeletonHunter</h1><p>{html.escape(why)}</p>"
        "<form method=post action=/login><label>Token "
        "<input name=token type=password autocomplete=current-password required autofocus></label> "
        "<button>Open</button></form></main></html>",
        status_code=status,
    )
