"""Bytes that wait for a rank again and again, and those that do so in a pause."""

from collections.abc import Iterable
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.slow_readers import (
    Counts,
    SlowReaders,
    chance,
    chance_after,
    chance_of_none,
    chance_of_share,
)
from localizer.collectives.sockets import SocketState
from schemas.records import SocketBatch
from schemas.units import US_NS
from tests.collective_batches import socket

RANKS = 8
READ_US = 2_000_000
BEGIN_US = 1_700_000_000_000_000


class Job:
    """Ranks whose sockets are read every two seconds."""

    def __init__(self) -> None:
        self.readers = SlowReaders()
        self._sockets: dict[int, SocketState] = {}
        self._received = dict.fromkeys(range(RANKS), 0)
        self._newest = dict.fromkeys(range(RANKS), 0)
        self._now_us = BEGIN_US

    def read(
        self,
        unread: Iterable[int] = (),
        *,
        full: Iterable[int] = (),
        launches: int = 40,
        moved: bool = True,
        attempt: int = 1,
    ) -> None:
        """Read all ranks once; `launches` of each, bytes that lie at some, some without room."""
        self._now_us += READ_US
        for rank in range(RANKS):
            self._received[rank] += 1_000_000 if moved else 0
            self._newest[rank] += launches
            lying = 65_536 if rank in unread else 0
            queued = 900_000 if (rank + 1) % RANKS in full else 0
            batch = SocketBatch(
                cluster="lab", rank_id=f"job1|{rank}", task_id="job1", rank=rank,
                host_id=f"h{rank}", taken_at=self._now_us,
                sockets=(
                    socket(
                        rank, (rank + 1) % RANKS, peer_rank=(rank + 1) % RANKS,
                        unread_bytes=lying,
                        received_bytes=self._received[rank], queued_bytes=queued,
                        acked_bytes=self._received[rank],
                    ),
                ),
            )  # fmt: skip
            known = self._sockets.get(rank)
            if known is None:
                known = self._sockets[rank] = SocketState(batch, self._now_us * US_NS)
            else:
                known.apply_batch(batch, self._now_us * US_NS)
            self.readers.observe(known, attempt, self._newest[rank])
            self.readers.note_full(known.full_peers(self._sockets))

    def healthy(self, readings: int, seed: int = 1, share: float = 0.01) -> None:
        """Read as often; bytes lie somewhere by chance."""
        random = Random(seed)
        for _ in range(readings):
            self.read([rank for rank in range(RANKS) if random.random() < share])


def test_a_rank_at_which_bytes_lie_while_it_is_slower_is_named_and_its_end_is_told() -> None:
    """In half of the readings it shows, too; afterwards it may come again."""
    job = Job()
    job.healthy(60)
    for number in range(16):
        job.read([5] if number % 2 else [], launches=15)
    found = job.readers.found
    assert found is not None
    assert (found.rank, found.held_up > found.readings // 3) == (5, True)
    assert found.pace == pytest.approx(15 / 40, abs=0.02)
    job.healthy(20, share=0.0)
    assert job.readers.found is None
    for _ in range(8):
        job.read([5], launches=15)
    assert job.readers.found is not None


@pytest.mark.parametrize("full", [False, True])
def test_one_reading_of_four_tells_within_a_minute(full: bool) -> None:
    """Where those of the others show nothing: bytes lie at it, or a peer has no room for them."""
    job = Job()
    job.healthy(60, share=0.0)
    for number in range(30):
        held_up = [5] if number % 4 == 0 else []
        job.read([] if full else held_up, full=held_up if full else (), launches=15)
    found = job.readers.found
    assert found is not None
    assert (found.rank, found.usual, found.others) == (5, 0.0, 0.0)


def test_a_rank_that_is_seen_to_be_slow_now_and_then_stays_so() -> None:
    """Until it is in none of its readings for longer than chance has it."""
    job = Job()
    job.healthy(60, share=0.0)
    for number in range(120):
        job.read([5] if number % 5 == 0 else [], launches=15)
        assert (job.readers.found is None) is (number < 15)
    job.healthy(60, share=0.0)
    assert job.readers.found is None


def test_what_holds_up_all_ranks_is_nobodys_fault() -> None:
    """A network that is slow: all of them are held up more often than ever, at random."""
    job, random = Job(), Random(1)
    job.healthy(60)
    for _ in range(60):
        job.read([rank for rank in range(RANKS) if random.random() < 0.4], launches=15)
        assert job.readers.found is None


def test_a_rank_that_was_always_held_up_more_than_others_is_not_named() -> None:
    """Ranks are alike mostly, not always: what its own readings show counts as well."""
    job, random = Job(), Random(1)
    for number in range(300):
        job.read([3] if random.random() < 0.3 else [], launches=40 if number < 60 else 15)
        assert job.readers.found is None


@pytest.mark.parametrize("full", [False, True])
def test_a_pause_is_none_however_long(full: bool) -> None:
    """Peers have sent what a rank that saves does not read: nothing more comes."""
    job = Job()
    job.healthy(60)
    at: tuple[list[int], list[int]] = ([], [0]) if full else ([0], [])
    job.read(at[0], full=at[1], launches=0)
    for _ in range(100):
        job.read(at[0], full=at[1], launches=0, moved=False)
    job.healthy(10)
    assert job.readers.found is None


def test_readings_that_fall_together_with_iterations_are_none() -> None:
    """The same moment of each iteration is read, and the job is no slower."""
    job = Job()
    job.healthy(60)
    for _ in range(30):
        job.read([3])
    assert job.readers.found is None


def test_a_process_that_was_started_anew_has_to_be_seen_anew() -> None:
    """And a job that is forgotten has no history."""
    job = Job()
    job.healthy(60)
    for _ in range(8):
        job.read([5], launches=15)
    assert job.readers.found is not None
    job.read(attempt=2)
    assert job.readers.found is None
    # What its first iteration looks like is not held against what was usual before.
    for _ in range(6):
        job.read([5], launches=1, attempt=2)
    assert job.readers.found is None
    job.readers.forget()
    assert job.readers.weight == 0


def test_a_pause_does_not_make_a_rank_slow() -> None:
    """Its readings may be in step with its iterations; in a pause nothing is launched."""
    job = Job()
    job.healthy(60)
    for _ in range(2):
        job.read([3])
    for _ in range(30):
        job.read([3], launches=0, moved=False)
    for _ in range(8):
        job.read([3])
    assert job.readers.found is None


@pytest.mark.parametrize("readings", [1, 5, 20])
def test_a_new_job_has_no_history_yet(readings: int) -> None:
    """What it begins with, as broadcasts of weights, may be slower than what it did before."""
    job = Job()
    for _ in range(readings + 1):
        job.read()
    for _ in range(8):
        job.read([5], launches=1)
    assert job.readers.found is None


def test_a_rank_that_is_no_more_reads_nothing() -> None:
    """A job may go on with fewer ranks."""
    job = Job()
    job.healthy(60)
    for _ in range(8):
        job.read([5], launches=15)
    job.readers.forget_rank(4)
    assert job.readers.found is not None
    job.readers.forget_rank(5)
    assert job.readers.found is None


@pytest.mark.parametrize("seed", range(4))
def test_healthy_ranks_are_not_named(seed: int) -> None:
    """Ten minutes of eight ranks, one reading in ten with bytes, and iterations that differ."""
    job, random = Job(), Random(seed)
    for _ in range(300):
        unread = [rank for rank in range(RANKS) if random.random() < 0.1]
        job.read(unread, launches=random.randrange(10, 70))
        assert job.readers.found is None


@given(st.integers(0, 8), st.integers(1, 8), st.floats(0.0, 1.0))
def test_chance_equals_counting_all_outcomes(least: int, count: int, frequency: float) -> None:
    """Of so many readings, each with bytes or without."""
    expected = 0.0
    for outcome in range(2**count):
        hits = outcome.bit_count()
        if hits >= least:
            expected += frequency**hits * (1.0 - frequency) ** (count - hits)
    assert chance(least, count, frequency) == pytest.approx(expected)


@given(st.integers(0, 7), st.integers(1, 7), st.integers(1, 4), st.floats(0.001, 1_000.0))
def test_chance_after_equals_an_urn(least: int, count: int, hits: int, missed: float) -> None:
    """Of balls for hits and misses; each that is drawn comes back with one of its kind."""
    found = []
    for outcome in product([True, False], repeat=count):
        balls, likely = [missed, float(hits)], 1.0
        for hit in outcome:
            likely *= balls[hit] / sum(balls)
            balls[hit] += 1.0
        found.append((sum(outcome), likely))
    expected = sum(likely for drawn, likely in found if drawn >= least)
    assert chance_after(least, count, hits, missed) == pytest.approx(expected)
    if hits == 1:
        assert chance_of_share(least, count, missed) == pytest.approx(expected)


@given(st.integers(0, 60), st.integers(1, 30), st.integers(1, 30))
def test_none_is_what_one_or_more_is_not(count: int, hits: int, missed: int) -> None:
    """The urn once more."""
    expected = 1.0 - chance_after(1, count, hits, missed)
    assert chance_of_none(count, hits, missed) == pytest.approx(expected, abs=1e-9)


@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, RANKS - 1)), st.sampled_from(["read", "pause", "gone", "anew"])
        ),
        max_size=60,
    )
)
def test_counts_are_those_of_all_ranks(steps: list[tuple[set[int], str]]) -> None:
    """Whatever comes: what is counted as it goes equals what the ranks hold."""
    job, attempt = Job(), 1
    for unread, what in steps:
        if what == "gone":
            job.readers.forget_rank(min(unread, default=0))
        attempt += what == "anew"
        job.read(unread, moved=what != "pause", attempt=attempt)
        expected = Counts()
        for held in job.readers.held.values():
            expected.add(held)
        assert job.readers.counts == expected
