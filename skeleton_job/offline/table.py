"""Skeletons from files: a table of counters (CSV or Parquet) in, one JSON document out."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from schemas.units import SECOND_NS
from skeleton_job.job import Job, Pair, Rnic, ordered
from skeleton_job.layout.blocks import MIN_PART
from skeleton_job.layout.distances import DEFAULT_MAX_PEERS
from skeleton_job.layout.skeleton import TOO_SHORT, Inference, infer
from skeleton_job.lists.halves import pairs_between_parts
from skeleton_job.lists.pinglists import basic_pairs
from skeleton_job.offline.meta import Meta
from skeleton_job.offline.ownership import with_whole_hosts
from skeleton_job.rhythm.coherence import BUSY_BYTES_PER_S, split
from skeleton_job.series.rates import RateMatrix, rate_matrix, rows_of
from skeleton_job.series.readings import TICK_ENDPOINTS, Readings, in_order, usual_tick_ns
from skeleton_job.series.unwrapping import UNDECLARED

COLUMNS: Final[Mapping[str, pl.DataType]] = {
    "time_ns": pl.Int64(),
    "host": pl.String(),
    "rail": pl.Int32(),
    "tx_bytes": pl.UInt64(),
    "rx_bytes": pl.UInt64(),
}
NULLABLE: Final = ("tx_bytes", "rx_bytes")
BOUNDS: Final[Mapping[str, str]] = {
    "time_ns": "whole nanoseconds since the epoch",
    "host": "a name",
    "rail": "a whole number from 0 to 1,023",
    "tx_bytes": "a whole number from 0 to 2^64 - 1, or nothing",
    "rx_bytes": "a whole number from 0 to 2^64 - 1, or nothing",
}
# 200 Mbit/s, both directions together: more than housekeeping; checkpoints rarely reach it on
# average.
LOADED_BYTES_PER_S: Final = 25e6
RING_ENDS: Final = 2
MAX_RAIL: Final = 1023
# Why an RNIC is in no task.
IDLE: Final = "idle: less than 2 Mbit/s"
STRAY: Final = "its traffic is not that of any job"
UNNAMED_RNICS: Final = "in no task of meta"
# Half an hour at 10 Hz: more adds nothing and takes memory.
MAX_BINS: Final = 18_000


class TableError(ValueError):
    """A table that cannot be used; the message names column, value, bounds and what to do."""


def read_counters(path: Path) -> pl.DataFrame:
    """Return the counters of a CSV or Parquet file.

    Returns
    -------
    Columns time_ns, host, rail, tx_bytes, rx_bytes as in `COLUMNS`.

    Raises
    ------
    TableError
        If the file cannot be read, lacks columns, or holds a value out of its bounds.
    """
    try:
        if path.suffix == ".parquet":
            raw = pl.read_parquet(path)
        elif path.suffix == ".csv":
            raw = pl.read_csv(path, infer_schema=False)
        else:
            raise TableError(f"{path}: the name must end in .csv or .parquet")
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        raise TableError(f"{path}: {str(error).splitlines()[0]}") from error
    missing = [c for c in COLUMNS if c not in raw.columns]
    if missing:
        raise TableError(
            f"{path}: no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}, "
            f"and has {', '.join(raw.columns) or 'none'}"
        )
    frame = raw.select([_checked(path, raw[name], kind) for name, kind in COLUMNS.items()])
    if frame.is_empty():
        raise TableError(f"{path}: no rows")
    return frame


def _checked(path: Path, column: pl.Series, kind: pl.DataType) -> pl.Series:
    name = column.name
    if column.dtype == pl.String and kind != pl.String():
        column = column.replace("", None)
    try:
        if name == "host" and column.dtype.is_float() and (column == column.floor()).all():
            # Numbers as names: 7, not 7.0.
            column = column.cast(pl.Int64, strict=False)
        cast = column.cast(kind, strict=False)
    except pl.exceptions.PolarsError as error:
        raise TableError(f"{path}: column {name} holds {column.dtype}; {BOUNDS[name]}") from error
    bad = cast.is_null() if name not in NULLABLE else cast.is_null() & column.is_not_null()
    if column.dtype.is_float():
        bad |= column.is_not_null() & (column != column.floor())
    if name == "rail":
        bad |= cast.is_not_null() & ~cast.is_between(0, MAX_RAIL)
    if name == "time_ns":
        bad |= cast.is_not_null() & (cast < 0)
    if bad.any():
        row = bad.arg_max() or 0
        raise TableError(
            f"{path}: row {row + 1}: {name}={column[row]!r}; it must be {BOUNDS[name]}. "
            f"Bad rows: {int(bad.sum())} of {len(bad)}"
        )
    return cast


def endpoint_id(host: str, rail: int) -> str:
    """Return the endpoint id of a table's RNIC."""
    return f"{host}/r{rail}"


def infer_table(table: pl.DataFrame, meta: Meta) -> dict[str, Any]:
    """Return the document that describes the skeletons in a table of counters.

    Keys:

    * `ping_list`: rows of host, rail, host, rail, each unordered pair once. Of a job that is not
      sure it holds pairs of other likely layouts as well, of one of which nothing is inferred the
      basic list; no RNIC that is seen to be idle.
    * `tasks`: each with `task`, `rnics`, `dp`, `pp`, `tp`, `ep`, `cp`, `confidence`, `reason`,
      `signs`, `period_s`, `clusters`, `stages`, `pp_groups`, `ep_groups`.
    * `left_out`: RNICs that are in no task, each with `reason` and `rnics`.
    * `warnings`: sentences on what of `meta` was not used.

    RNICs that no job in `meta` names are separated by their rhythm. Without iterations there is no
    job; those with much traffic get a basic list.

    Raises
    ------
    TableError
        If the readings span no time, or the table lacks all RNICs of a job in meta.
    """
    known = {place for task in meta.tasks for place in task.rnics or ()}
    there, readings, bin_ns = _readings(table, meta.counter_bits, known)
    begin, end = table["time_ns"].min(), table["time_ns"].max()
    if bin_ns is None or not isinstance(begin, int) or not isinstance(end, int):
        raise TableError("no RNIC has two readings at different times: nothing to compare")
    # The last reading ends the last bin.
    start_ns = max(begin, end - MAX_BINS * bin_ns)
    pairs: list[list[Any]] = []
    tasks = []
    outside: dict[str, list[Rnic]] = {}
    warnings = [*meta.warnings, *_unread(meta, set(there))]
    named = {t.task_id for t in meta.tasks if t.rnics is not None}
    jobs = meta.jobs(there)
    for job in jobs:
        matrix = rate_matrix(
            readings.of([r.endpoint_id for r in job.ordered]),
            start_ns=start_ns,
            end_ns=max(end, start_ns + bin_ns),
            bin_ns=bin_ns,
            max_rate=meta.max_rate_bytes_per_s,
        )
        still = _still(matrix)
        by_id = {r.endpoint_id: r for r in job.rnics}
        parts = [job] if job.task_id in named else with_whole_hosts(job, split(job, matrix))
        rest = set(job.rnics).difference(*(part.rnics for part in parts))
        for part in parts:
            inference = infer(part, rows_of(matrix, [r.endpoint_id for r in part.ordered]))
            beats = inference.period_ns is not None or inference.reason == TOO_SHORT
            if inference.dp is None and not meta.tasks and not beats:
                listed: Set[Pair] = _loaded_pairs(part, matrix)
                rest |= set(part.rnics)
            else:
                listed = _listed(part, inference, still) | pairs_between_parts(
                    part, _faint(part, matrix) | inference.unheard
                )
                tasks.append(_task(part.task_id, part.ordered, inference))
                rest |= {by_id[e] for e in inference.idle}
            pairs += [[*_place(by_id[a]), *_place(by_id[b])] for a, b in sorted(listed)]
        for rnic in job.ordered:
            if rnic in rest:
                outside.setdefault(IDLE if rnic.endpoint_id in still else STRAY, []).append(rnic)
    mine = {(r.host, r.rail) for job in jobs for r in job.rnics}
    left_out = [{"reason": why, "rnics": _places(rnics)} for why, rnics in outside.items()]
    unnamed = [list(place) for place in there if place not in mine]
    if unnamed:
        left_out.append({"reason": UNNAMED_RNICS, "rnics": unnamed})
    return {"ping_list": pairs, "tasks": tasks, "left_out": left_out, "warnings": warnings}


def _listed(job: Job, found: Inference, still: Set[str]) -> Set[Pair]:
    """Return the pairs to probe of a job; nobody probes an RNIC that is seen to be idle."""
    if found.dp is not None:
        return found.pairs | found.hedges
    busy = tuple(r for r in job.rnics if r.endpoint_id not in still)
    return basic_pairs(replace(job, rnics=busy))


def _still(matrix: RateMatrix) -> set[str]:
    """Return the RNICs whose counters show no traffic to speak of."""
    quiet = matrix.usable & (matrix.level < BUSY_BYTES_PER_S)
    return {e for e, is_quiet in zip(matrix.endpoints, quiet, strict=True) if is_quiet}


def _faint(job: Job, matrix: RateMatrix) -> set[str]:
    """Return the RNICs of a job that carry too little to take part in its traffic."""
    mine = {r.endpoint_id for r in job.rnics}
    level = {
        e: float(rate)
        for e, rate, usable in zip(matrix.endpoints, matrix.level, matrix.usable, strict=True)
        if usable and e in mine
    }
    if not level:
        return set()
    busy = float(np.quantile(list(level.values()), 0.9))
    return {e for e, rate in level.items() if rate < MIN_PART * busy}


def _unread(meta: Meta, there: Set[tuple[str, int]]) -> Iterator[str]:
    """Yield what to say of RNICs and hosts in meta that the table lacks.

    Raises
    ------
    TableError
        If it lacks all RNICs of a job.
    """
    for task in meta.tasks:
        places = task.rnics or ()
        lacking = [endpoint_id(*place) for place in places if place not in there]
        if lacking and len(lacking) == len(places):
            raise TableError(
                f"meta: task {task.task_id!r}: none of its {len(places)} RNICs has a row, such as "
                f"{lacking[0]}; the table has {len(there)}, such as {endpoint_id(*min(there))}"
            )
        if lacking:
            yield (
                f"task {task.task_id!r}: {len(lacking)} of {len(places)} RNICs have no row, such "
                f"as {lacking[0]}; they keep their place, as RNICs without counters do"
            )
    hosts = {host for host, _ in there}
    strange = [host for host in meta.pod_index if host not in hosts]
    if strange:
        yield (
            f"pod_index: {len(strange)} of {len(meta.pod_index)} hosts have no row, such as "
            f"{strange[0]!r}"
        )


def _readings(
    table: pl.DataFrame, bits: int | None, known: Set[tuple[str, int]]
) -> tuple[list[tuple[str, int]], Readings, int | None]:
    """Return the RNICs of a table by host and rail, their readings, and the sampling interval.

    Parameters
    ----------
    known : RNICs that have a place in the readings, even without any
    """
    hosts = table["host"].unique().sort()
    host = table["host"].cast(pl.Enum(hosts)).to_physical().to_numpy()
    seat = host.astype(np.int32) * (MAX_RAIL + 1) + table["rail"].to_numpy()
    taken = np.zeros(len(hosts) * (MAX_RAIL + 1), dtype=np.bool_)
    taken[seat] = True
    # Numbers instead of names: a table of millions of rows has few names.
    row = (np.cumsum(taken, dtype=np.int32) - 1)[seat]
    names = hosts.to_list()
    there = [(names[i // (MAX_RAIL + 1)], int(i) % (MAX_RAIL + 1)) for i in np.flatnonzero(taken)]
    time_ns = table["time_ns"].to_numpy()
    # Failed readings count, too: the interval is how often somebody tried.
    few = row < TICK_ENDPOINTS
    order = np.lexsort((time_ns[few], row[few]))
    steps = np.diff(time_ns[few][order])[np.diff(row[few][order]) == 0]
    read = (table["tx_bytes"].is_not_null() & table["rx_bytes"].is_not_null()).to_numpy()
    # Differences of counters wrap as those of unsigned numbers do, whatever the caller's type.
    tx, rx = (table[name].fill_null(0).cast(COLUMNS[name]).to_numpy() for name in NULLABLE)
    if not read.all():
        row, time_ns, tx, rx = row[read], time_ns[read], tx[read], rx[read]
    places = [*there, *sorted(known - set(there))]
    readings = in_order(
        [endpoint_id(host, rail) for host, rail in places],
        row,
        time_ns=time_ns,
        tx_bytes=tx,
        rx_bytes=rx,
        bits=np.full(len(places), UNDECLARED if bits is None else bits, dtype=np.int64),
    )
    return there, readings, usual_tick_ns(steps)


def _loaded_pairs(job: Job, matrix: RateMatrix) -> set[Pair]:
    """Return the pairs of those RNICs that carry so much that a job must be training on them.

    The basic list. If hosts have at most two such RNICs, a ring enters and leaves them there and
    changes rails between hosts: then all pairs of two hosts.
    """
    heavy = {
        e
        for e, rate in zip(matrix.endpoints, matrix.level, strict=True)
        if rate >= LOADED_BYTES_PER_S
    }
    rnics = tuple(r for r in job.rnics if r.endpoint_id in heavy)
    most = max(Counter(r.host for r in rnics).values(), default=0)
    if most <= RING_ENDS and len(rnics) <= DEFAULT_MAX_PEERS:
        return {
            ordered(a.endpoint_id, b.endpoint_id)
            for a, b in combinations(rnics, 2)
            if a.host != b.host
        }
    silent = {r.endpoint_id for r in job.rnics} - heavy
    return basic_pairs(replace(job, rnics=rnics)) | pairs_between_parts(job, silent)


def _place(rnic: Rnic) -> list[Any]:
    return [rnic.host, rnic.rail]


def _places(rnics: Sequence[Rnic]) -> list[list[Any]]:
    return [_place(r) for r in rnics]


def _task(task_id: str, rnics: Sequence[Rnic], found: Inference) -> dict[str, Any]:
    idle = set(found.idle)
    inferred = found.dp is not None
    return {
        "task": task_id,
        "rnics": _places([r for r in rnics if r.endpoint_id not in idle]),
        "dp": found.dp,
        "pp": found.pp,
        "tp": found.tp,
        "ep": found.ep if inferred else None,
        "cp": found.cp if inferred else None,
        "confidence": found.confidence,
        "reason": found.reason,
        "signs": dict(found.signs),
        "period_s": None if found.period_ns is None else round(found.period_ns / SECOND_NS, 4),
        "clusters": [_places(group) for group in found.groups],
        "stages": [_places(stage) for stage in found.stages()],
        "pp_groups": [_places(chain) for chain in found.chains],
        "ep_groups": [_places(group) for group in found.ep_groups],
    }
