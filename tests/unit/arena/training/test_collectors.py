"""What a simulated job's collectors publish is what the topics take."""

from dataclasses import replace

from arena.training.run import JobFeed, JobScenario, feed, staged
from arena.training.shape import GLOO, NCCL, RDMA, JobShape
from arena.training.troubles import Pauses, RankTrouble, Trouble
from arena.training.wires import Wires
from localizer.collectives.hang_watch import HangWatch
from schemas.codec import Codec
from schemas.enums import CollectiveState, ProcessState
from schemas.records import CollectiveBatch, Hang, SocketBatch
from schemas.records.batches import snapshot_of
from schemas.topics import (
    COLLECTIVE_COMM,
    COLLECTIVE_FLOW,
    COLLECTIVE_HANG,
    COLLECTIVE_OP,
    Topic,
)

SHAPE = JobShape(tp=2, pp=2, dp=2, ep=2, rails=2, microbatches=2)
STOPS = (RankTrouble(trouble=Trouble.STOPPED, rank=3, begin_us=18_000_000),)
EPOCH_NS = 0
CODEC = Codec()


def job(seed: int, shape: JobShape = SHAPE, *, whole: bool = False, ring: int = 500) -> JobFeed:
    """Return a job whose rank 3 is stopped after 18 s."""
    scenario = JobScenario(
        name="x", seed=seed, seconds=30, shape=replace(shape, ring=ring),
        pauses=Pauses(compile_s=1.0), troubles=STOPS, probed=False,
    )  # fmt: skip
    world = staged(scenario).world
    wires = Wires(scenario.shape, world.cluster, (), {}, EPOCH_NS)
    return JobFeed(scenario, wires, encoded=whole)


def topic_of(record: object) -> Topic:
    """Return the topic of a record."""
    match record:
        case CollectiveBatch():
            return COLLECTIVE_OP
        case SocketBatch():
            return COLLECTIVE_FLOW
        case _:
            return COLLECTIVE_COMM


def told(found: JobFeed, seconds: int = 28, *, by_codec: bool = False) -> tuple[bytes, list[Hang]]:
    """Return what the watcher says, as bytes and as records."""
    watch, hangs, written = HangWatch("arena"), [], b""
    for second in range(1, seconds + 1):
        for read in found.records(second * 1_000_000):
            record, operations = read.record, read.operations
            if by_codec:
                topic = topic_of(record)
                record = CODEC.decode(topic, CODEC.encode(topic, record))
                assert record == read.record
                if isinstance(record, CollectiveBatch):
                    operations = tuple(snapshot_of(record, {}).operations)
                    assert operations == read.operations
            feed(watch, replace(read, record=record, operations=operations))
        for hang in watch.advance(1_767_225_600_000_000_000 + second * 1_000_000_000):
            hangs.append(hang)
            written += CODEC.encode(COLLECTIVE_HANG, hang)
    return written, hangs


def test_records_go_through_the_codec_and_the_watcher_says_the_same() -> None:
    """Batches that hold their operations, and those that have them beside: the same hang."""
    for library, transport in ((GLOO, "tcp"), (NCCL, "tcp"), (NCCL, RDMA)):
        shape = replace(SHAPE, library=library, transport=transport)
        written, hangs = told(job(5, shape, whole=True), by_codec=True)
        assert [h.ranks for h in hangs] == [(3,)]
        assert told(job(5, shape))[0] == written


def test_the_same_seed_gives_the_same_bytes_and_another_one_others() -> None:
    """Everything follows from it."""
    assert told(job(7))[0] == told(job(7))[0]
    assert told(job(7))[0] != told(job(8))[0]


def test_a_stopped_process_is_told_as_such_with_bytes_that_it_does_not_read() -> None:
    """Its CPU time stands, and its helper writes nothing any more."""
    found = job(5)
    reads = [read for s in range(1, 29) for read in found.records(s * 1_000_000)]
    mine = [r.record for r in reads if isinstance(r.record, CollectiveBatch) and r.record.rank == 3]
    after = [b for b in mine if b.process_state is ProcessState.STOPPED]
    assert len(after) >= 3
    assert len({b.cpu_ns for b in after}) == 1
    assert len({b.recorded_at for b in after}) == 1
    assert after[-1].taken_at > after[0].taken_at


def test_what_a_small_ring_loses_is_counted() -> None:
    """And nothing is told twice, or after it was told to its end."""
    found = job(5, ring=8)
    seen: dict[int, CollectiveState] = {}
    dropped = 0
    for second in range(1, 17):
        for read in found.records(second * 1_000_000):
            if not isinstance(read.record, CollectiveBatch) or read.record.rank != 0:
                continue
            dropped = read.record.dropped_before
            for op in read.operations if not read.record.snapshot else ():
                assert seen.get(op.record_id) not in {CollectiveState.COMPLETED, op.state}
                seen[op.record_id] = op.state
    assert dropped > 0
    assert dropped + len(seen) <= found.engine.ranks[0].count


def test_a_collector_that_is_gone_says_nothing_and_the_job_goes_on() -> None:
    """The watcher calls nobody."""
    scenario = JobScenario(
        name="x", seed=3, seconds=40, shape=SHAPE, pauses=Pauses(compile_s=1.0),
        troubles=(RankTrouble(trouble=Trouble.COLLECTOR, rank=2, begin_us=15_000_000),),
        probed=False,
    )  # fmt: skip
    found = JobFeed(scenario, Wires(SHAPE, staged(scenario).world.cluster, (), {}, 0))
    hangs = [h for s in range(1, 41) for h in found.step(s * 1_000_000)]
    assert hangs == []
    assert found.engine.ranks[2].host_us > 39_000_000
