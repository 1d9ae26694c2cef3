"""Posts to a target, and says what became of it.

Certificates are checked, always. Redirects are not followed: what is sent is meant for one address.
"""

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from schemas.process.settings import ConfigError

# What the target says of a record that it can never take: trying it again is of no use.
# 401, 403 and 404 are not among them: somebody corrects the key or the address.
HOPELESS: Final = frozenset({400, 410, 413, 422})
MAX_ANSWER_BYTES: Final = 512
# Of what is asked for: a list of some thousand silences.
MAX_ASKED_BYTES: Final = 16 * 2**20


class Outcome(Enum):
    """What became of a delivery."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of it, and why; `body` is what was asked for."""

    outcome: Outcome
    reason: str = ""
    body: bytes = b""


class _NoRedirect(HTTPRedirectHandler):
    """Turns a redirect into an error."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


class Client:
    """Posts to addresses, with one set of trusted certificates.

    Raises
    ------
    ConfigError
        If `ca_file` cannot be used.
    """

    def __init__(self, *, timeout_s: float, ca_file: str | None = None) -> None:
        self._timeout_s = timeout_s
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"ca_file {ca_file}: {error.strerror or error}") from error
        self._opener = build_opener(_NoRedirect(), HTTPSHandler(context=context))

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post, and return what became of it; the reason holds nothing that was sent."""
        return self._send(Request(url, data=body, headers=dict(headers), method="POST"))  # noqa: S310

    def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Ask for what is at an address."""
        return self._send(Request(url, headers=dict(headers)), MAX_ASKED_BYTES)  # noqa: S310

    def delete(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Have what is at an address deleted."""
        return self._send(Request(url, headers=dict(headers), method="DELETE"))  # noqa: S310

    def _send(self, request: Request, most: int = MAX_ANSWER_BYTES) -> Answer:
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                found = response.read(most)
        except HTTPError as error:
            with error:
                said = error.read(MAX_ANSWER_BYTES).decode(errors="replace").strip()
            reason = f"HTTP {error.code} {said}".strip()
            return Answer(Outcome.REFUSED if error.code in HOPELESS else Outcome.FAILED, reason)
        except URLError as error:
            return Answer(Outcome.FAILED, str(error.reason))
        except (OSError, http.client.HTTPException) as error:
            return Answer(Outcome.FAILED, str(error) or type(error).__name__)
        return Answer(Outcome.DELIVERED, body=found)
