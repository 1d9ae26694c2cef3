"""Tells the service manager that the agent runs: sd_notify(3), one datagram for each message."""

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final

from probers.clock import Every

# Twice within the time that the manager waits, as sd_watchdog_enabled(3) asks for; once
# more, since a turn of the loop may be late.
FEEDS: Final = 3
MAX_STATUS_CHARS: Final = 200


class Notifier:
    """Sends to the socket of the environment; without one, all of it does nothing."""

    def __init__(self, environment: Mapping[str, str], now_ns: int, slack_ns: int = 0) -> None:
        self._address = socket_address(environment.get("NOTIFY_SOCKET", ""))
        self._socket: socket.socket | None = None
        watchdog_ns = watchdog_of(environment, os.getpid())
        self._feed = (
            None
            if self._address is None or watchdog_ns is None
            else Every(watchdog_ns // FEEDS, now_ns, slack_ns)
        )
        if self._address is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    def ready(self) -> None:
        """Say that the loop begins."""
        self._say("READY=1")

    def status(self, text: str) -> None:
        """Say in a sentence how the agent is."""
        line = " ".join(text[:MAX_STATUS_CHARS].split())
        self._say(f"STATUS={line}")

    def feed(self, now_ns: int) -> None:
        """Say that the loop turns, when it is time."""
        if self._feed is not None and self._feed.take(now_ns):
            self._say("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the agent leaves."""
        self._say("STOPPING=1")

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _say(self, line: str) -> None:
        if self._socket is None or self._address is None:
            return
        # A manager that is restarting, or busy, is told the next time.
        with contextlib.suppress(OSError):
            self._socket.sendto(line.encode(), self._address)


def socket_address(name: str) -> str | None:
    r"""Return the address of a notification socket; None: there is none that we can speak to.

    >>> socket_address("/run/systemd/notify"), socket_address("@name"), socket_address("vsock:2:1")
    ('/run/systemd/notify', '\x00name', None)
    """
    if name.startswith("/"):
        return name
    return "\0" + name[1:] if name.startswith("@") and len(name) > 1 else None


def watchdog_of(environment: Mapping[str, str], pid: int) -> int | None:
    """Return how long the manager waits for a sign, ns; None: it does not wait for this process.

    >>> watchdog_of({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 7)
    30000000000
    """
    text, of = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not (text.isascii() and text.isdecimal() and len(text) < 16) or of not in ("", str(pid)):
        return None
    return int(text) * 1000 or None
