"""Agents as their heartbeats show them."""

from dataclasses import dataclass, replace
from typing import Final

from schemas.enums import AgentState
from schemas.records import Heartbeat
from schemas.units import MS_NS, US_PER_MS

# Drops and rates are told over a minute: a burst is still there when somebody looks.
RATE_WINDOW_MS: Final = 60_000
# Heartbeats that are kept for that, one in ten seconds and the one before them.
EARLIER_STEP_MS: Final = 10_000
MAX_EARLIER: Final = RATE_WINDOW_MS // EARLIER_STEP_MS + 1
# Three missed heartbeats, as the localizer's veto; never less than five seconds.
SILENT_INTERVALS: Final = 3
SILENT_MIN_MS: Final = 5_000
# A heartbeat of an earlier incarnation shortly after one of a later one: two processes, one id.
TWIN_MS: Final = 60_000


def silent_after_ms(beat: Heartbeat) -> int:
    """Return for how long an agent may say nothing after a heartbeat."""
    return max(SILENT_MIN_MS, SILENT_INTERVALS * beat.interval_ns // MS_NS)


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat and when the broker took it, in milliseconds since the epoch."""

    record: Heartbeat
    arrived_ms: int

    @property
    def delay_ms(self) -> int:
        """Arrival by the broker's clock minus sending by the agent's."""
        return self.arrived_ms - self.record.sent_at // US_PER_MS


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent.

    Attributes
    ----------
    beat
        Its last heartbeat.
    earlier
        Some of the last minute, the oldest first.
    twin_ms
        When a heartbeat of an earlier incarnation last came after one of a later; None: never.
    """

    beat: Beat
    earlier: tuple[Beat, ...] = ()
    twin_ms: int | None = None

    def with_beat(self, beat: Beat) -> "AgentView":
        """Return the agent after one more heartbeat."""
        last = self.beat
        if beat.record.incarnation < last.record.incarnation:
            return replace(self, twin_ms=beat.arrived_ms)
        earlier = self.earlier
        if beat.record.incarnation != last.record.incarnation:
            earlier = ()
        elif not earlier or last.arrived_ms - earlier[-1].arrived_ms >= EARLIER_STEP_MS:
            earlier = (*earlier, last)[-MAX_EARLIER:]
        return AgentView(beat, earlier, self.twin_ms)

    def silent_ms(self, now_ms: int) -> int | None:
        """Return since when it has been silent for too long; None: it is not, or it has left.

        Counted from the arrival of its last heartbeat, so that no clock but the broker's matters.
        """
        record = self.beat.record
        if record.state is AgentState.LEAVING:
            return None
        age_ms = now_ms - self.beat.arrived_ms
        return age_ms if age_ms > silent_after_ms(record) else None

    def twin(self, now_ms: int) -> bool:
        """Return whether two processes seem to send under this id."""
        return self.twin_ms is not None and now_ms - self.twin_ms < TWIN_MS

    def lately(self, counter: str) -> int:
        """Return by how much a counter of its heartbeats grew in the last minute or so."""
        now: int = getattr(self.beat.record, counter)
        if not self.earlier:
            return 0
        since_ms = self.beat.arrived_ms - RATE_WINDOW_MS - EARLIER_STEP_MS
        first = next((b for b in self.earlier if b.arrived_ms >= since_ms), None)
        before: int = now if first is None else getattr(first.record, counter)
        return max(0, now - before)
