"""The rank for which others wait again and again, whatever its clock says."""

from collections.abc import Callable

import pytest

from localizer.collectives.groups import line_up
from localizer.collectives.slow_ranks import SlowRank, find_slow_rank
from probers.collectives.flight_recorder import read_dump
from schemas.records import CollectiveSnapshot
from tests.flight_recorder import MESH, Rank

MS_NS = 1_000_000
STEPS = 24
# Operations of an iteration: two tensor-parallel, then two data-parallel.
PROGRAM = ((("1", "2"), 1), (("1", "2"), 9), (("3", "4"), 2), (("3", "4"), 1))


def run(late_ms: Callable[[int, int], float], *, library: str = "gloo") -> list[CollectiveSnapshot]:
    """Return four ranks of a job in which each operation begins when its last rank launches it.

    `late_ms` says how much longer a rank works before the second operation of an iteration.
    """
    clocks_s = (0, 90, -40, 3)
    ranks = [Rank(r, MESH, clock_ns=clocks_s[r] * 1_000 * MS_NS) for r in range(4)]
    free = [0.0] * 4
    for step in range(STEPS):
        for place, (names, work_ms) in enumerate(PROGRAM):
            for name in names:
                launched = {
                    r: free[r]
                    + work_ms
                    + (late_ms(r, step) if place == 1 else 0.1 * (r + step) % 2)
                    for r in MESH[name]
                }
                for r, time in launched.items():
                    ranks[r].launch(name)
                    at = 1_760_000_000_000 * MS_NS + ranks[r].clock_ns + round(time * MS_NS)
                    ranks[r].entries[-1]["time_created_ns"] = at
                    ranks[r].entries[-1]["profiling_name"] = f"{library}:all_reduce"
                    free[r] = max(launched.values())
    return [read_dump(rank.pickled(), f"d{rank.rank}").snapshot for rank in ranks]


def slow(snapshots: list[CollectiveSnapshot]) -> SlowRank | None:
    """Judge a job."""
    return find_slow_rank(snapshots, line_up(snapshots, range(4)))


@pytest.mark.parametrize("rank", range(4))
def test_the_slow_rank_is_named_and_not_those_that_wait_for_it(rank: int) -> None:
    """With clocks more than two minutes apart."""
    found = slow(run(lambda r, _: 20 if r == rank else 0))
    assert found is not None
    assert (found.rank, found.stretches) == (rank, 8)
    # Twenty of 33 ms an iteration.
    assert 0.5 < found.share < 0.7


@pytest.mark.parametrize(
    "late_ms",
    [
        lambda _r, _s: 0,
        lambda r, _s: 1 if r == 2 else 0,
        lambda r, s: 500 if r == 0 and s == 11 else 0,
        lambda r, s: 20 if r == s % 4 else 0,
    ],
    ids=["equal", "too little", "one pause", "in turns"],
)
def test_what_is_not_slow_again_and_again_is_not_named(
    late_ms: Callable[[int, int], float],
) -> None:
    """A checkpoint, and ranks that are late in turns, are none."""
    assert slow(run(late_ms)) is None


def test_launches_of_nccl_tell_nothing() -> None:
    """The host runs ahead of the GPU."""
    assert slow(run(lambda r, _: 20 if r == 1 else 0, library="nccl")) is None


def test_few_operations_tell_nothing() -> None:
    """Nor does a single rank."""
    snapshots = run(lambda r, _: 20 if r == 1 else 0)
    assert slow(snapshots[:1]) is None


def test_launches_at_one_time_tell_nothing() -> None:
    """A clock that stands still, or times that were made up."""
    ranks = [Rank(r, {"0": [0, 1, 2]}) for r in range(3)]
    for rank in ranks:
        for _ in range(40):
            rank.launch("0")
        for entry in rank.entries:
            entry["time_created_ns"] = 1_760_000_000_000 * MS_NS
            entry["profiling_name"] = "gloo:all_reduce"
    snapshots = [read_dump(rank.pickled(), f"d{rank.rank}").snapshot for rank in ranks]
    assert find_slow_rank(snapshots, line_up(snapshots, range(3))) is None
