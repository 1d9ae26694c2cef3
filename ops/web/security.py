"""Who may look, and what a browser may do with the page."""

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "skeletonhunter"
# A token that could be guessed is none.
MIN_TOKEN_CHARS: Final = 16
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
# What a browser needs to ask for the token, and what a supervisor asks.
OPEN_PATHS: Final = ("/login", "/healthz", "/readyz", "/static/style.css", "/static/icon.svg")
_INLINE: Final = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def content_security_policy(index: str) -> str:
    """Return the policy: nothing but the page's own files, and the import map by its hash."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in _INLINE.findall(index)
    )
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may look.

    Attributes
    ----------
    token
        What a browser must know; None: whoever reaches the address.
    hosts
        Names under which the page is asked for; an empty tuple takes any. On loopback without a
        token a foreign page could else reach this one under a name of its own (DNS rebinding).
    tls
        Whether the page is served over TLS.
    """

    token: str | None = None
    hosts: tuple[str, ...] = ()
    tls: bool = False

    @property
    def cookie(self) -> str:
        """What a browser shows once it has given the token: not the token itself."""
        return hashlib.sha256(f"skeletonhunter page {self.token}".encode()).hexdigest()

    def knows(self, given: str) -> bool:
        """Return whether somebody gave the token."""
        return self.token is None or hmac.compare_digest(given.encode(), self.token.encode())

    def lets_in(self, headers: Headers) -> bool:
        """Return whether a request comes from somebody who gave the token."""
        if self.token is None:
            return True
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self.knows(bearer):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        return hmac.compare_digest(cookie.encode(), self.cookie.encode())

    def is_host(self, headers: Headers) -> bool:
        """Return whether the page is asked for under a name of its own."""
        if not self.hosts:
            return True
        name = re.sub(r":\d+$", "", headers.get("host", ""))
        return name.lower() in self.hosts


class Guard:
    """Refuses who may not look, and adds the headers that keep a page to itself."""

    def __init__(self, app: ASGIApp, access: Access, policy: str) -> None:
        self._app = app
        self._access = access
        self._headers = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        path = scope["path"]
        if not self._access.is_host(headers):
            scope = {**scope, "path": "/refused/host", "raw_path": b"/refused/host"}
        elif path not in OPEN_PATHS and not self._access.lets_in(headers):
            # The page itself becomes the form that asks for the token.
            scope = {**scope, "path": "/refused/token", "raw_path": b"/refused/token"}
        await self._app(scope, receive, guarded)


def faults_of(host: str, *, tls: bool, token: str | None) -> Iterable[str]:
    """Yield what is wrong with serving at an address."""
    if token is not None and len(token) < MIN_TOKEN_CHARS:
        yield (
            f"the token has {len(token)} characters; it needs {MIN_TOKEN_CHARS}, such as "
            "`openssl rand -hex 32` writes"
        )
    if is_loopback(host):
        return
    if not tls:
        yield f"--listen {host} is reached from other machines: it needs --tls-cert and --tls-key"
    if token is None:
        yield f"--listen {host} is reached from other machines: it needs --token-file"
