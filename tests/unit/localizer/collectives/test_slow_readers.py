"""Bytes that lie unread at a rank again and again, and those that lie there in a pause."""

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.slow_readers import SlowReaders, chance
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
        launches: int = 40,
        moved: bool = True,
        attempt: int = 1,
    ) -> None:
        """Read all ranks once; `launches` of each, and bytes that lie at some."""
        self._now_us += READ_US
        for rank in range(RANKS):
            self._received[rank] += 1_000_000 if moved else 0
            self._newest[rank] += launches
            lying = 65_536 if rank in unread else 0
            batch = SocketBatch(
                cluster="lab", rank_id=f"job1|{rank}", task_id="job1", rank=rank,
                host_id=f"h{rank}", taken_at=self._now_us,
                sockets=(
                    socket(
                        rank, (rank + 1) % RANKS, unread_bytes=lying,
                        received_bytes=self._received[rank],
                    ),
                ),
            )  # fmt: skip
            known = self._sockets.get(rank)
            if known is None:
                known = self._sockets[rank] = SocketState(batch, self._now_us * US_NS)
            else:
                known.apply_batch(batch, self._now_us * US_NS)
            self.readers.observe(known, attempt, self._newest[rank])

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
    assert (found.rank, found.unread > found.readings // 3) == (5, True)
    assert found.pace == pytest.approx(15 / 40, abs=0.02)
    job.healthy(20, share=0.0)
    assert job.readers.found is None
    for _ in range(8):
        job.read([5], launches=15)
    assert job.readers.found is not None


def test_a_pause_is_none_however_long() -> None:
    """Peers have sent what a rank that saves does not read: nothing more comes."""
    job = Job()
    job.healthy(60)
    job.read([0], launches=0)
    for _ in range(100):
        job.read([0], launches=0, moved=False)
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
