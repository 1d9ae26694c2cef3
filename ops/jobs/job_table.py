"""Where each rank of a running job stands in each of its communicators: text and document."""

from collections.abc import Iterator
from typing import Any, Final

from localizer.collectives.ranges import rank_text
from localizer.collectives.rank_state import RankState
from ops.log.timespan import iso_us
from ops.view.job_ranks import JobNow
from ops.view.standing import Standing, standings
from ops.view.texts import visible
from schemas.enums import FaultLifecycle
from schemas.records import Hang
from schemas.units import MS_NS, SECOND_NS

# Rows of a screen; the document has all.
MAX_ROWS: Final = 64


def as_document(found: JobNow, now_ms: int) -> dict[str, Any]:
    """Return what can be written as JSON."""
    job, hang = found.job, found.hang
    return {
        "task_id": job.task_id,
        "world_size": job.world_size,
        "hangs": hang is not None and hang.state is not FaultLifecycle.RESOLVED,
        "hang": None if hang is None else _hang_document(hang),
        "communicators": [
            {
                "name": name,
                "description": known.description,
                "role": known.role.value,
                "ranks": list(known.ranks),
            }
            for name, known in sorted(job.communicators.items())
        ],
        "ranks": [_rank_document(state, now_ms) for _, state in sorted(job.ranks.items())],
        "undecodable": found.undecodable,
    }


def _hang_document(hang: Hang) -> dict[str, Any]:
    return {
        "hang_id": hang.hang_id,
        "state": hang.state.value,
        "class": hang.hang_class.value,
        "certainty": hang.certainty.value,
        "ranks": list(hang.ranks),
        "waiting_ranks": list(hang.waiting_ranks),
        "communicator": hang.communicator,
        "sequence": hang.sequence,
        "operation": hang.operation,
        "onset_at_us": hang.onset_at,
        "waited_ns": hang.waited_ns,
        "summary": hang.summary,
        "evidence": list(hang.evidence),
        "next_steps": list(hang.next_steps),
    }


def _rank_document(state: RankState, now_ms: int) -> dict[str, Any]:
    batch = state.batch
    return {
        "rank": state.rank,
        "host_id": batch.host_id,
        "endpoint_ids": list(batch.endpoint_ids),
        "pid": batch.pid,
        "process": batch.process_state.value,
        "cpu_share": state.cpu_share(),
        "heard_ms_ago": now_ms - state.arrived_ns // MS_NS,
        "missing_reason": batch.missing_reason,
        "communicators": [_standing_document(one) for one in standings(state)],
    }


def _standing_document(one: Standing) -> dict[str, Any]:
    return {
        "name": one.name,
        "launched": one.launched,
        "done": one.done,
        "waits_in": one.waits_in,
        "waited_us": one.waited_us,
    }


def as_text(found: JobNow, now_ms: int) -> Iterator[str]:
    """Yield lines for people; texts from records cannot steer their terminal."""
    return map(visible, _lines(found, now_ms))


def _lines(found: JobNow, now_ms: int) -> Iterator[str]:
    job = found.job
    size = "?" if job.world_size is None else str(job.world_size)
    yield (
        f"{job.task_id}: {len(job.ranks)} of {size} ranks heard, "
        f"{len(job.communicators)} communicators"
    )
    yield from _hang_lines(found.hang)
    if (mixed := job.mixed(now_ms * MS_NS)) is not None:
        yield mixed
    if not job.ranks:
        yield "nothing was heard of its ranks lately: no collector reads them, or it has ended"
        return
    if job.unrecorded:
        reasons = sorted({s.batch.missing_reason or "none was read" for s in job.ranks.values()})
        yield f"its ranks record no operations ({reasons[0]}): only processes and sockets tell"
    yield ""
    yield from _table(found, now_ms)


def _hang_lines(hang: Hang | None) -> Iterator[str]:
    if hang is None:
        yield "no hang is known"
        return
    if hang.state is FaultLifecycle.RESOLVED:
        yield f"the last hang is over since {iso_us(hang.event_at)}: {hang.summary}"
        return
    yield f"hangs since {iso_us(hang.onset_at)}: {hang.hang_class.value} ({hang.certainty.lower()})"
    yield f"   {hang.summary}"
    yield f"   waiting   {rank_text(hang.waiting_ranks)}"
    for title, lines in (("because", hang.evidence), ("next", hang.next_steps)):
        for place, line in enumerate(lines):
            yield f"   {title if not place else '':<9} {line}"


def _table(found: JobNow, now_ms: int) -> Iterator[str]:
    """Yield a row for each rank: culprits first, then those that wait, then the others."""
    job, hang = found.job, found.hang
    culprits = set() if hang is None else set(hang.ranks)
    described = {name: known.description or name for name, known in job.communicators.items()}
    ordered = sorted(
        job.ranks.values(), key=lambda s: (s.rank not in culprits, not s.operations.pending, s.rank)
    )
    if len(ordered) <= MAX_ROWS:
        ordered.sort(key=lambda s: s.rank)
    rows: list[tuple[str, str, dict[str, str]]] = []
    for state in ordered[:MAX_ROWS]:
        cells: dict[str, str] = {}
        for one in standings(state):
            column = described.get(one.name, one.name)
            cells[column] = " ".join(filter(None, (cells.get(column, ""), _cell(one))))
        process = state.process_state.value.lower()
        if state.is_silent(now_ms * MS_NS):
            process = f"unheard {(now_ms * MS_NS - state.arrived_ns) // SECOND_NS} s"
        mark = "!" if state.rank in culprits else " "
        rows.append((f"{mark}{state.rank}", process, cells))
    columns = sorted({column for _, _, cells in rows for column in cells})
    lines = [["rank", "process", *columns]]
    lines += [[rank, process, *(c.get(n, "") for n in columns)] for rank, process, c in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        yield "  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip()
    if len(ordered) > MAX_ROWS:
        yield f"and {len(ordered) - MAX_ROWS} ranks more: --json has all"


def _cell(one: Standing) -> str:
    """Return where a rank stands, as text: what it launched last, and how long it waits there."""
    text = f"{one.name}:{one.launched}"
    if one.waits_in is None:
        return text
    waited = "" if one.waited_us is None else f" {one.waited_us / 1e6:.1f} s"
    return f"{text} waits{waited}"
