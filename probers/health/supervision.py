"""What those are told who watch over the agent's process: a service manager, and who asks."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from probers.clock import Instant
from probers.config.health import HealthAddress
from probers.health.answers import Health
from probers.health.notify import Notifier
from schemas.enums import AgentState
from schemas.records import Heartbeat

if TYPE_CHECKING:
    from probers.health.server import HealthServer

# The longest turn is told for so long.
SHOWN_NS: Final = 60 * 10**9


class Turns:
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

    def turn(self, now_ns: int) -> None:
        """Take in a turn."""
        if now_ns - self._since_ns > SHOWN_NS:
            self._since_ns, self._before_ns, self._longest_ns = now_ns, self._longest_ns, 0
        self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
        self._last_ns = now_ns


class Supervision:
    """Health for who asks, and signs of life for the service manager.

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
        self._turns = Turns(now.monotonic_ns)
        self._server = _server(address)
        self._notifier = Notifier(environment, now.monotonic_ns, slack_ns)
        self._state = AgentState.STARTING
        self._reason: str | None = None

    def started(self) -> None:
        """Say that the loop begins; Kafka is not waited for."""
        self._notifier.ready()

    def serve(self, now: Instant, missing: Callable[[], list[str]]) -> None:
        """Answer, and give a sign of life; `missing` returns what keeps it from being ready."""
        self._turns.turn(now.monotonic_ns)
        self._notifier.feed(now.monotonic_ns)
        if self._server is not None:
            self._server.serve(now.monotonic_ns, lambda: self._health(missing()))

    def beaten(self, heartbeat: Heartbeat) -> None:
        """Take in what the agent has just told of itself."""
        known = (self._state, self._reason)
        self._state, self._reason = heartbeat.state, heartbeat.state_reason
        if (self._state, self._reason) != known:
            told = self._state.value
            self._notifier.status(f"{told}: {self._reason}" if self._reason else told)

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
