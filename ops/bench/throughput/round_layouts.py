"""Ways to lay out the results of a round in Avro: the contract's, and those compared with it.

Pure. Each has what the contract has: a header, primitives and arrays inside, no opaque bytes,
and every message can be read without another one. `unpack` gives back what `pack` was given, in
order where the layout keeps it, and but for what a rounding takes.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import floordiv, mul
from typing import Any, Final, cast

import fastavro

from ops.bench.throughput.layout_parts import (
    COLUMNS,
    LONG,
    MAYBE,
    NAMES,
    ROUND,
    TABLE_FIELDS,
    TIMES,
    Packed,
    Result,
    array,
    delta_fields,
    deltas,
    fill,
    group,
    indexed,
    named,
    rows,
    sparse,
    sum_up,
    turn,
    ungroup,
    without,
)
from schemas import avro
from schemas.codec import Codec
from schemas.topics import PROBE_ROUND

Steps = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A way to write the results of a round.

    Attributes
    ----------
    fields
        Of Avro, in the place of `results`.
    pack, unpack
        From a round's results to these fields, and back.
    ordered
        Whether results come back in the order in which they were sent.
    """

    name: str
    fields: tuple[dict[str, Any], ...]
    pack: Callable[[list[Result]], Packed]
    unpack: Callable[[Packed], list[Result]]
    ordered: bool = True

    @cached_property
    def _schema(self) -> Any:
        return fastavro.parse_schema({**ROUND, "fields": [*ROUND["fields"][:-1], *self.fields]})

    def encode(self, datum: dict[str, Any]) -> bytes:
        """Return a round as the value of a message, with as long a frame as the contract's."""
        out = io.BytesIO(FRAME)
        out.seek(len(FRAME))
        fastavro.schemaless_writer(out, self._schema, {**datum, **self.pack(datum["results"])})
        return out.getvalue()

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the round of a value, its results as records."""
        source = io.BytesIO(value)
        source.seek(len(FRAME))
        datum = cast(dict[str, Any], fastavro.schemaless_reader(source, self._schema, None))
        kept = {name: value for name, value in datum.items() if name in _HEADER}
        return {**kept, "results": self.unpack(datum)}

    def rounded(self, steps: Steps, what: str) -> "Layout":
        """Return the layout with times rounded to multiples before."""
        return replace(self, name=f"{self.name}, {what}",
                       pack=lambda rs: self.pack(round_times(rs, steps)))  # fmt: skip

    def in_units(self, steps: Steps, what: str) -> "Layout":
        """Return the layout with times counted in `steps`, as a field `…_us` would."""
        return replace(self, name=f"{self.name}, {what}",
                       pack=lambda rs: self.pack(_times(rs, steps, floordiv)),
                       unpack=lambda p: _times(self.unpack(p), steps, mul))  # fmt: skip


FRAME: Final = Codec().framer.header(avro.current(PROBE_ROUND.name))
_HEADER: Final = {f["name"] for f in ROUND["fields"][:-1]}


def _times(results: list[Result], steps: Steps, by: Callable[[int, int], int]) -> list[Result]:
    return [
        {**r, **{n: by(r[n], step) for n, step in steps.items() if r[n] is not None}}
        for r in results
    ]


def round_times(results: list[Result], steps: Steps) -> list[Result]:
    """Return results whose times are multiples of `steps`, rounded down, so that order stays."""
    return _times(results, steps, lambda ns, step: ns - ns % step)


def _by_path(results: list[Result]) -> list[Result]:
    return sorted(results, key=lambda r: (r["src"], r["dst"], r["flow"]))


RECORDS: Final = Layout(
    name="(a) array of records",
    fields=(ROUND["fields"][-1],),
    pack=lambda rs: {"results": rs},
    unpack=lambda p: list(p["results"]),
)
TABLE: Final = Layout(
    name="(d) deltas, endpoints in a table",
    fields=(*TABLE_FIELDS, *delta_fields(MAYBE)),
    pack=lambda rs: {**indexed(rs), **deltas(rs)},
    unpack=lambda p: rows({**sum_up(p), **named(p)}),
)
BARE: Final = Layout(
    name="(d) the same, nulls apart",
    fields=(
        *TABLE_FIELDS,
        *delta_fields(LONG),
        *({"name": without(name), "type": LONG} for name in TIMES),
    ),
    pack=lambda rs: sparse({**indexed(rs), **deltas(rs)}),
    unpack=lambda p: rows({**sum_up(fill(p)), **named(p)}),
)
_GROUP: Final = {
    "type": "record",
    "name": "Group",
    "fields": [{"name": "src", "type": "string"}, {"name": "dst", "type": NAMES},
               *delta_fields(MAYBE)],
}  # fmt: skip
GROUPED: Final = Layout(
    name="(e) deltas, grouped by source",
    fields=({"name": "groups", "type": {"type": "array", "items": _GROUP}},),
    pack=group,
    unpack=ungroup,
    # But for two that were sent in the same nanosecond.
)
# What the clocks are worth: a round's start is told to the microsecond, delays of software vary
# by far more than one. Powers of two make whole bytes of Avro's numbers the same; powers of ten
# do not.
ROUGH: Final = ("sent_offset_ns", "prober_delay_ns", "responder_delay_ns")
BINARY: Final = dict.fromkeys(ROUGH, 1_024)
DECIMAL: Final = dict.fromkeys(ROUGH, 1_000)
COARSE: Final = {**dict.fromkeys(ROUGH, 8_000), "rtt_ns": 64}
LAYOUTS: Final = (
    RECORDS,
    replace(RECORDS, name="(a) sorted by 5-tuple", pack=lambda rs: {"results": _by_path(rs)},
            ordered=False),
    RECORDS.rounded(DECIMAL, "(f) offsets and delays in 1,000 ns"),
    RECORDS.rounded(BINARY, "(f) offsets and delays in 1,024 ns"),
    RECORDS.rounded({**BINARY, "rtt_ns": 64}, "(f) and round trips in 64 ns"),
    Layout(
        name="(b) an array for each field",
        fields=tuple(array(name) for name in COLUMNS),
        pack=lambda rs: turn(rs, COLUMNS),
        unpack=rows,
    ),
    Layout(
        name="(c) arrays of deltas",
        fields=(array("src"), array("dst"), *delta_fields(MAYBE)),
        pack=lambda rs: {**turn(rs, ("src", "dst")), **deltas(rs)},
        unpack=lambda p: rows({**sum_up(p), "src": p["src"], "dst": p["dst"]}),
    ),
    TABLE,
    BARE,
    GROUPED,
    BARE.in_units(DECIMAL, "(f) offsets and delays in µs"),
    BARE.in_units(COARSE, "(f) in 8 µs, round trips in 64 ns"),
)  # fmt: skip
