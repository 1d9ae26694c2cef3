"""Ranks: where each rank of a job stands in each of its communicators, and who waits for whom.

Ranks that stand at the same place are one row where there are many, so that a job of ten thousand
is a page and no more.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from localizer.collectives.ranges import rank_text
from localizer.collectives.rank_state import RankState
from localizer.collectives.usual_waits import READ_TWICE_US
from ops.view.cluster import ClusterView
from ops.view.job_ranks import JobNow
from ops.view.standing import Absent, Standing, standings
from ops.web.pages.job import chosen_task
from ops.web.pages.page import Document, Page, Params, Wanted, without_none
from schemas.enums import FaultLifecycle
from schemas.ids import rank_key
from schemas.records import Hang
from schemas.units import MS_NS, US_PER_MS

# Rows of a screen or two. Of so many ranks each has a row of its own.
MAX_ROWS: Final = 64
# Tensor, pipeline, data, expert and context parallelism, and what a job makes beside them.
MAX_COLUMNS: Final = 12
# Names and texts are whoever's who writes to the topics.
MAX_NAME: Final = 80
MAX_TEXT: Final = 400
MAX_LINES: Final = 12
HOSTS_NAMED: Final = 3
MAX_FAULTS: Final = 8
SECOND_MS: Final = 1_000


def document(view: ClusterView, params: Params, now_ms: int) -> Document:
    """Return where the ranks of a job stand.

    Parameters
    ----------
    params
        As of the page Job; `host` shows the ranks of these hosts alone.
    """
    task_id = chosen_task(view, params).task_id
    found = view.ranks.get(task_id)
    if found is None or not (found.job.ranks or found.hang):
        return {"rows": {}, "missing": view.ranks.missing or ""}
    job = found.job
    part = params.get("host", "").lower()
    states = [s for _, s in sorted(job.ranks.items()) if part in s.batch.host_id.lower()]
    rows = _Table(found, now_ms).rows(states)
    return without_none(
        {
            "heard": len(job.ranks),
            "world_size": job.world_size,
            "communicators": len(job.communicators),
            "undecodable": found.undecodable or None,
            "mixed": job.mixed(now_ms * MS_NS),
            "hang": None if found.hang is None else _hang(view, found.hang),
            **rows,
        }
    )


def _hang(view: ClusterView, hang: Hang) -> Document:
    own = (
        h.last.fault_id
        for h in view.faults.open()
        if any(rank_key(rank)[0] == hang.task_id for rank in h.last.ranks[:1])
    )
    return without_none(
        {
            "open": hang.state is not FaultLifecycle.RESOLVED,
            "class": hang.hang_class.value,
            "certainty": hang.certainty.value,
            "since_ms": hang.onset_at // US_PER_MS,
            "at_ms": hang.event_at // US_PER_MS,
            "summary": hang.summary[:MAX_TEXT],
            "culprits": rank_text(hang.ranks)[:MAX_TEXT] if hang.ranks else None,
            "waiting": rank_text(hang.waiting_ranks)[:MAX_TEXT] if hang.waiting_ranks else None,
            "evidence": [text[:MAX_TEXT] for text in hang.evidence[:MAX_LINES]],
            "next": [text[:MAX_TEXT] for text in hang.next_steps[:MAX_LINES]],
            "faults": [name for _, name in zip(range(MAX_FAULTS), own, strict=False)],
        }
    )


@dataclass(slots=True)
class _Cell:
    """What the ranks of a row do in the communicators of a column."""

    waits_in: str | None
    waits_at: int | None
    absent: tuple[int, ...] | None
    groups: set[str] = field(default_factory=set)
    launched: list[int] = field(default_factory=list)
    waited_us: int | None = None

    def add(self, one: Standing) -> None:
        self.groups.add(one.name)
        self.launched.append(one.launched)
        if one.waited_us is not None:
            self.waited_us = max(self.waited_us or 0, one.waited_us)

    def document(self) -> Document:
        name = min(self.groups)[:MAX_NAME]
        more = len(self.groups) - 1
        waits = self.waits_in
        return without_none(
            {
                "group": name if not more else f"{name} and {more} more",
                "launched": _span(self.launched),
                "waits_in": None if waits is None else waits[:MAX_NAME],
                "waits_at": self.waits_at,
                "waited_s": None if self.waited_us is None else round(self.waited_us / 1e6, 1),
                "for": rank_text(self.absent)[:MAX_TEXT] if self.absent else None,
                "all_launched": True if self.absent == () else None,
            }
        )


# What ranks have in common that share a row.
_Place = tuple[object, ...]


class _Table:
    """Rows of ranks, columns of communicators of one kind."""

    def __init__(self, found: JobNow, now_ms: int) -> None:
        self._job = found.job
        self._now_ns = now_ms * MS_NS
        hang = found.hang
        is_open = hang is not None and hang.state is not FaultLifecycle.RESOLVED
        self._culprits = frozenset(hang.ranks) if hang is not None and is_open else frozenset()
        self._absent = Absent(found.job)

    def rows(self, states: list[RankState]) -> Document:
        """Return rows, columns, and what is left out."""
        fold = len(states) > MAX_ROWS
        places: defaultdict[_Place, list[RankState]] = defaultdict(list)
        cells: dict[_Place, dict[str, _Cell]] = {}
        columns: Counter[str] = Counter()
        for state in states:
            own = [(self._column(one.name), one) for one in standings(state)]
            columns.update({column for column, _ in own})
            place = self._place(state, own) if fold else (state.rank,)
            places[place].append(state)
            self._add(cells.setdefault(place, {}), own)
        ordered = sorted(places, key=lambda place: self._order(places[place], cells[place]))
        shown = sorted(ordered[:MAX_ROWS], key=lambda place: places[place][0].rank)
        if fold:
            shown = ordered[:MAX_ROWS]
        names = [name for name, _ in columns.most_common(MAX_COLUMNS)]
        names.sort()
        left = ordered[MAX_ROWS:]
        return {
            "columns": names,
            "columns_left": len(columns) - len(names),
            "rows": {
                str(places[place][0].rank): {
                    # A document's keys have no order once they are patched.
                    "order": order,
                    **self._row(places[place], cells[place], names),
                }
                for order, place in enumerate(shown)
            },
            "rows_left": len(left),
            "ranks_left": sum(len(places[place]) for place in left),
        }

    def _column(self, name: str) -> str:
        known = self._job.communicators.get(name)
        return ((known.description if known is not None else None) or name)[:MAX_NAME]

    def _process(self, state: RankState) -> str:
        return "unheard" if state.is_silent(self._now_ns) else state.process_state.value.lower()

    def _waits(self, one: Standing) -> bool:
        """Return whether it is seen to wait, and not only caught between two operations."""
        return one.waits_in is not None and (one.waited_us or 0) >= READ_TWICE_US

    def _place(self, state: RankState, own: Iterable[tuple[str, Standing]]) -> _Place:
        """Return where a rank stands: what goes on is alike, however far it came."""
        return (
            state.rank in self._culprits,
            self._process(state),
            *(
                # Thousands may be absent: an id tells them apart as well.
                (column, one.waits_in, one.waits_at, id(self._absent.of(one)))
                if self._waits(one)
                else column
                for column, one in own
            ),
        )

    def _add(self, cells: dict[str, _Cell], own: Iterable[tuple[str, Standing]]) -> None:
        for column, one in own:
            waits = self._waits(one)
            cell = cells.get(column)
            if cell is None or (waits and cell.waits_in is None):
                before = cell
                absent = self._absent.of(one) if waits else None
                cell = cells[column] = _Cell(
                    one.waits_in if waits else None, one.waits_at if waits else None, absent
                )
                if before is not None:
                    cell.groups, cell.launched = before.groups, before.launched
            cell.add(one if waits else _going_on(one))

    def _order(self, held: list[RankState], cells: dict[str, _Cell]) -> tuple[bool, bool, int, int]:
        """Return what orders rows: culprits, those not heard or stopped, who waits longest."""
        odd = self._process(held[0]) not in {"running", "sleeping", "disk"}
        longest = max((cell.waited_us or 0 for cell in cells.values()), default=0)
        return held[0].rank not in self._culprits, not odd, -longest, held[0].rank

    def _row(self, held: list[RankState], cells: dict[str, _Cell], names: list[str]) -> Document:
        hosts = sorted({state.batch.host_id for state in held})
        ranks = [state.rank for state in held]
        silent = min(self._now_ns - state.arrived_ns for state in held)
        process = self._process(held[0])
        return without_none(
            {
                "ranks": rank_text(ranks)[:MAX_TEXT],
                "count": len(ranks),
                "hosts": [name[:MAX_NAME] for name in hosts[:HOSTS_NAMED]],
                "hosts_left": max(0, len(hosts) - HOSTS_NAMED),
                "culprit": True if held[0].rank in self._culprits else None,
                "process": process,
                "silent_s": silent // MS_NS // SECOND_MS if process == "unheard" else None,
                "reason": _reason(held),
                "cells": {name: cells[name].document() for name in names if name in cells},
            }
        )


def _reason(held: list[RankState]) -> str | None:
    """Return why the operations of some ranks are not known; None: they are."""
    reasons = {s.batch.missing_reason for s in held if s.batch.missing_reason is not None}
    return min(reasons)[:MAX_TEXT] if reasons else None


def _going_on(one: Standing) -> Standing:
    return Standing(name=one.name, launched=one.launched, done=one.done)


def _span(numbers: list[int]) -> str:
    first, last = min(numbers), max(numbers)
    return str(first) if first == last else f"{first}–{last}"


def wanted(view: ClusterView, params: Params) -> Wanted:
    """Return whose ranks are shown."""
    return Wanted(jobs=(chosen_task(view, params).task_id,))


RANKS: Final = Page(name="ranks", document=document, least_gap_s=2.0, wanted=wanted)
