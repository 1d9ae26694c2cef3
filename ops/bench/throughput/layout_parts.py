"""What layouts of a round's results are made of: columns, deltas, tables, groups. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median_low
from typing import Any, Final

from schemas import avro
from schemas.topics import PROBE_ROUND

Result = dict[str, Any]
Packed = dict[str, Any]

TIMES: Final = ("rtt_ns", "prober_delay_ns", "responder_delay_ns")
LONG: Final = {"type": "array", "items": "long"}
MAYBE: Final = {"type": "array", "items": ["null", "long"]}
NAMES: Final = {"type": "array", "items": "string"}
# Without logical types, so that times stay integers.
_PARSED: Final = avro.current(PROBE_ROUND.name).parsed
ROUND: Final = {key: _PARSED[key] for key in ("type", "name", "fields")}
RESULT: Final[list[dict[str, Any]]] = ROUND["fields"][-1]["type"]["items"]["fields"]
COLUMNS: Final = tuple(f["name"] for f in RESULT)
TYPES: Final = {f["name"]: f["type"] for f in RESULT}
TABLE_FIELDS: Final = (
    {"name": "endpoints", "type": NAMES},
    {"name": "src_index", "type": LONG},
    {"name": "dst_index", "type": LONG},
)


def array(name: str) -> dict[str, Any]:
    """Return a field that holds a column of the contract's."""
    return {"name": name, "type": {"type": "array", "items": TYPES[name]}}


def turn(results: Sequence[Result], names: Sequence[str]) -> Packed:
    """Return some columns of a round."""
    return {name: [r[name] for r in results] for name in names}


def rows(columns: Packed) -> list[Result]:
    """Return the results of a round's columns."""
    return [
        dict(zip(COLUMNS, row, strict=True))
        for row in zip(*(columns[name] for name in COLUMNS), strict=True)
    ]


# Offsets as gaps, times as differences to the round's median.
PLAIN: Final = ("flow", "transport", "status", "clock")


def _gaps(offsets: Sequence[int]) -> list[int]:
    return [b - a for a, b in pairwise([0, *offsets])]


def _sums(gaps: Sequence[int]) -> list[int]:
    total, out = 0, []
    for gap in gaps:
        total += gap
        out.append(total)
    return out


def _middle(name: str) -> str:
    return name.removesuffix("_ns") + "_median_ns"


def over(name: str) -> str:
    """Return the name of the column of differences to the median."""
    return name.removesuffix("_ns") + "_over_median_ns"


def without(name: str) -> str:
    """Return the name of the column of places at which there is nothing."""
    return f"without_{name.removesuffix('_ns')}"


def _time_fields(items: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return tuple(
        field
        for name in TIMES
        for field in (
            {"name": _middle(name), "type": ["null", "long"]},
            {"name": over(name), "type": items},
        )
    )


def delta_fields(items: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the fields of `deltas`, differences being of a type."""
    gaps = {"name": "sent_gap_ns", "type": LONG}
    return (gaps, *(array(name) for name in PLAIN), *_time_fields(items))


def deltas(results: list[Result]) -> Packed:
    """Return all but the names: offsets as gaps, times as differences to the round's median."""
    out = turn(results, PLAIN)
    out["sent_gap_ns"] = _gaps([r["sent_offset_ns"] for r in results])
    for name in TIMES:
        values = [r[name] for r in results]
        measured = [v for v in values if v is not None]
        median = median_low(measured) if measured else None
        out[_middle(name)] = median
        out[over(name)] = [None if v is None else v - median for v in values]
    return out


def sum_up(packed: Packed) -> Packed:
    """Return the columns that `deltas` was made from."""
    columns = {name: packed[name] for name in PLAIN}
    columns["sent_offset_ns"] = _sums(packed["sent_gap_ns"])
    for name in TIMES:
        median = packed[_middle(name)]
        columns[name] = [None if v is None else v + median for v in packed[over(name)]]
    return columns


def sparse(packed: Packed) -> Packed:
    """Leave out what is null, of which a column of its own tells the places."""
    gone = {without(n): [i for i, v in enumerate(packed[over(n)]) if v is None] for n in TIMES}
    there = {over(n): [v for v in packed[over(n)] if v is not None] for n in TIMES}
    return {**packed, **gone, **there}


def fill(packed: Packed) -> Packed:
    """Return what `sparse` was made from."""
    out = dict(packed)
    for name in TIMES:
        gone, values = set(packed[without(name)]), iter(packed[over(name)])
        out[over(name)] = [None if i in gone else next(values) for i in range(len(packed["flow"]))]
    return out


# Endpoints by their place in a table of the round.


def indexed(results: list[Result]) -> Packed:
    """Return the names as places in a table of the round's endpoints."""
    names = sorted({r["src"] for r in results} | {r["dst"] for r in results})
    place = {name: i for i, name in enumerate(names)}
    return {
        "endpoints": names,
        "src_index": [place[r["src"]] for r in results],
        "dst_index": [place[r["dst"]] for r in results],
    }


def named(packed: Packed) -> Packed:
    """Return the names that `indexed` was made from."""
    names = packed["endpoints"]
    return {end: [names[i] for i in packed[f"{end}_index"]] for end in ("src", "dst")}


def group(results: list[Result]) -> Packed:
    """Return the results by source, in order within each."""
    groups: dict[str, list[Result]] = {}
    for r in results:
        groups.setdefault(r["src"], []).append(r)
    return {
        "groups": [
            {"src": src, "dst": [r["dst"] for r in rs], **deltas(rs)}
            for src, rs in sorted(groups.items())
        ]
    }


def ungroup(packed: Packed) -> list[Result]:
    """Return the results that `group` was made from, in order."""
    found = [
        r
        for g in packed["groups"]
        for r in rows({**sum_up(g), "src": [g["src"]] * len(g["dst"]), "dst": g["dst"]})
    ]
    return sorted(found, key=lambda r: int(r["sent_offset_ns"]))
