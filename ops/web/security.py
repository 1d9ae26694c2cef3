"""Who may look, and what a browser may do with the page."""

import base64
import hashlib
import hmac
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "skeletonhunter"
# A token that could be guessed is none.
MIN_TOKEN_CHARS: Final = 16
# What no form and no foreign page sends: whoever acts does.
ACTION_HEADER: Final = "X-SkeletonHunter-Action"
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
# What a browser needs to ask for the token, and what a supervisor asks.
OPEN_PATHS: Final = ("/login", "/healthz", "/readyz", "/static/style.css", "/static/icon.svg")
# A line of a token file that says whose a token is.
_NAMED: Final = re.compile(r"([\w.@+-]{1,100}):\s+(\S.*)")
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
class Login:
    """A token, and whose it is; None: of all who know it."""

    token: str
    name: str | None = None

    @property
    def cookie(self) -> str:
        """What a browser shows once it has given the token: not the token itself."""
        return hashlib.sha256(f"skeletonhunter page {self.token}".encode()).hexdigest()


def logins_of(text: str) -> tuple[Login, ...]:
    r"""Return the tokens of a file: one on each line, with `NAME: ` before one that is somebody's.

    >>> [(login.name, login.token) for login in logins_of("ann: s3cret\nother one\n")]
    [('ann', 's3cret'), (None, 'other one')]
    """
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        named = _NAMED.fullmatch(line)
        found.append(Login(token=line) if named is None else Login(name=named[1], token=named[2]))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may look.

    Attributes
    ----------
    logins
        Of which a browser must know one; none: whoever reaches the address.
    hosts
        Names under which the page is asked for; an empty tuple takes any. On loopback without a
        token a foreign page could else reach this one under a name of its own (DNS rebinding).
    tls
        Whether the page is served over TLS.
    """

    logins: tuple[Login, ...] = ()
    hosts: tuple[str, ...] = ()
    tls: bool = False

    def login(self, given: str) -> Login | None:
        """Return whose token somebody gave; None: nobody's."""
        return _first(self.logins, lambda login: login.token, given)

    def who(self, headers: Headers) -> Login | None:
        """Return by which login a request comes; None: by none."""
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        return self.login(bearer) or _first(self.logins, lambda login: login.cookie, cookie)

    def lets_in(self, headers: Headers) -> bool:
        """Return whether a request comes from somebody who may look."""
        return not self.logins or self.who(headers) is not None

    def is_host(self, headers: Headers) -> bool:
        """Return whether the page is asked for under a name of its own."""
        if not self.hosts:
            return True
        name = re.sub(r":\d+$", "", headers.get("host", ""))
        return name.lower() in self.hosts


def foreign(headers: Headers, *, tls: bool) -> str | None:
    """Return why a request to act is not from the page itself; None: it is.

    A browser tells where a request comes from, and no page of another origin can set a header of
    its own without being allowed to, which nobody is here.
    """
    own = f"{'https' if tls else 'http'}://{headers.get('host', '')}"
    origin = headers.get("origin")
    if origin is None:
        return "it has no header Origin"
    if origin.lower() != own.lower():
        return f"it comes from {origin}, and this page is {own}"
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return f"its Sec-Fetch-Site is {headers['sec-fetch-site']}"
    if ACTION_HEADER not in headers:
        return f"it has no header {ACTION_HEADER}"
    return None


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


def _first(logins: Iterable[Login], secret: Callable[[Login], str], given: str) -> Login | None:
    """Return the login with a secret; how long that takes does not tell how near it was."""
    same = [hmac.compare_digest(secret(one).encode(), given.encode()) for one in logins]
    return next((one for one, fits in zip(logins, same, strict=True) if fits), None)


def faults_of(host: str, *, tls: bool, logins: Sequence[Login]) -> Iterable[str]:
    """Yield what is wrong with serving at an address."""
    for login in logins:
        if len(login.token) < MIN_TOKEN_CHARS:
            whose = "the token" if login.name is None else f"the token of {login.name}"
            yield (
                f"{whose} has {len(login.token)} characters; it needs {MIN_TOKEN_CHARS}, such as "
                "`openssl rand -hex 32` writes"
            )
    if max(Counter(login.token for login in logins).values(), default=0) > 1:
        yield "two lines of the token file have one token: nobody could tell who came"
    if is_loopback(host):
        return
    if not tls:
        yield f"--listen {host} is reached from other machines: it needs --tls-cert and --tls-key"
    if not logins:
        yield f"--listen {host} is reached from other machines: it needs --token-file"
