"""Decides what is paged: transitions, silences, notes and time in, notifications out.

A function of records and of the times at which the broker took them: a replay of the topics gives
the same notifications, and so does a process that starts again.

* A fault that is open, severe enough, neither silenced nor closed has a page.
* A fault that resolves keeps its page for the hold time, since it may come back: one that flaps
  pages once, and its updates say how often.
* Where many faults begin together, all but the first few share a page: a storm.
* A silence ends the page and does not touch the fault; if it ends first, the page comes back.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ops.bridge.paging.labels import Owner, is_silenced, rank
from ops.bridge.paging.page import (
    STORM,
    Action,
    Notification,
    Page,
    Position,
    labels_of,
    storm_labels,
)
from schemas.enums import FaultLifecycle, NoteAction
from schemas.records import FaultEvent, IncidentNote, Silence
from schemas.units import US_PER_S

RESOLVED: Final = "resolved"
SILENCED: Final = "silenced"
CLOSED: Final = "closed"
BELOW: Final = "less severe"
# Pages that ended are kept this long for targets that are told of the end again and again.
KEEP_ENDED_US: Final = 900 * US_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PagerConfig:
    """What is paged.

    Attributes
    ----------
    least_severity
        Faults below it are not paged.
    hold_us
        How long a fault that resolved keeps its page.
    storm_faults, storm_us
        So many new faults within this time have pages of their own; more share one.
    owners
        Routes, the first that fits counts.
    """

    least_severity: str = "warning"
    hold_us: int = 60 * US_PER_S
    storm_faults: int = 5
    storm_us: int = 60 * US_PER_S
    owners: tuple[Owner, ...] = ()


@dataclass(slots=True)
class _Known:
    """A fault, and what is known about it.

    Attributes
    ----------
    held_us
        Until when it keeps its page although it resolved; None: it did not, or has none.
    closed
        Its flaps when somebody closed it; None: nobody did.
    """

    event: FaultEvent
    page_id: str | None = None
    held_us: int | None = None
    closed: int | None = None
    acknowledged_by: str | None = None

    @property
    def open(self) -> bool:
        """Whether it is open."""
        return self.event.state is not FaultLifecycle.RESOLVED


@dataclass(slots=True)
class _Draft:
    """A page and the ids of its faults, in order."""

    page: Page
    members: dict[str, None] = field(default_factory=dict)


class Pager:
    """All that is known, and the pages that follow from it."""

    def __init__(self, config: PagerConfig) -> None:
        self.now_us = 0
        self._config = config
        self._number = 0
        self._faults: dict[str, _Known] = {}
        self._silences: dict[str, Silence] = {}
        self._pages: dict[str, _Draft] = {}
        self._ended: deque[Page] = deque()
        self._begun: deque[int] = deque()
        self._storm: str | None = None

    def firing(self) -> list[Page]:
        """Return the pages that have not ended, oldest first."""
        return [draft.page for draft in self._pages.values()]

    def ended(self) -> list[Page]:
        """Return the pages that ended lately and have not begun again."""
        return [page for page in self._ended if page.page_id not in self._pages]

    def silences(self) -> list[Silence]:
        """Return the silences that are in force or planned."""
        return [s for _, s in sorted(self._silences.items()) if s.until_at > self.now_us]

    def silenced(self) -> int:
        """Return how many open faults are silenced."""
        return sum(known.open and self._is_silenced(known) for known in self._faults.values())

    def apply_fault(self, event: FaultEvent, at_us: int) -> list[Notification]:
        """Apply a transition; an old one, such as of a log that is read again, changes nothing."""
        told = self.advance(at_us)
        known = self._faults.get(event.fault_id)
        if known is not None and event.seq <= known.event.seq:
            return told
        if known is None:
            known = self._faults[event.fault_id] = _Known(event)
        else:
            known.event = event
        if known.open:
            known.held_us = None
        elif known.page_id is not None:
            known.held_us = self.now_us + self._config.hold_us
        silenced = self._is_silenced(known)
        changed = self._settle(known)
        page, action = changed or (None, None)
        told.append(
            Notification(
                position=self._next(), transition=event, silenced=silenced, page=page, action=action
            )
        )
        self._forget(known)
        return told

    def apply_silence(
        self, silence_id: str, silence: Silence | None, at_us: int
    ) -> list[Notification]:
        """Apply a silence, or its tombstone."""
        told = self.advance(at_us)
        if silence is None:
            self._silences.pop(silence_id, None)
        else:
            self._silences[silence_id] = silence
        over = [name for name, s in self._silences.items() if s.until_at <= self.now_us]
        for name in over:
            del self._silences[name]
        return told + list(self._settle_all())

    def apply_note(self, note: IncidentNote, at_us: int) -> list[Notification]:
        """Apply what somebody did about a fault; of a fault that is not known nothing."""
        told = self.advance(at_us)
        known = self._faults.get(note.fault_id)
        if known is None:
            return told
        if note.action is NoteAction.CLOSE:
            known.closed = known.event.flaps
        elif note.action is NoteAction.ACKNOWLEDGE:
            known.acknowledged_by = note.author
            draft = self._pages.get(known.page_id or "")
            if draft is not None and draft.page.acknowledged_by is None:
                draft.page = replace(draft.page, acknowledged_by=note.author)
                told.append(self._notification((draft.page, Action.ACKNOWLEDGE)))
        return told + list(self._notified([known]))

    def advance(self, to_us: int) -> list[Notification]:
        """Let time pass: holds and silences end, silences begin."""
        told: list[Notification] = []
        while (edge_us := self._next_edge_us()) is not None and edge_us <= to_us:
            self._set_now(edge_us)
            told += self._settle_all()
        self._set_now(max(to_us, self.now_us))
        return told

    def _set_now(self, now_us: int) -> None:
        if now_us > self.now_us:
            self.now_us, self._number = now_us, 0
        while self._ended and self._ended[0].ended_us is not None and (
            self._ended[0].ended_us + KEEP_ENDED_US < now_us
        ):  # fmt: skip
            self._ended.popleft()

    def _next_edge_us(self) -> int | None:
        times = [k.held_us for k in self._faults.values() if k.held_us is not None]
        for silence in self._silences.values():
            times += (silence.from_at, silence.until_at)
        return min((at_us for at_us in times if at_us > self.now_us), default=None)

    def _settle_all(self) -> Iterator[Notification]:
        """Settle every fault."""
        yield from self._notified(list(self._faults.values()))

    def _notified(self, faults: Iterable[_Known]) -> Iterator[Notification]:
        for known in faults:
            changed = self._settle(known)
            if changed is not None:
                yield self._notification(changed)
            self._forget(known)

    def _settle(self, known: _Known) -> tuple[Page, Action] | None:
        """Bring a fault's page up to date; return what is to be told."""
        reason = self._unwanted(known)
        if reason is None:
            return self._open(known) if known.page_id is None else self._update(known)
        known.held_us = None
        return None if known.page_id is None else self._leave(known, reason)

    def _unwanted(self, known: _Known) -> str | None:
        """Return why a fault has no page, None if it has one."""
        if not known.open and (known.held_us is None or known.held_us <= self.now_us):
            return RESOLVED
        if known.closed is not None and known.event.flaps <= known.closed:
            return CLOSED
        if rank(known.event.severity) < rank(self._config.least_severity):
            return BELOW
        return SILENCED if self._is_silenced(known) else None

    def _is_silenced(self, known: _Known) -> bool:
        return any(is_silenced(known.event, s, self.now_us) for s in self._silences.values())

    def _open(self, known: _Known) -> tuple[Page, Action]:
        """Give a fault a page."""
        while self._begun and self._begun[0] <= self.now_us - self._config.storm_us:
            self._begun.popleft()
        self._begun.append(self.now_us)
        fault_id = known.event.fault_id
        if len(self._begun) <= self._config.storm_faults:
            return self._begin(fault_id, known)
        if self._storm is None or self._storm not in self._pages:
            self._storm = f"{STORM}-{fault_id}"
            return self._begin(self._storm, known)
        known.page_id = self._storm
        draft = self._pages[self._storm]
        draft.members[fault_id] = None
        return self._redraw(draft), Action.UPDATE

    def _begin(self, page_id: str, known: _Known) -> tuple[Page, Action]:
        known.page_id = page_id
        faults = (known.event,)
        page = Page(
            page_id=page_id,
            labels=self._labels(page_id, faults),
            faults=faults,
            since_us=self.now_us,
            acknowledged_by=known.acknowledged_by,
        )
        self._pages[page_id] = _Draft(page, {known.event.fault_id: None})
        return page, Action.TRIGGER

    def _update(self, known: _Known) -> tuple[Page, Action] | None:
        """Return the page if people would read something else on it."""
        draft = self._pages[str(known.page_id)]
        before = draft.page
        page = self._redraw(draft)
        same = list(map(_essence, before.faults)) == list(map(_essence, page.faults))
        return None if same else (page, Action.UPDATE)

    def _leave(self, known: _Known, reason: str) -> tuple[Page, Action]:
        """Take a fault off its page, which ends with its last."""
        draft = self._pages[str(known.page_id)]
        known.page_id = None
        draft.members.pop(known.event.fault_id, None)
        if draft.members:
            return self._redraw(draft), Action.UPDATE
        page = replace(
            draft.page,
            faults=(known.event,),
            ended_us=self.now_us,
            end_reason=reason,
        )
        del self._pages[page.page_id]
        self._ended.append(page)
        return page, Action.RESOLVE

    def _redraw(self, draft: _Draft) -> Page:
        """Return the page with its faults as they are; its labels change if it gets worse."""
        faults = tuple(self._faults[name].event for name in draft.members)
        labels = self._labels(draft.page.page_id, faults)
        worse = rank(labels["severity"]) > rank(draft.page.labels["severity"])
        draft.page = replace(
            draft.page, faults=faults, labels=labels if worse else draft.page.labels
        )
        return draft.page

    def _labels(self, page_id: str, faults: tuple[FaultEvent, ...]) -> dict[str, str]:
        if page_id == self._storm:
            return storm_labels(faults)
        return labels_of(faults[0], self._config.owners)

    def _forget(self, known: _Known) -> None:
        """Forget a fault that is over; if it comes back it is as good as new."""
        if not known.open and known.page_id is None:
            self._faults.pop(known.event.fault_id, None)

    def _notification(self, changed: tuple[Page, Action]) -> Notification:
        page, action = changed
        return Notification(position=self._next(), page=page, action=action)

    def _next(self) -> Position:
        self._number += 1
        return Position(self.now_us, self._number)


def _essence(fault: FaultEvent) -> tuple[object, ...]:
    """Return what people would read of a fault; numbers of paths are none of it."""
    return (
        fault.fault_id, fault.component_id, fault.fault_kind, fault.severity, fault.decided,
        fault.flaps, fault.tasks,
    )  # fmt: skip
