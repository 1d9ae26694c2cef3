"""Faults and their transitions, folded from `fault.event.v1` and `fault.state.v1`."""

from dataclasses import dataclass, fields, replace
from typing import Final

from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent, FaultState

# Transitions kept of one fault: one that flaps once a minute has as many in a shift.
MAX_TRANSITIONS: Final = 1_000
# Faults that are remembered. The largest storm of the benchmarks opens 2,000.
MAX_FAULTS: Final = 10_000
# A state has the fields of its event, and no more.
FIELDS: Final = tuple(field.name for field in fields(FaultEvent))


@dataclass(frozen=True, slots=True)
class FaultHistory:
    """One fault and what has become known of it, transition by transition.

    Attributes
    ----------
    transitions
        By `seq`, from 1 on; the last one is its present state. `fault.state.v1` alone tells no
        earlier ones.
    dropped
        How many between the first and the others were dropped, so that the rest stays bounded.
    withdrawn
        A tombstone took its state away: it is over, whatever its last transition says.
    """

    transitions: tuple[FaultEvent, ...]
    dropped: int = 0
    withdrawn: bool = False

    @property
    def last(self) -> FaultEvent:
        """Its present state."""
        return self.transitions[-1]

    @property
    def open(self) -> bool:
        """Whether it is neither resolved nor withdrawn."""
        return not self.withdrawn and self.last.state is not FaultLifecycle.RESOLVED

    @property
    def missing(self) -> int:
        """How many transitions up to the present state are not here."""
        return max(0, self.last.seq - len(self.transitions))

    def spans(self) -> list[tuple[int, int | None]]:
        """Return from when to when it was open, microseconds; the last end is None while it is."""
        found: list[tuple[int, int | None]] = []
        for event in self.transitions:
            over = event.state is FaultLifecycle.RESOLVED
            if not over and (not found or found[-1][1] is not None):
                found.append((event.event_at if found else event.onset_at, None))
            elif over:
                # Of a fault whose beginning is not known here the transition says when it was.
                begin = found.pop()[0] if found and found[-1][1] is None else event.onset_at
                found.append((begin, event.event_at))
        if self.withdrawn and found and found[-1][1] is None:
            found[-1] = (found[-1][0], self.last.event_at)
        return found

    def flaps_at(self, at_us: int) -> int:
        """Return how often it had come back by then, as far as its transitions here say."""
        return max((e.flaps for e in self.transitions if e.event_at <= at_us), default=0)

    def with_event(self, event: FaultEvent) -> "FaultHistory":
        """Return the history with one more transition; one that is known changes nothing."""
        if any(known.seq == event.seq for known in self.transitions):
            return self
        kept = sorted((*self.transitions, event), key=lambda known: known.seq)
        dropped = self.dropped
        if len(kept) > MAX_TRANSITIONS:
            # The first says how it began; of the rest the latest matter.
            del kept[1]
            dropped += 1
        return FaultHistory(tuple(kept), dropped, self.withdrawn)


class FaultBook:
    """All faults that are known, by id."""

    def __init__(self) -> None:
        self._histories: dict[str, FaultHistory] = {}
        # Ids without a state by now; of some of them transitions may still come in.
        self._withdrawn: set[str] = set()
        self.dropped = 0

    def add(self, event: FaultEvent) -> None:
        """Take a transition of `fault.event.v1`."""
        known = self._histories.get(event.fault_id)
        if known is not None:
            self._histories[event.fault_id] = known.with_event(event)
            return
        gone = event.fault_id in self._withdrawn
        self._histories[event.fault_id] = FaultHistory((event,), withdrawn=gone)
        if len(self._histories) > MAX_FAULTS:
            self._drop_oldest()

    def add_state(self, state: FaultState) -> None:
        """Take the present state of a fault, of `fault.state.v1`: its last transition."""
        self._withdrawn.discard(state.fault_id)
        self.add(FaultEvent(**{name: getattr(state, name) for name in FIELDS}))
        known = self._histories.get(state.fault_id)
        if known is not None and known.withdrawn:
            self._histories[state.fault_id] = replace(known, withdrawn=False)

    def withdraw(self, fault_id: str) -> None:
        """Note that the state of a fault was taken away."""
        if len(self._withdrawn) < MAX_FAULTS:
            self._withdrawn.add(fault_id)
        known = self._histories.get(fault_id)
        if known is not None:
            self._histories[fault_id] = replace(known, withdrawn=True)

    def get(self, fault_id: str) -> FaultHistory | None:
        """Return a fault; None if nothing is known of it."""
        return self._histories.get(fault_id)

    def open(self) -> list[FaultHistory]:
        """Return the faults that are open, the latest first."""
        return sorted((h for h in self._histories.values() if h.open), key=_latest_first)

    def over(self) -> list[FaultHistory]:
        """Return the faults that are over, what changed last first."""
        return sorted((h for h in self._histories.values() if not h.open), key=_changed_first)

    def __len__(self) -> int:
        return len(self._histories)

    def copy(self) -> "FaultBook":
        """Return a book with the same faults that changes by itself."""
        other = FaultBook()
        other._histories = self._histories.copy()
        other._withdrawn = self._withdrawn.copy()
        other.dropped = self.dropped
        return other

    def _drop_oldest(self) -> None:
        over = self.over()
        least = over[-1] if over else self.open()[-1]
        del self._histories[least.last.fault_id]
        self.dropped += 1


def _latest_first(history: FaultHistory) -> tuple[int, str]:
    return (-history.last.opened_at, history.last.fault_id)


def _changed_first(history: FaultHistory) -> tuple[int, str]:
    return (-history.last.event_at, history.last.fault_id)
