"""Mutated records: every field, one at a time, on both sides of its bounds."""

import math

import pytest

from ops.bench.resilience.mutations import YEAR_NS, mutations, shifted
from schemas.bounds import BOUNDS, Measure, violation
from schemas.topics import BY_NAME, PINGLIST, PROBE_ROUND, TOPICS
from tests.unit.schemas.valid import ARRIVAL_NS, valid_datum


@pytest.mark.parametrize("topic", [t.name for t in TOPICS])
def test_each_bounded_field_is_mutated_within_and_beyond_its_bounds(topic: str) -> None:
    """And each mutation changes that field only, but for what counts up."""
    found = list(mutations(BY_NAME[topic], valid_datum(topic)))
    accepted, refused = set(), set()
    for one in found:
        wrong = violation(topic, one.datum, ARRIVAL_NS)
        if wrong is None:
            accepted.add(one.field)
        else:
            assert wrong.bound.field == one.field
            refused.add(one.field)
    rows = {b.field for b in BOUNDS if b.topic == topic and b.measure is not Measure.ITEMS}
    assert rows <= accepted | refused
    # Texts that may be empty and 65,536 characters long have no value beyond their bounds.
    assert len(refused & rows) > len(rows) / 2
    assert len(accepted & rows) > len(rows) / 2


def test_a_mutation_counts_up_and_leaves_the_original() -> None:
    """Readers that keep the greatest version look at it."""
    datum = valid_datum(PINGLIST.name)
    first, second = list(mutations(PINGLIST, datum))[:2]
    assert (first.datum["version"], second.datum["version"]) == (2, 3)
    assert datum == valid_datum(PINGLIST.name)


def test_values_of_a_number_a_time_and_a_double() -> None:
    """The least and greatest of the type and of the bound, -1, 0, a year later; NaN."""
    datum = valid_datum(PROBE_ROUND.name)
    by_field: dict[str, set[object]] = {}
    for one in mutations(PROBE_ROUND, datum):
        if one.field == "started_at":
            by_field.setdefault(one.field, set()).add(one.datum["started_at"])
        elif one.field == "results.rtt_ns":
            by_field.setdefault(one.field, set()).add(one.datum["results"][0]["rtt_ns"])
    assert by_field["started_at"] >= {-(2**63), -1, 0, 1, 2**63 - 1,
                                      datum["started_at"] + YEAR_NS // 1_000}  # fmt: skip
    assert by_field["results.rtt_ns"] >= {None, -(2**63), 2**63 - 1, 60 * 10**9}
    doubles = [
        one.datum["value"]
        for one in mutations(BY_NAME["anomaly.v1"], valid_datum("anomaly.v1"))
        if one.field == "value" and one.datum["value"] is not None
    ]
    assert any(math.isnan(value) for value in doubles)


def test_a_shifted_record_is_as_much_later_in_all_its_times() -> None:
    """Missing times stay missing, durations the same."""
    datum = valid_datum("task.v1") | {"ended_at": None}
    later = shifted(datum, 7)
    assert later == datum | {"submitted_at": datum["submitted_at"] + 7}
