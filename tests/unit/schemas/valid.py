"""Records that are within all bounds, and the same with one field changed."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from schemas import avro
from schemas.bounds import BOUNDS, Bound, Measure, is_ahead, violation
from schemas.evolution import inlined

ARRIVAL_NS: Final = 1_790_000_000_000_000_000
YEAR_NS: Final = 365 * 86_400 * 10**9
CLUSTER: Final = "c1"

Datum = dict[str, Any]


def valid_datum(topic: str, cluster: str = CLUSTER) -> Datum:
    """Return a datum of the topic's current schema with one item in each array."""
    bounds = {b.field: b for b in BOUNDS if b.topic == topic}
    schema = inlined(json.loads(avro.current(topic).text))
    datum = _record(schema, "", bounds)
    return datum | {"cluster": cluster}


def mutated(datum: Datum, bound: Bound, value: Any) -> Datum:
    """Return the datum with a value, or a length, of the bound's field."""
    head, dot, tail = bound.field.partition(".")
    holder = datum[head][0] if tail else datum
    name = tail or head
    if dot and not tail:
        datum[head] = ["x" * value if bound.measure is Measure.CHARACTERS else value]
    elif bound.measure is Measure.CHARACTERS:
        holder[name] = "x" * value
    elif bound.measure is Measure.ITEMS:
        holder[name] = holder[name] * value
    else:
        holder[name] = value
    return datum


def probes_of(bound: Bound) -> Iterator[tuple[Any, bool]]:
    """Yield values of a field (or lengths) and whether they are allowed at `ARRIVAL_NS`."""
    values: list[float] = [bound.least, bound.greatest, bound.greatest + 1]
    if bound.measure is Measure.VALUE:
        values += [bound.least - 1, -1, 0, 1, 2**62]
        if isinstance(bound.least, float):
            values += [float("nan"), float("inf"), float("-inf"), bound.greatest * 2]
        if bound.ahead_ns is not None:
            arrival = ARRIVAL_NS // bound.unit_ns
            latest = (ARRIVAL_NS + bound.ahead_ns) // bound.unit_ns
            values += [arrival, latest, latest + 1, arrival + YEAR_NS // bound.unit_ns]
    elif bound.least:
        values.append(bound.least - 1)
    for value in values:
        within = bound.least <= value <= bound.greatest
        yield value, within and not is_ahead(bound, value, ARRIVAL_NS)


def _record(node: Any, path: str, bounds: dict[str, Bound]) -> Datum:
    return {f["name"]: _value(f["type"], path + f["name"], bounds) for f in node["fields"]}


def _value(kind: Any, path: str, bounds: dict[str, Bound]) -> Any:
    if isinstance(kind, list):
        kind = kind[1]
    name = kind["type"] if isinstance(kind, dict) else kind
    bound = bounds.get(path)
    if name == "array":
        return [_item(kind["items"], path, bounds)]
    if name == "enum":
        return kind["symbols"][1]
    if name == "boolean":
        return True
    if name == "string":
        return path.rpartition(".")[2][:8]
    if path.endswith("_at") or path == "incarnation":
        return ARRIVAL_NS // (1 if path == "incarnation" else 1000)
    value = 1 if bound is None else max(bound.least, min(1, bound.greatest))
    return float(value) if name == "double" else int(value)


def _item(kind: Any, path: str, bounds: dict[str, Bound]) -> Any:
    if isinstance(kind, dict):
        return _record(kind, f"{path}.", bounds)
    return "x" if kind == "string" else 0


def poison(topic: str, cluster: str, arrival_ns: int) -> Iterator[Datum]:
    """Yield every record that is out of bounds in one field and that an encoder can write."""
    for bound in BOUNDS:
        if bound.topic != topic or bound.measure is Measure.ITEMS:
            continue
        for value, _ in probes_of(bound):
            datum = mutated(valid_datum(topic, cluster), bound, value)
            if violation(topic, datum, arrival_ns) is None:
                continue
            # No encoder writes a number that its type does not hold.
            with suppress(ValueError, OverflowError):
                avro.write_datum(avro.current(topic), datum)
                yield datum
