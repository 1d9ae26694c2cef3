"""Of a job that records nothing: who is named shows why, and what shows nothing is not named."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.collectives.hang_watch import HangWatch
from schemas.enums import HangClass, ProcessState
from schemas.units import SECOND_NS
from tests.collective_batches import CLUSTER, seconds
from tests.unit.localizer.collectives.test_unrecorded import READ_S, Told

RANKS = 4
READINGS = 60
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
    works = draw(st.sets(st.integers(0, RANKS - 1), max_size=1))
    states: dict[int, set[ProcessState]] = {rank: set() for rank in range(RANKS)}
    for rank, state, _ in changes:
        states[rank].add(state)

    def within(s: int, span: tuple[int, int]) -> bool:
        return span[0] <= s // READ_S < span[0] + span[1]

    def process(s: int, rank: int) -> ProcessState:
        found = [state for who, state, span in changes if who == rank and within(s, span)]
        return found[-1] if found else ProcessState.SLEEPING

    def counted(s: int, rank: int, peer: int) -> Mapping[str, Any]:
        held = [span for ends, span in stuck if ends == {rank, peer} and within(s, span)]
        if not held:
            return {}
        waited_s = s - READ_S * min(begin for begin, _ in held)
        return {"unacked_bytes": 9, "backoff": 2, "stalled_ns": waited_s * SECOND_NS}

    job = Told(
        moves=lambda s: not any(within(s, span) for span in pauses), process=process,
        stuck=counted, share=lambda _s, rank: 0.9 if rank in works else 0.0,
    )  # fmt: skip
    return job, states, {ends for ends, _ in stuck}


@given(jobs())
@settings(max_examples=60)
def test_only_what_is_seen_is_named(
    drawn: tuple[Told, dict[int, set[ProcessState]], set[frozenset[int]]],
) -> None:
    """A rank for its process, both ends of a pair for its bytes; else nobody."""
    job, states, stuck = drawn
    watch = HangWatch(CLUSTER)
    for until_ns, records in seconds(job.until(READINGS * READ_S)):
        for arrival in records:
            watch.feed(arrival.key, arrival.record, arrival.at_ns)
        for hang in watch.advance(until_ns):
            match hang.hang_class:
                case HangClass.PROCESS_STOPPED:
                    assert all(ProcessState.STOPPED in states[rank] for rank in hang.ranks)
                case HangClass.RANK_MISSING:
                    assert all(ProcessState.GONE in states[rank] for rank in hang.ranks)
                case HangClass.NETWORK:
                    assert set(hang.ranks) <= frozenset().union(*stuck)
                case other:
                    assert (other, hang.ranks) == (HangClass.UNDECIDED, ())
