"""The table of bounds: every row, from both sides, through the codec that all processes use."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from ops.docs.topics import page
from schemas import avro
from schemas.bounds import (
    BOUNDS,
    MAX_AHEAD_NS,
    Bound,
    Measure,
    arrival_of,
    bound_of,
    value_violation,
    violation,
)
from schemas.codec import Codec, DecodeError, OutOfBoundsError
from schemas.enums import AnomalyKind
from schemas.evolution import inlined
from schemas.topics import BY_NAME, TOPICS
from tests.unit.schemas.valid import ARRIVAL_NS, mutated, probes_of, valid_datum

CODEC = Codec()
# Arrays longer than this are looked at as they are: encoding them takes seconds.
MOST_ENCODED = 5_000


def ids() -> list[str]:
    """Return a name for each row."""
    return [f"{b.topic}:{b.field}" for b in BOUNDS]


@pytest.mark.parametrize("topic", [t.name for t in TOPICS])
def test_a_valid_record_passes(topic: str) -> None:
    """Nothing is out of bounds, with and without a time of arrival."""
    value = CODEC.encode_datum(BY_NAME[topic], valid_datum(topic))
    CODEC.decode(BY_NAME[topic], value)
    CODEC.decode(BY_NAME[topic], value, arrival_ns=ARRIVAL_NS)


@pytest.mark.parametrize("bound", BOUNDS, ids=ids())
def test_each_bound_holds_on_both_sides(bound: Bound) -> None:
    """The least and the greatest value pass; what lies beyond is refused with field and bound."""
    for value, allowed in probes_of(bound):
        datum = mutated(valid_datum(bound.topic), bound, value)
        found = violation(bound.topic, datum, ARRIVAL_NS)
        assert (found is None) == allowed, (value, str(found))
        if found is not None:
            assert found.bound == bound
            assert bound.field in str(found)
        if bound.measure is Measure.ITEMS and bound.greatest > MOST_ENCODED:
            continue
        try:
            encoded = CODEC.encode_datum(BY_NAME[bound.topic], datum)
        except (ValueError, OverflowError, TypeError):
            continue  # no encoder writes it
        if allowed:
            CODEC.decode(BY_NAME[bound.topic], encoded, arrival_ns=ARRIVAL_NS)
        else:
            with pytest.raises(DecodeError):
                CODEC.decode(BY_NAME[bound.topic], encoded, arrival_ns=ARRIVAL_NS)


def test_the_error_has_field_value_and_bound() -> None:
    """And is kept short, whatever the value is."""
    bound = bound_of("probe.round.v1", "results.rtt_ns")
    datum = mutated(valid_datum(bound.topic), bound, 2**62)
    value = CODEC.encode_datum(BY_NAME[bound.topic], datum)
    with pytest.raises(OutOfBoundsError, match=r"@7: results\.rtt_ns=4611686018427387904: from "):
        CODEC.decode(BY_NAME[bound.topic], value, partition=1, offset=7)
    assert Codec(bounded=False).decode(BY_NAME[bound.topic], value).results[0].rtt_ns == 2**62


def test_event_times_are_compared_with_the_arrival() -> None:
    """Up to the bound ahead; any time behind: a backlog is no wrong clock."""
    bound = bound_of("probe.round.v1", "started_at")
    latest_us = (ARRIVAL_NS + MAX_AHEAD_NS) // 1000
    assert value_violation(bound, latest_us, ARRIVAL_NS) is None
    assert value_violation(bound, 0, ARRIVAL_NS) is None
    found = value_violation(bound, latest_us + 1, ARRIVAL_NS)
    assert found is not None
    assert found.ahead
    assert "more than 60 s ahead" in str(found)
    assert value_violation(bound, latest_us + 1, None) is None


def test_the_arrival_is_the_timestamp_of_either_type() -> None:
    """A replay keeps recorded times of arrival; without a timestamp it is unknown."""
    assert arrival_of((1, 5)) == arrival_of((2, 5)) == 5_000_000
    assert arrival_of((0, -1)) is None


def test_progress_marks_may_lack_names() -> None:
    """They belong to no path."""
    mark = valid_datum("anomaly.v1") | {
        "kind": AnomalyKind.PROGRESS.value, "path_id": "", "src": "", "dst": "", "agent_id": "",
        "unit": None, "value": None,
    }  # fmt: skip
    assert violation("anomaly.v1", mark, ARRIVAL_NS) is None


def arrays(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the arrays of a record and their docs."""
    for field in node["fields"]:
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "array":
            yield path + field["name"], field["doc"]
            if isinstance(kind["items"], dict):
                yield from arrays(kind["items"], f"{path}{field['name']}.")


@pytest.mark.parametrize("topic", [t.name for t in TOPICS])
def test_the_table_is_whole(topic: str) -> None:
    """Each array and each time has a row; rows name fields; docs and rows agree on lengths."""
    schema = inlined(json.loads(avro.current(topic).text))
    rows = {b.field: b for b in BOUNDS if b.topic == topic}
    assert len(rows) == sum(b.topic == topic for b in BOUNDS)
    for name, doc in arrays(schema):
        assert f"at most {rows[name].greatest:,}" in doc
    times = [f["name"] for f in schema["fields"] if f["name"].endswith("_at")]
    assert set(times) <= rows.keys()
    assert BY_NAME[topic].key_field in rows
    datum = valid_datum(topic)
    for field in rows:
        head, _, tail = field.partition(".")
        assert head in datum
        if tail:
            assert tail in datum[head][0]
    text = page()
    assert all(f"| `{field.rstrip('.')}` |" in text for field in rows)


def test_checking_changes_nothing() -> None:
    """A datum is only looked at."""
    datum = valid_datum("task.v1")
    before = deepcopy(datum)
    violation("task.v1", datum, ARRIVAL_NS)
    assert datum == before
