"""From readings of ranks to records."""

from dataclasses import replace
from typing import Any

import pytest

from probers.collectives.core import (
    GONE_TOLD_US,
    MAX_OPERATIONS,
    NUMBERS_EACH,
    SNAPSHOT_US,
    Collector,
    DumpReading,
    as_documents,
)
from probers.collectives.nccl_ring import RingReader
from probers.collectives.processes import JobRank, ProcessReading
from schemas.bounds import violation
from schemas.codec import to_datum
from schemas.enums import CollectiveSource, ProcessState
from schemas.records import CollectiveBatch, Communicator, RankSocket
from schemas.topics import COLLECTIVE_COMM, COLLECTIVE_OP
from tests.flight_recorder import BEGIN_NS, WORLD, Rank
from tests.nccl_rings import NOW_US, ring

BEGIN = BEGIN_NS // 1_000
SECOND = 10**6
KEY = "job1", 0
JOB = JobRank(
    task_id="job1", rank=0, world_size=4, endpoint_ids=("w0/r0",), dump_base="/dev/shm/fr/rank_"
)
PROCESS = ProcessReading(
    pid=4711, parent=1, program="python", state=ProcessState.SLEEPING, cpu_ns=7,
    started_at=BEGIN - 60 * SECOND,
)  # fmt: skip


class Watched:
    """A collector with one rank, and what it told."""

    def __init__(self) -> None:
        self.collector = Collector("c1", "h0")
        self.collector.observe_process(JOB, PROCESS)

    def dump(
        self, content: bytes | None, written_at: int = BEGIN + SECOND, *, live: bool = False
    ) -> None:
        """Let a dump be read."""
        reading = DumpReading(content=content, written_at=written_at, live=live)
        self.collector.observe_dump(KEY, reading)

    def told(self, now: int) -> tuple[list[CollectiveBatch], list[Communicator]]:
        """Return the records at a time, in bounds all of them."""
        messages = self.collector.batches(KEY, now)
        for message in messages:
            assert violation(message.topic.name, to_datum(message.record), now * 1_000) is None
            assert getattr(message.record, message.topic.key_field) == message.key
        return (
            [m.record for m in messages if m.topic is COLLECTIVE_OP],
            [m.record for m in messages if m.topic is COLLECTIVE_COMM],
        )

    def batch(self, now: int) -> CollectiveBatch:
        """Return the one batch at a time."""
        ((batch,), _) = self.told(now)
        return batch


def numbers(batch: CollectiveBatch) -> list[int]:
    """Return which operations a batch holds."""
    return [operation.record_id for operation in batch.operations]


def test_a_rank_without_a_dump_lives_all_the_same() -> None:
    """Its process is told, and why its operations are not."""
    watched = Watched()
    watched.collector.observe_dump(KEY, DumpReading(missing_reason="no dump: rank_0"))
    batch = watched.batch(BEGIN)
    assert (batch.rank_id, batch.host_id, batch.endpoint_ids) == ("job1|0", "h0", ("w0/r0",))
    assert (batch.pid, batch.process_state, batch.cpu_ns) == (4711, ProcessState.SLEEPING, 7)
    assert (batch.recorded_at, batch.missing_reason) == (None, "no dump: rank_0")
    assert (batch.attempt, batch.world_size, batch.operations) == (PROCESS.started_at, 4, ())


def test_only_changes_go_out_and_all_that_matters_each_half_minute() -> None:
    """A pending operation is told again when it ends, and in each snapshot."""
    watched, rank = Watched(), Rank(0, WORLD).launch("0").launch("0", state="scheduled")
    watched.dump(rank.pickled())
    first, groups = watched.told(BEGIN + SECOND)
    assert (first[0].snapshot, numbers(first[0])) == (True, [0, 1])
    assert [(g.communicator, g.ranks) for g in groups] == [("0", (0, 1, 2, 3))]
    watched.dump(None, BEGIN + 2 * SECOND)
    second = watched.batch(BEGIN + 3 * SECOND)
    assert (second.snapshot, numbers(second)) == (False, [])
    assert second.recorded_at == BEGIN + 2 * SECOND
    rank.entries[1] |= {"state": "completed", "retired": True}
    watched.dump(rank.launch("0", state="started").pickled(), BEGIN + 3 * SECOND)
    third = watched.batch(BEGIN + 5 * SECOND)
    assert numbers(third) == [1, 2]
    again = watched.batch(BEGIN + SECOND + 2 * SNAPSHOT_US)
    assert (again.snapshot, numbers(again)) == (True, [2])
    assert again.missing_reason is not None
    assert again.missing_reason.startswith("no dump for ")


def test_what_the_ring_lost_is_counted() -> None:
    """Before the first reading, and between two."""
    watched, rank = Watched(), Rank(0, WORLD)
    for _ in range(10):
        rank.launch("0")
    watched.dump(rank.pickled(ring=4))
    assert watched.batch(BEGIN + SECOND).dropped_before == 6
    for _ in range(10):
        rank.launch("0")
    watched.dump(rank.pickled(ring=4), BEGIN + 2 * SECOND)
    assert watched.batch(BEGIN + 3 * SECOND).dropped_before == 12


class Runs:
    """A pickle of it would run code."""

    def __reduce__(self) -> Any:
        return print, ("ran",)


@pytest.mark.parametrize(
    ("content", "written_at", "says"),
    [
        (__import__("pickle").dumps(Runs()), BEGIN, "refused"),
        (Rank(0, WORLD).launch("0").pickled()[:40], BEGIN, "refused"),
        (b"", BEGIN, "empty"),
        (b"not a dump", BEGIN, "neither pickle nor JSON"),
        (Rank(0, WORLD).launch("0").pickled(), PROCESS.started_at - 10 * SECOND, "earlier attempt"),
        (Rank(1, {"0": [1, 2], "1": [1, 3]}).launch("0").launch("1").pickled(), BEGIN, "of rank 1"),
    ],
    ids=["code", "truncated", "empty", "else", "earlier", "other"],
)
def test_a_dump_that_cannot_be_used_is_refused_and_counted(
    content: bytes, written_at: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rank goes on to be told, with the reason; a good dump afterwards is used."""
    watched = Watched()
    watched.dump(content, written_at)
    batch = watched.batch(BEGIN + SECOND)
    assert says in (batch.missing_reason or "")
    assert (batch.recorded_at, batch.operations) == (None, ())
    assert watched.collector.counts.refused.total() == 1
    watched.dump(None, written_at)
    assert says in (watched.batch(BEGIN + 2 * SECOND).missing_reason or "")
    watched.dump(Rank(0, WORLD).launch("0").pickled(), BEGIN + 2 * SECOND)
    assert numbers(watched.batch(BEGIN + 3 * SECOND)) == [0]
    assert capsys.readouterr().out == ""


def test_why_ras_says_nothing_is_said_once_however_often_it_is_seen() -> None:
    """A refused dump that stays as it is is looked at for hours."""
    watched = Watched()
    for look in range(2_000):
        watched.dump(b"no dump" if look == 0 else None)
        watched.collector.observe_no_ras(KEY, "Connection refused")
    reason = watched.batch(BEGIN).missing_reason or ""
    assert reason.startswith("refused: ")
    assert reason.count("RAS: Connection refused") == 1
    watched.dump(Rank(0, WORLD).launch("0").pickled())
    assert watched.batch(BEGIN + SECOND).missing_reason is None


def test_another_process_is_another_attempt() -> None:
    """Nothing of the former stays; one that began earlier is no new one."""
    watched = Watched()
    watched.dump(Rank(0, WORLD).launch("0").launch("0", state="scheduled").pickled())
    watched.batch(BEGIN + SECOND)
    later = replace(PROCESS, pid=9, started_at=BEGIN + 10 * SECOND)
    watched.collector.observe_process(JOB, later)
    watched.collector.observe_process(JOB, PROCESS)
    batch = watched.batch(BEGIN + 12 * SECOND)
    assert (batch.attempt, batch.pid, batch.snapshot) == (later.started_at, 9, True)
    assert (batch.operations, batch.missing_reason) == ((), "no dump yet")


def test_a_rank_that_ended_is_told_for_a_while() -> None:
    """Then it is forgotten."""
    watched = Watched()
    watched.collector.observe_end(KEY, BEGIN)
    assert watched.batch(BEGIN).process_state is ProcessState.GONE
    watched.collector.observe_end(KEY, BEGIN + SECOND)
    assert watched.batch(BEGIN + GONE_TOLD_US).process_state is ProcessState.GONE
    assert watched.collector.ranks == ()
    assert watched.told(BEGIN + GONE_TOLD_US + SECOND) == ([], [])


def test_many_operations_are_several_batches() -> None:
    """A message stays small; together they hold all."""
    watched, rank = Watched(), Rank(0, WORLD)
    for _ in range(MAX_OPERATIONS + 5):
        rank.launch("0")
    watched.dump(rank.json())
    batches, _ = watched.told(BEGIN + SECOND)
    assert [len(batch.operations) for batch in batches] == [MAX_OPERATIONS, 5]


def test_communicators_are_told_again_each_hour() -> None:
    """Their topic keeps them for a week."""
    watched = Watched()
    watched.dump(Rank(0, WORLD).launch("0").pickled())
    assert len(watched.told(BEGIN + SECOND)[1]) == 1
    assert watched.told(BEGIN + 60 * SECOND)[1] == []
    assert len(watched.told(BEGIN + 3_700 * SECOND)[1]) == 1


def test_sockets_are_a_record_and_documents_are_plain() -> None:
    """With the reason why there are none."""
    socket = RankSocket(
        protocol="tcp", local_address="a", local_port=1, peer_address="b", peer_port=2
    )
    message = Watched().collector.sockets(KEY, [socket], "why", BEGIN)
    assert violation(message.topic.name, to_datum(message.record)) is None
    (document,) = as_documents([message])
    assert document["topic"] == "collective.flow.v1"
    assert document["record"]["missing_reason"] == "why"
    assert document["record"]["sockets"][0]["peer_port"] == 2


def ring_reading(watched: Watched, rank: int = 0, world: int = 2) -> None:
    """Let a ring be read that holds two operations."""
    content = ring()
    found = RingReader(rank, world).look(lambda at, n: content[at : at + n], now_us=NOW_US)
    watched.collector.observe_operations(KEY, CollectiveSource.PROFILER, found.dump, NOW_US)


def test_operations_of_a_ring_are_told_as_those_of_a_dump() -> None:
    """With their source, and the library that wrote it."""
    watched = Watched()
    watched.collector.observe_dump(KEY, DumpReading(missing_reason="no dump: rank_0"))
    ring_reading(watched)
    (batch,), (group,) = watched.told(NOW_US)
    assert (batch.source, batch.library, batch.format_version) == (
        CollectiveSource.PROFILER, "nccl", "v6",
    )  # fmt: skip
    assert (numbers(batch), batch.missing_reason, batch.recorded_at) == ([0, 1], None, NOW_US)
    assert (group.communicator_id, group.ranks) == ("job1|0xabc", (0, 1))
    watched.collector.refuse(KEY, CollectiveSource.PROFILER, "a damaged ring")
    assert watched.batch(NOW_US + SECOND).missing_reason == "refused: a damaged ring"


def test_a_dump_that_is_kept_up_takes_the_place_of_a_ring_and_keeps_it() -> None:
    """Numbers of both count from 0: those of the later source are others."""
    watched = Watched()
    ring_reading(watched)
    assert numbers(watched.batch(BEGIN)) == [0, 1]
    rank = Rank(0, WORLD)
    # A recorder of nothing says less than the ring.
    watched.dump(rank.json(), live=True)
    assert watched.batch(BEGIN + SECOND).source is CollectiveSource.PROFILER
    rank.launch("0", "all_reduce")
    watched.dump(rank.json(), live=True)
    batch = watched.batch(BEGIN + 2 * SECOND)
    assert (batch.source, batch.snapshot) == (CollectiveSource.FLIGHT_RECORDER, True)
    assert [number // NUMBERS_EACH for number in numbers(batch)] == [1]
    ring_reading(watched)
    assert watched.batch(BEGIN + 3 * SECOND).operations == ()


def test_a_dump_of_a_timeout_takes_no_rings_place() -> None:
    """It comes when all is over, and of some ranks only; without a ring it is what there is."""
    rank = Rank(0, WORLD).launch("0", "all_reduce")
    first, second = Watched(), Watched()
    ring_reading(first)
    first.dump(rank.json())
    second.dump(rank.json())
    assert second.batch(BEGIN).source is CollectiveSource.FLIGHT_RECORDER
    ring_reading(second)
    for watched in (first, second):
        assert watched.batch(BEGIN + SECOND).source is CollectiveSource.PROFILER


@pytest.mark.parametrize("source", [CollectiveSource.INSPECTOR, CollectiveSource.RAS])
def test_what_says_nothing_of_what_waits_is_no_recorder(source: CollectiveSource) -> None:
    """A rank of which only that is known may wait in anything: it was never read."""
    watched = Watched()
    content = ring()
    found = RingReader(0, 2).look(lambda at, n: content[at : at + n], now_us=NOW_US)
    watched.collector.observe_operations(KEY, source, found.dump, NOW_US)
    watched.collector.observe_dump(KEY, DumpReading(missing_reason="no dump: rank_0"))
    batch = watched.batch(NOW_US)
    assert (batch.source, batch.recorded_at, len(batch.operations)) == (source, None, 2)
    assert (batch.missing_reason or "").startswith("NCCL's ")


def test_two_jobs_with_the_same_groups_stay_apart() -> None:
    """NCCL's hash of a group may be that of another job's."""
    watched = Watched()
    other = replace(JOB, task_id="job2")
    watched.collector.observe_process(other, replace(PROCESS, pid=4712))
    content = ring()
    for key in (KEY, ("job2", 0)):
        found = RingReader(0, 2).look(lambda at, n: content[at : at + n], now_us=NOW_US)
        watched.collector.observe_operations(key, CollectiveSource.PROFILER, found.dump, NOW_US)
    messages = watched.collector.batches(KEY, NOW_US)
    messages += watched.collector.batches(("job2", 0), NOW_US)
    keys = [m.key for m in messages if m.topic is COLLECTIVE_COMM]
    assert keys == ["job1|0xabc", "job2|0xabc"]
