"""Tells supervisors that the agent lives: the service manager and HTTP clients.

The service manager gets datagrams as sd_notify(3) describes them, and watches over the loop if it
has a watchdog.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from probers.clock import Instant, IntervalTimer
from probers.config.health import HealthAddress
from probers.health.answers import Health
from schemas.enums import AgentState
from schemas.records import Heartbeat

if TYPE_CHECKING:
    from probers.health.server import HealthServer

# The longest turn is reported for this long.
SHOWN_NS: Final = 60 * 10**9
# Twice within the time that the manager waits, as sd_watchdog_enabled(3) asks for; once
# more, since a turn of the loop may be late.
FEEDS: Final = 3
MAX_STATUS_CHARS: Final = 200


class Notifier:
    """Sends messages of sd_notify(3) to the socket in the environment; without one, nothing."""

    def __init__(self, environment: Mapping[str, str], now_ns: int, slack_ns: int = 0) -> None:
        self._address = socket_address(environment.get("NOTIFY_SOCKET", ""))
        self._socket: socket.socket | None = None
        watchdog_ns = watchdog_of(environment, os.getpid())
        self._feed = (
            None
            if self._address is None or watchdog_ns is None
            else IntervalTimer(watchdog_ns // FEEDS, now_ns, slack_ns)
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
        """Feed the manager's watchdog when it is time."""
        if self._feed is not None and self._feed.expired(now_ns):
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
        # A manager that is restarting or busy gets the next message.
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


class LoopTurns:
    """The longest time between two turns of the loop, in this minute or the one before."""

    def __init__(self, now_ns: int) -> None:
        self._last_ns = now_ns
        self._since_ns = now_ns
        self._before_ns = 0
        self._longest_ns = 0

    @property
    def longest_ns(self) -> int:
        """How long the longest was."""
        return max(self._longest_ns, self._before_ns)

    def observe_turn(self, now_ns: int) -> None:
        """Record the end of a turn."""
        if now_ns - self._since_ns > SHOWN_NS:
            self._since_ns, self._before_ns, self._longest_ns = now_ns, self._longest_ns, 0
        self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
        self._last_ns = now_ns


class Supervision:
    """Answers questions about health, and gives the service manager signs of life.

    Raises
    ------
    OSError
        If the agent cannot listen at its address for health.
    """

    def __init__(
        self,
        agent_id: str,
        address: HealthAddress | None,
        environment: Mapping[str, str],
        now: Instant,
        slack_ns: int = 0,
    ) -> None:
        self._agent_id = agent_id
        self._turns = LoopTurns(now.monotonic_ns)
        self._server = _server(address)
        self._notifier = Notifier(environment, now.monotonic_ns, slack_ns)
        self._state = AgentState.STARTING
        self._reason: str | None = None

    def started(self) -> None:
        """Say that the loop begins; Kafka is not waited for."""
        self._notifier.ready()

    def serve(self, now: Instant, missing: Callable[[], list[str]]) -> None:
        """Answer, and give a sign of life; `missing` returns what keeps it from being ready."""
        self._turns.observe_turn(now.monotonic_ns)
        self._notifier.feed(now.monotonic_ns)
        if self._server is not None:
            self._server.serve(now.monotonic_ns, lambda: self._health(missing()))

    def beaten(self, heartbeat: Heartbeat) -> None:
        """Process a heartbeat: a new state is shown as the service's status."""
        known = (self._state, self._reason)
        self._state, self._reason = heartbeat.state, heartbeat.state_reason
        if (self._state, self._reason) != known:
            state = self._state.value
            self._notifier.status(f"{state}: {self._reason}" if self._reason else state)

    def leaving(self) -> None:
        """Say that the agent leaves."""
        self._notifier.stopping()

    def close(self) -> None:
        """Close all sockets."""
        self._notifier.close()
        if self._server is not None:
            self._server.close()

    def _health(self, missing: list[str]) -> Health:
        return Health(
            agent_id=self._agent_id,
            state=self._state.value,
            missing=tuple(missing),
            notes=tuple(self._reason.split("; ")) if self._reason else (),
            longest_turn_ns=self._turns.longest_ns,
        )


def _server(address: HealthAddress | None) -> "HealthServer | None":
    if address is None:
        return None
    from probers.health.server import HealthServer  # noqa: PLC0415 - loaded only where wanted

    return HealthServer(address)
