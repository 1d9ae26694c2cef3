"""Valid records with one field changed to an extreme value, for every field of a topic's schema.

Values of a type are its least and greatest, -1, 0, 1, NaN, a year later and so on; where the table
of bounds has a row, also the least and the greatest that it allows: these are accepted.
"""

import json
import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from schemas import avro
from schemas.bounds import BOUNDS, Bound, Measure
from schemas.evolution import inlined
from schemas.topics import Topic
from schemas.units import HOUR_NS, US_NS

YEAR_NS: Final = 365 * 24 * HOUR_NS
INT_MAX: Final = {"int": 2**31 - 1, "long": 2**63 - 1}
DOUBLES: Final = (-1.7e308, -1.0, 0.0, 1.0, 1.7e308, math.nan, math.inf)
LONG_CHARS: Final = 2**16
MAX_SHOWN: Final = 24
# Numbers by which a reader tells a new record from one that it has: a mutated record is a new one.
COUNTED_UP: Final = ("seq", "round_seq", "version")

Datum = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A record with one field changed; `value` is for people."""

    topic: Topic
    field: str
    value: str
    datum: Datum

    def __str__(self) -> str:
        return f"{self.topic.name} {self.field}={self.value}"


def mutations(topic: Topic, datum: Datum) -> Iterator[Mutation]:
    """Yield the record with each field changed; of an array's items the first one is."""
    schema = inlined(json.loads(avro.current(topic.name).text))
    bounds = {b.field: b for b in BOUNDS if b.topic == topic.name}
    for number, (path, value) in enumerate(_changes(schema, datum, "", bounds), 1):
        changed = deepcopy(datum)
        for name in COUNTED_UP:
            if name in changed:
                changed[name] += number
        _assign(changed, path, value)
        yield Mutation(topic, path, _shown(value), changed)


def shifted(datum: Datum, by_us: int) -> Datum:
    """Return the record with all its times later: a record of a while ago becomes one of now."""
    later = {
        name: value + by_us
        for name, value in datum.items()
        if name.endswith("_at") and isinstance(value, int)
    }
    return {**datum, **later}


def _changes(
    schema: Mapping[str, Any], datum: Datum, path: str, bounds: Mapping[str, Bound]
) -> Iterator[tuple[str, Any]]:
    for field in schema["fields"]:
        name, kind = field["name"], field["type"]
        value = datum[name]
        if isinstance(kind, list):
            if value is not None:
                yield path + name, None
            kind = kind[1]
        for extreme in _extremes(kind, path + name, value, bounds):
            if extreme != value:
                yield path + name, extreme
        if isinstance(kind, dict) and kind["type"] == "array" and value:
            items = kind["items"]
            if isinstance(items, dict):
                yield from _changes(items, value[0], f"{path}{name}.", bounds)
            else:
                for extreme in _extremes(items, f"{path}{name}.", value[0], bounds):
                    yield f"{path}{name}.", extreme


def _extremes(kind: Any, path: str, value: Any, bounds: Mapping[str, Bound]) -> Iterator[Any]:
    name = kind["type"] if isinstance(kind, dict) else kind
    bound = bounds.get(path)
    match name:
        case "int" | "long":
            greatest = INT_MAX[name]
            yield from (-greatest - 1, -1, 0, 1, greatest)
            if bound is not None:
                yield from (int(bound.least), min(int(bound.greatest), greatest))
            yield from _later(path, value, bound)
        case "double":
            yield from DOUBLES
        case "string":
            yield from ("", "\0", "x" * LONG_CHARS)
            if bound is not None:
                yield "x" * int(bound.greatest)
        case "boolean":
            yield not value
        case "enum":
            yield from kind["symbols"]
        case "array":
            yield []
            if value and bound is not None and bound.measure is Measure.ITEMS:
                yield from (value[:1] * int(bound.greatest), value[:1] * int(bound.greatest + 1))


def _later(path: str, value: int | None, bound: Bound | None) -> Iterator[int]:
    """Yield a year later, and as far ahead as its bound allows, of what is a time."""
    unit_ns = US_NS if bound is None else bound.unit_ns
    if value is None or not (path.endswith("_at") or path == "incarnation"):
        return
    yield value + YEAR_NS // unit_ns
    if bound is not None and bound.ahead_ns is not None:
        yield value + bound.ahead_ns // unit_ns


def _assign(datum: Datum, path: str, value: Any) -> None:
    head, dot, tail = path.partition(".")
    if tail:
        datum[head][0][tail] = value
    elif dot:
        datum[head][0] = value
    else:
        datum[head] = value


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} items"
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        return f"{len(value)} characters"
    return repr(value)
