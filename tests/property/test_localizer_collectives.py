"""A verdict is a function of what was recorded: not of the order of files, nor of any clock."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.diagnosis import Diagnosis, HangClass, diagnose
from ops.jobs.dumps import read_dumps
from ops.jobs.hang_report import as_document, as_text
from probers.collectives.flight_recorder import read_dump
from schemas.records import CollectiveSnapshot
from tests.collective_dumps import CASES, unpack
from tests.flight_recorder import Rank

SECOND = 1_000_000
STATES = ("scheduled", "started", "completed")
OPERATIONS = ("all_reduce", "broadcast", "all_gather", "send 0->1", "recv 1<-0", "barrier")
GROUPS = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3], "5": [0, 2, 3]}


@cache
def snapshots_of(name: str) -> list[CollectiveSnapshot]:
    """Return the snapshots of a real job."""
    with tempfile.TemporaryDirectory() as folder:
        return read_dumps(unpack(name, Path(folder)).folder).snapshots


def shifted(snapshot: CollectiveSnapshot, by_us: int) -> CollectiveSnapshot:
    """Return what a rank with another clock would have recorded."""

    def later(time: int | None) -> int | None:
        return None if time is None else time + by_us

    return replace(
        snapshot,
        taken_at=later(snapshot.taken_at),
        operations=tuple(
            o._replace(
                launched_at=later(o.launched_at),
                started_at=later(o.started_at),
                completed_at=later(o.completed_at),
            )
            for o in snapshot.operations
        ),
    )


def verdict(found: Diagnosis) -> Any:
    """Return what a diagnosis says, without times."""
    document = as_document(found)
    for finding in document["findings"]:
        del finding["since_us"]
    slow = document["slow_rank"]
    return {**document, "slow_rank": slow and (slow["rank"], slow["stretches"])}


@given(st.data())
def test_neither_order_nor_clocks_change_a_verdict(data: st.DataObject) -> None:
    """Hosts are up to 90 s apart, and files come in any order."""
    name = data.draw(st.sampled_from(CASES))
    snapshots = snapshots_of(name)
    shifts = data.draw(
        st.lists(
            st.integers(-90 * SECOND, 90 * SECOND),
            min_size=len(snapshots), max_size=len(snapshots),
        )
    )  # fmt: skip
    moved = [shifted(s, by) for s, by in zip(snapshots, shifts, strict=True)]
    assert verdict(diagnose(data.draw(st.permutations(moved)))) == verdict(diagnose(snapshots))


LAUNCHES = st.lists(
    st.tuples(
        st.sampled_from(sorted(GROUPS)),
        st.sampled_from(OPERATIONS),
        st.sampled_from([[[8]], [[4]], []]),
        st.sampled_from(STATES),
    ),
    max_size=8,
)


@given(st.lists(LAUNCHES, min_size=4, max_size=4), st.sets(st.integers(0, 3), min_size=1))
def test_any_job_has_a_diagnosis_that_holds_together(
    launches: list[list[tuple[str, str, list[list[int]], str]]], present: set[int]
) -> None:
    """Who is named is a rank of the job, missing only without a dump; all can be printed."""
    snapshots = []
    for number in sorted(present):
        rank = Rank(number, GROUPS)
        for group, operation, sizes, state in launches[number]:
            place = {"s": 0, "r": 1}.get(operation[0]) if operation[-1].isdigit() else None
            members = GROUPS[group]
            if number in members and place in {None, members.index(number)}:
                rank.launch(group, operation, sizes=sizes, state=state, p2p=operation[-1].isdigit())
        snapshots.append(read_dump(rank.pickled(), f"d{number}").snapshot)
    found = diagnose(snapshots)
    for finding in found.findings:
        if finding.hang_class is HangClass.MISSING_DUMP:
            assert set(finding.ranks) <= set(found.without_dump)
        if finding.hang_class is HangClass.NEVER_LAUNCHED:
            assert set(finding.ranks) <= present
        assert not set(finding.ranks) & set(finding.waiting)
        assert finding.ranks or finding.candidates
    assert list(as_text(found))
    assert set(found.without_dump) == set(range(4)) - present
