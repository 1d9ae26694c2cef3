"""The agent's duty to tell of the host's overlay tables; without settings for it, none.

Whatever reads tables is loaded only where it is wanted.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from probers.clock import Instant
from probers.config.settings import AgentConfig
from probers.host.reported import Told
from probers.lists.follower import PingListFollower
from probers.lists.registration import Registration
from probers.probing.rounds import Round
from schemas.eventlog import EventLog
from schemas.records import Endpoint, FlowEntry

if TYPE_CHECKING:
    from probers.overlay.watch import OverlayWatch

Publish = Callable[[tuple[FlowEntry, ...] | None, Instant], None]
Tell = Callable[[list[Told], Instant], None]


class OverlayDuty:
    """Hands the tables' watch what the other parts know, and publishes what it says."""

    def __init__(
        self,
        config: AgentConfig,
        cluster: str,
        *,
        follower: PingListFollower,
        registration: Registration,
        publish: Publish,
        tell: Tell,
        log: EventLog,
    ) -> None:
        self._follower = follower
        self._registration = registration
        self._publish = publish
        self._tell = tell
        self._watch = _watch(config, cluster, log)

    @property
    def trouble(self) -> str | None:
        """Why tables cannot be read; None: they can, or need not."""
        return None if self._watch is None else self._watch.trouble

    def registered(self, endpoint: Endpoint) -> None:
        """Take in a registration."""
        if self._watch is not None:
            self._watch.registered(endpoint)

    def left(self, endpoint_id: str) -> None:
        """Take in a tombstone of a registration."""
        if self._watch is not None:
            self._watch.left(endpoint_id)

    def probed(self, done: Round, now: Instant) -> None:
        """Take in a round."""
        if self._watch is not None:
            self._watch.probed(done.results(), now)

    def serve(self, now: Instant) -> None:
        """Read and publish when it is time; to be called some times a second."""
        if self._watch is not None and self._registration.probing:
            for entries, captured in self._watch.poll(self._follower.flows(), now):
                self._publish(entries, captured)
            told = self._watch.take_told()
            if told:
                self._tell(told, now)

    def leave(self, now: Instant) -> None:
        """Take back what was published: nobody renews it, and it would accuse for ever."""
        if self._watch is not None and self._watch.published and self._registration.probing:
            self._publish(None, now)

    def close(self) -> None:
        """End a reading that is under way."""
        if self._watch is not None:
            self._watch.close()


def _watch(config: AgentConfig, cluster: str, log: EventLog) -> "OverlayWatch | None":
    if config.overlay is None:
        return None
    from probers.overlay.watch import OverlayWatch  # noqa: PLC0415 - loaded only where wanted

    return OverlayWatch(config.overlay, host_id=config.host_id, cluster=cluster, log=log)
