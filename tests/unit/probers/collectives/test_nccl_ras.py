"""Answers of NCCL's RAS: what ranks launched, which are missing; and answers that are none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.collectives.nccl_ras import (
    LAUNCHED_ONLY,
    MAX_ANSWER_BYTES,
    RasCounts,
    RasError,
    parse_status,
    troubles,
)
from schemas.enums import CollectiveState
from tests.nccl_answers import ras_answer, ras_group, ras_missing, ras_rank

ASKED = 1_700_000_000_000_000


def launched(counts: RasCounts, content: bytes, pid: int = 7) -> dict[str, tuple[int, int]] | None:
    """Return sequence and number of each communicator's last operation."""
    dump = counts.take(parse_status(content), pid=pid, asked_at=ASKED)
    if dump is None:
        return None
    return {o.communicator: (o.sequence, o.record_id) for o in dump.snapshot.operations}


def test_counts_are_operations_that_were_launched() -> None:
    """Whether they are done nobody knows; what changes is told anew under other numbers."""
    counts = RasCounts(1, 2)
    first = ras_answer(ras_group([ras_rank(0, pid=6), ras_rank(1, AllReduce=50, AllGather=2)]))
    assert launched(counts, first) == {"0xabc/all_reduce": (49, 1), "0xabc/all_gather": (1, 0)}
    assert launched(counts, first) == {"0xabc/all_reduce": (49, 1), "0xabc/all_gather": (1, 0)}
    later = ras_answer(ras_group([ras_rank(0, pid=6), ras_rank(1, AllReduce=51, AllGather=2)]))
    dump = counts.take(parse_status(later), pid=7, asked_at=ASKED)
    assert dump is not None
    snapshot = dump.snapshot
    assert (snapshot.dropped_before, dump.highest_record_id, snapshot.version) == (2, 3, "2.29.1")
    one = snapshot.operations[1]
    assert (one.communicator, one.sequence, one.record_id) == ("0xabc/all_reduce", 50, 3)
    assert (one.state, one.missing_reason) == (CollectiveState.UNKNOWN, LAUNCHED_ONLY)
    assert {group.ranks for group in snapshot.communicators} == {(0, 1)}


def test_processes_of_other_hosts_may_have_the_same_number() -> None:
    """In containers they often do: the rank's number in the job's communicator tells which."""
    here, there = ras_rank(1, AllReduce=5), ras_rank(0, host="10.0.0.2", AllReduce=9)
    world = ras_group([there, here])
    pair = ras_group(
        [ras_rank(0, AllReduce=3), ras_rank(1, host="10.0.0.2", AllReduce=4)], name="0xdef", size=4
    )
    assert launched(RasCounts(1, 2), ras_answer(pair, world)) == {
        "0xdef/all_reduce": (2, 0), "0xabc/all_reduce": (4, 1),
    }  # fmt: skip
    # Without the job's own communicator it cannot be told, unless there is one only.
    assert launched(RasCounts(1, 8), ras_answer(pair, world)) is None
    assert launched(RasCounts(1, 8), ras_answer(ras_group([here]))) is not None
    assert launched(RasCounts(1, 2), ras_answer(world), pid=8) is None


def test_a_process_that_launched_nothing_is_known() -> None:
    """It has no operations, and that is not the same as no answer."""
    assert launched(RasCounts(1, 2), ras_answer(ras_group([ras_rank(1)]))) == {}


def test_ranks_that_are_missing_or_failed_are_named() -> None:
    """Dead ones apart from silent ones."""
    failed = ras_rank(0)
    failed["status"]["async_error"] = 6
    busy = ras_rank(4)
    busy["status"]["async_error"] = 7
    left = [ras_missing(1), ras_missing(2, dead=True), ras_missing(3)]
    status = parse_status(ras_answer(ras_group([failed, busy], left, size=5)))
    assert troubles(status) == ["0xabc: dead 2", "0xabc: silent 1, 3", "0xabc: failed 0"]
    many = [ras_missing(rank) for rank in range(20)]
    (found,) = troubles(parse_status(ras_answer(ras_group([], many, size=20))))
    assert found.endswith("8, 9 and 10 more")


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object without a member."""
    return {key: value for key, value in document.items() if key != name}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no JSON"),
        (ras_answer(ras_group([ras_rank(0)]))[:-5], "cut short"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "without communicators"),
        (b"x" * (MAX_ANSWER_BYTES + 1), "longer than"),
        (ras_answer(ras_group([ras_rank(2)])), "rank"),
        (ras_answer(ras_group([ras_rank(0), ras_rank(1), ras_rank(1)])), "too long"),
        (ras_answer(ras_group([ras_rank(0, AllReduce=-1)])), "AllReduce"),
        (ras_answer(ras_group([ras_rank(0, AllReduce=2**64)])), "AllReduce"),
        (ras_answer(ras_group([ras_rank(0, pid=2**40)])), "pid"),
        (ras_answer(ras_group([], size=2**40)), "size"),
        (ras_answer(ras_group([], name="")), "without a hash"),
        (ras_answer(ras_group([without(ras_rank(0), "status")])), "something else than objects"),
        (ras_answer(ras_group([without(ras_rank(0), "collective_counts")])), "without counts"),
        (ras_answer(without(ras_group([]), "missing_ranks")), "no list"),
        (ras_answer({}), "size"),
    ],
)
def test_what_is_no_answer_is_refused(content: bytes, why: str) -> None:
    """With a reason."""
    with pytest.raises(RasError, match=why):
        parse_status(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
RANKS = st.dictionaries(st.sampled_from(sorted(ras_rank(0))), JSON, max_size=2).map(
    lambda changed: ras_rank(0) | changed
)
GROUPS = st.tuples(
    st.lists(RANKS, max_size=2),
    st.dictionaries(st.sampled_from(sorted(ras_group([]))), JSON, max_size=2),
).map(lambda pair: ras_answer(ras_group(pair[0]) | pair[1]))


@given(st.one_of(st.binary(max_size=200), JSON.map(lambda v: json.dumps(v).encode()), GROUPS))
def test_no_answer_harms_its_reader(content: bytes) -> None:
    """It is counts within the bounds of records, or is refused."""
    try:
        status = parse_status(content)
    except RasError:
        return
    dump = RasCounts(0, 2).take(status, pid=7, asked_at=ASKED)
    assert all(text.isprintable() for text in troubles(status))
    for one in dump.snapshot.operations if dump is not None else ():
        assert 0 <= one.sequence < 2**63
        assert one.communicator.isprintable()
