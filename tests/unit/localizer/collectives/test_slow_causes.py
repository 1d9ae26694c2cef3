"""Jobs that go on more slowly than before: who holds the others up, and when nobody says so."""

from collections.abc import Mapping
from typing import Any

from localizer.collectives.hang_watch import HangWatch
from schemas.enums import (
    CollectiveState,
    FaultLifecycle,
    HangClass,
)
from schemas.records import Hang, RankSocket, SocketBatch
from schemas.units import US_NS
from tests.collective_batches import socket
from tests.made_job import BEGIN_US, feed, operation

RANKS = 4
PERIOD_US = 2_000_000
WORK_US = 200_000


def run(
    *,
    work_us: Mapping[int, int],
    transfer_us: int = 0,
    sockets: Mapping[int, tuple[RankSocket, ...]] | None = None,
    wrong_s: int = 90,
    heals_s: int = 150,
    end_s: int = 240,
) -> list[Hang]:
    """Return the transitions of a job whose ranks take longer between `wrong_s` and `heals_s`."""
    launched: dict[int, list[int]] = {rank: [] for rank in range(RANKS)}
    ends: list[int] = []
    now = BEGIN_US
    while now < BEGIN_US + end_s * 1_000_000:
        bad = wrong_s <= (now - BEGIN_US) / 1e6 < heals_s
        times = {
            r: now + WORK_US + 3_000 * ((r + len(ends)) % RANKS) + (work_us.get(r, 0) if bad else 0)
            for r in range(RANKS)
        }
        for rank, at in times.items():
            launched[rank].append(at)
        now = max(times.values()) + (transfer_us if bad else 0)
        ends.append(now)
    watch, found = HangWatch("lab"), []
    sent = dict.fromkeys(range(RANKS), 0)
    for read in range(BEGIN_US, BEGIN_US + end_s * 1_000_000, PERIOD_US):
        for rank in range(RANKS):
            ops = [
                operation(n, ("0", n, at, None), done=ends[n] <= read)
                for n, at in enumerate(launched[rank])
                if at <= read and n >= sent[rank]
            ]
            sent[rank] += sum(o.state is CollectiveState.COMPLETED for o in ops)
            feed(watch, rank, read, tuple(ops), size=RANKS, counted=False)
            if sockets and wrong_s <= (read - BEGIN_US) / 1e6 < heals_s:
                watch.feed("", _sockets(rank, read, sockets), read * US_NS)
        found += watch.advance(read * US_NS)
    return found


def _sockets(rank: int, now: int, sockets: Mapping[int, tuple[RankSocket, ...]]) -> SocketBatch:
    return SocketBatch(
        cluster="lab", rank_id=f"job1|{rank}", task_id="job1", rank=rank, host_id=f"h{rank}",
        taken_at=now, sockets=sockets.get(rank, ()),
    )  # fmt: skip


def test_a_rank_that_computes_longer_is_named_and_the_end_is_told() -> None:
    """The others wait for it again and again."""
    opened, over = run(work_us={1: 600_000})
    assert (opened.hang_class, opened.ranks) == (HangClass.SLOW_COMPUTE, (1,))
    assert opened.waiting_ranks == (0, 2, 3)
    assert opened.event_at - BEGIN_US < (90 + 30) * 1_000_000
    assert over.state is FaultLifecycle.RESOLVED
    assert over.event_at - BEGIN_US < (150 + 15) * 1_000_000


def test_a_job_whose_ranks_are_all_slower_is_nobodys_fault() -> None:
    """A larger batch, a busy machine: nobody holds the others up."""
    assert run(work_us=dict.fromkeys(range(RANKS), 600_000)) == []


def test_a_pause_is_not_slow() -> None:
    """Twenty seconds in which all ranks do something else."""
    assert run(work_us=dict.fromkeys(range(RANKS), 20_000_000), wrong_s=90, heals_s=91) == []


def test_what_waits_to_be_sent_to_one_rank_is_the_network() -> None:
    """Its way is narrow: bytes wait at both ends of all its sockets."""
    queue: dict[str, Any] = {"queued_bytes": 900_000}
    sockets = {
        0: (socket(0, 2, **queue), socket(0, 1)), 1: (socket(1, 0), socket(1, 2, **queue)),
        2: (socket(2, 0, **queue), socket(2, 3, **queue)), 3: (socket(3, 2),),
    }  # fmt: skip
    opened, _ = run(work_us={}, transfer_us=900_000, sockets=sockets)
    assert (opened.hang_class, opened.ranks) == (HangClass.NETWORK, (2,))
    assert opened.endpoint_ids == ("e2",)
    assert "wait to be sent" in opened.evidence[1]
