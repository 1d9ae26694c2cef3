"""Ranks that wait for each other in a chain, of which one works longer than ever, or stops."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import FaultLifecycle, HangClass
from tests.made_job import BEGIN_US, SECOND_US, Made, watch_job

RANKS = 6
# Each passes on what it has worked on to the next one, and all meet at the end.
GROUPS = {"all": range(RANKS), **{f"pair{k}": (k, k + 1) for k in range(RANKS - 1)}}
WORK_US = 100_000
OVER_US = 10_000
STEPS = 100
FAST_US = WORK_US + OVER_US
STEP_US = RANKS * FAST_US
SINCE_US = BEGIN_US + STEPS * STEP_US


def chain(works_us: Sequence[Sequence[int]], stops: int | None = None) -> list[list[Made]]:
    """Return what each rank launches in steps in which each works for so long.

    `stops`: a rank that launches nothing more when it has worked in the last step.
    """
    found: list[list[Made]] = [[] for _ in range(RANKS)]
    begin = BEGIN_US
    for number, works in enumerate(works_us):
        at, stands = begin, False
        launched: list[int] = []
        for rank, work in enumerate(works):
            if rank:
                found[rank].append((f"pair{rank - 1}", number, begin, None if stands else at))
            at += work
            stands |= number == len(works_us) - 1 and rank == stops
            if not stands and rank < RANKS - 1:
                found[rank].append((f"pair{rank}", number, at, at + OVER_US))
            at += OVER_US
            launched.append(at)
        for rank in range(RANKS if stops is None or number < len(works_us) - 1 else stops):
            found[rank].append(("all", number, launched[rank], None if stands else at))
        begin = at
    return found


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.lists(st.integers(400_000, 1_700_000), min_size=RANKS, max_size=RANKS),
        min_size=3, max_size=6,
    ),
    st.sampled_from([1, 2]),
)  # fmt: skip
def test_a_job_that_goes_on_more_slowly_than_ever_does_not_hang(
    slow: list[list[int]], every_s: int
) -> None:
    """The first wait for many times as long as ever, each of them works for a moment only."""
    ranks = chain([[WORK_US] * RANKS] * STEPS + slow)
    end = max(at for mine in ranks for _, _, at, _ in mine)
    found = watch_job(GROUPS, ranks, end, every_s=every_s)
    assert [hang for hang in found if hang.communicator is not None] == []


@settings(deadline=None, max_examples=25)
@given(st.integers(0, RANKS - 2), st.integers(0, 40), st.sampled_from([1, 2]))
def test_a_rank_that_stops_is_told_as_fast_as_ever(stops: int, later: int, every_s: int) -> None:
    """Within eight seconds, whenever collectors read it."""
    ranks = chain([[WORK_US] * RANKS] * (STEPS + later), stops)
    end = SINCE_US + later * STEP_US + 12 * SECOND_US
    found = watch_job(GROUPS, ranks, end, every_s=every_s)
    first = found[0]
    assert (first.state, first.hang_class, first.ranks) == (
        FaultLifecycle.OPEN, HangClass.NEVER_LAUNCHED, (stops,),
    )  # fmt: skip
    assert first.event_at - (SINCE_US + (later - 1) * STEP_US + stops * FAST_US) <= 8 * SECOND_US
    assert all(hang.state is not FaultLifecycle.RESOLVED for hang in found)
