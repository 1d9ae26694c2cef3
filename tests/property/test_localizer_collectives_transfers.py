"""Which end of a transfer waits for which, where histories have lost their beginnings."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.groups import line_up
from localizer.collectives.transfers import waits_of_pairs
from localizer.collectives.waiting import Place, Wait
from probers.collectives.flight_recorder import read_dump
from schemas.records import CollectiveSnapshot
from tests.flight_recorder import Rank

RANKS = 3
GROUPS = {"0": [0, 1, 2], "1": [0, 1], "2": [1, 2], "9": [0, 1, 2]}
# A step of the program: an operation of a group, or a transfer from one rank to another in "9".
STEPS = st.one_of(
    st.sampled_from(["0", "1", "2"]), st.permutations(range(RANKS)).map(lambda p: (p[0], p[1]))
)
Program = list[str | tuple[int, int]]


def snapshot(rank: int, program: Program, upto: int, lost: int) -> CollectiveSnapshot:
    """Return a rank that waits in the last of its first operations, and lost the very first."""
    made = Rank(rank, GROUPS)
    mine = [
        step for step in program if rank in (GROUPS[step] if isinstance(step, str) else step)
    ][:upto]  # fmt: skip
    for number, step in enumerate(mine):
        state = "started" if number == len(mine) - 1 else "completed"
        if isinstance(step, str):
            made.launch(step, state=state)
        else:
            places = "send {}->{}" if step[0] == rank else "recv {1}<-{0}"
            made.launch("9", places.format(*step), p2p=True, state=state)
    held = read_dump(made.pickled(), f"d{rank}").snapshot
    if not lost:
        return held
    return replace(held, dropped_before=lost, operations=held.operations[lost:])


@given(
    st.lists(STEPS, min_size=1, max_size=14),
    st.lists(st.integers(0, 14), min_size=RANKS, max_size=RANKS),
    st.lists(st.integers(0, 8), min_size=RANKS, max_size=RANKS),
)
def test_an_end_that_was_not_launched_is_never_taken_for_launched(
    program: Program, upto: list[int], lost: list[int]
) -> None:
    """However far each rank came when it was read, and whatever it has lost."""
    cut = [snapshot(r, program, upto[r], lost[r]) for r in range(RANKS)]
    whole = [snapshot(r, program, upto[r], 0) for r in range(RANKS)]
    for wait, launched in waits(cut, whole):
        assert launched or not isinstance(wait.target, Place)
        assert not launched or not wait.sure or isinstance(wait.target, Place)
    for wait, launched in waits(whole, whole):
        assert wait.sure
        assert launched == isinstance(wait.target, Place)


def waits(
    held: list[CollectiveSnapshot], whole: list[CollectiveSnapshot]
) -> Iterator[tuple[Wait, bool]]:
    """Yield who waits in a transfer, and whether the other end has launched it.

    Not where the other one waits in one of the pair as well: that is taken for the same.
    """
    found = waits_of_pairs(held, {g.name: g for g in line_up(held, range(RANKS))})
    ends = Counter((w.place.sender, w.place.receiver) for w in found)
    for wait in found:
        pair = wait.place.sender, wait.place.receiver
        if ends[pair] == 1:
            other = next(rank for rank in pair if rank not in {None, wait.waiter})
            launched = [
                sum((o.sender, o.receiver) == pair for o in whole[rank or 0].operations)
                for rank in (other, wait.waiter)
            ]
            yield wait, launched[0] >= launched[1]
