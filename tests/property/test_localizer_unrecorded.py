"""Of a job that records nothing: who is named shows why, and what shows nothing is not named.

What was told is over once all is well.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.collectives.hang_watch import HangWatch
from schemas.enums import FaultLifecycle, HangClass, ProcessState
from schemas.units import SECOND_NS
from tests.collective_batches import ATTEMPT, CLUSTER, seconds
from tests.unit.localizer.collectives.test_unrecorded import BEGIN_S, READ_S, Told, told

RANKS = 4
READINGS = 60
# Before anything goes wrong the job trains for so many readings, and so many once all is well.
WARM, WELL = 35, 45
STATES = (
    ProcessState.RUNNING, ProcessState.SLEEPING, ProcessState.DISK, ProcessState.STOPPED,
    ProcessState.GONE,
)  # fmt: skip
# What is so for some readings, from one on.
SPANS = st.tuples(st.integers(0, READINGS), st.integers(1, READINGS))


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Told, dict[int, set[ProcessState]], set[frozenset[int]]]:
    """Draw a job in which some things go wrong; return it, what each process did, stuck pairs."""
    changes = draw(
        st.lists(st.tuples(st.integers(0, RANKS - 1), st.sampled_from(STATES), SPANS), max_size=4)
    )
    pair = st.sets(st.integers(0, RANKS - 1), min_size=2, max_size=2).map(frozenset)
    stuck = draw(st.lists(st.tuples(pair, SPANS), max_size=2))
    pauses = draw(st.lists(SPANS, max_size=2))
    silent = draw(st.lists(st.tuples(st.integers(0, RANKS - 1), SPANS), max_size=2))
    works = draw(st.sets(st.integers(0, RANKS - 1), max_size=1))
    states: dict[int, set[ProcessState]] = {rank: set() for rank in range(RANKS)}
    for rank, state, _ in changes:
        states[rank].add(state)

    def within(s: int, span: tuple[int, int]) -> bool:
        reading = s // READ_S - WARM
        return span[0] <= reading < min(span[0] + span[1], READINGS)

    def process(s: int, rank: int) -> ProcessState:
        found = [state for who, state, span in changes if who == rank and within(s, span)]
        return found[-1] if found else ProcessState.SLEEPING

    def counted(s: int, rank: int, peer: int) -> Mapping[str, Any]:
        held = [span for ends, span in stuck if ends == {rank, peer} and within(s, span)]
        if not held:
            return {}
        waited_s = s - READ_S * (WARM + min(begin for begin, _ in held))
        return {"unacked_bytes": 9, "backoff": 2, "stalled_ns": waited_s * SECOND_NS}

    job = Told(
        moves=lambda s: not any(within(s, span) for span in pauses), process=process,
        stuck=counted, share=lambda _s, rank: 0.9 if rank in works else 0.0,
        heard=lambda s, rank: not any(r == rank and within(s, span) for r, span in silent),
    )  # fmt: skip
    return job, states, {ends for ends, _ in stuck}


@given(jobs())
@settings(max_examples=40)
def test_only_what_is_seen_is_named(
    drawn: tuple[Told, dict[int, set[ProcessState]], set[frozenset[int]]],
) -> None:
    """A rank for its process, both ends of a pair for its bytes; else nobody."""
    job, states, stuck = drawn
    watch = HangWatch(CLUSTER)
    for until_ns, records in seconds(job.until((WARM + READINGS + WELL) * READ_S)):
        for arrival in records:
            watch.feed(arrival.key, arrival.record, arrival.at_ns)
        for hang in watch.advance(until_ns):
            if hang.state is FaultLifecycle.RESOLVED:
                continue
            match hang.hang_class:
                case HangClass.PROCESS_STOPPED:
                    assert all(_stopped_twice(job, rank, until_ns) for rank in hang.ranks)
                case HangClass.RANK_MISSING:
                    assert all(ProcessState.GONE in states[rank] for rank in hang.ranks)
                    assert 2 * len(hang.ranks) < RANKS
                case HangClass.NETWORK:
                    assert set(hang.ranks) <= frozenset().union(*stuck)
                case other:
                    assert (other, hang.ranks) == (HangClass.UNDECIDED, ())
    assert watch.open_hangs == []


def _stopped_twice(job: Told, rank: int, until_ns: int) -> bool:
    """Return whether the readings of the last four seconds, none silent, show a process stopped."""
    last_s = until_ns // SECOND_NS - BEGIN_S
    read = [s for s in range(0, last_s + 1, READ_S) if job.heard(s, rank)]
    late = [s for s in read if s >= read[-1] - 4]
    fresh = last_s - read[-1] <= 10
    return fresh and all(job.process(s, rank) is ProcessState.STOPPED for s in late)


@given(st.integers(30, 150), st.integers(2, 100), st.integers(0, 120))
@settings(max_examples=30)
def test_a_restart_tells_nothing(down_s: int, away_s: int, load_s: int) -> None:
    """However long the new processes are not there, and then load before bytes move."""
    up_s = down_s + away_s
    job = Told(
        moves=lambda s: not down_s <= s < up_s + load_s,
        heard=lambda s, _rank: not down_s <= s < up_s,
        attempt=lambda s: ATTEMPT + (up_s * 1_000_000 if s >= up_s else 0),
    )
    assert told(job.until(up_s + load_s + 100)) == []
