"""A look at a real process that plays a rank of NCCL: ring, log and RAS become records."""

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from probers.clock import SystemClock
from probers.collectives.core import PARTIAL
from probers.collector.config import CollectConfig
from probers.collector.look import Looker
from schemas.bounds import violation
from schemas.codec import to_datum
from schemas.enums import CollectiveSource
from schemas.process.eventlog import EventLog
from schemas.records import CollectiveBatch, RankSocket, SocketBatch
from tests.nccl_answers import inspector_line, lines, ras_answer, ras_group, ras_missing, ras_rank
from tests.nccl_ras_server import answering, ras_server, silent
from tests.nccl_stand_in import HAS_COMPILER, Programs, StandIn, compile_programs, stand_in

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler")
LAUNCH = "coll 1 0 AllReduce 1000 ncclFloat32 1 0"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Give the compiled programs."""
    return compile_programs(tmp_path_factory.mktemp("nccl"))


class Host:
    """A collector, and rank 1 of a job of two."""

    def __init__(self, job: StandIn, task_id: str, config: CollectConfig) -> None:
        self.job = job
        self.task_id = task_id
        self.looker = Looker(config, "c", "h", EventLog("collect"))

    def look(self, *, patient: bool = False) -> tuple[CollectiveBatch, tuple[RankSocket, ...]]:
        """Look once; return the job's batch, and its connections of protocol `nccl`."""
        now = SystemClock().now()
        messages = self.looker.look(now, patient=patient)
        for message in messages:
            found = violation(message.topic.name, to_datum(message.record), now.realtime_ns)
            assert found is None
        own = [m.record for m in messages if getattr(m.record, "task_id", "") == self.task_id]
        (batch,) = [r for r in own if isinstance(r, CollectiveBatch)]
        sockets = [s for r in own if isinstance(r, SocketBatch) for s in r.sockets]
        return batch, tuple(s for s in sockets if s.protocol == "nccl")


@pytest.fixture
def task_id() -> str:
    """Give a job of this test's own."""
    return f"job-{uuid.uuid4().hex[:8]}"


def environment(task_id: str, **more: str) -> dict[str, str]:
    """Return that of rank 1."""
    names = {"RANK": "1", "WORLD_SIZE": "2", "SKELETONHUNTER_TASK_ID": task_id}
    return names | {"NCCL_RAS_ENABLE": "0"} | more


@pytest.fixture
def host(programs: Programs, tmp_path: Path, task_id: str) -> Iterator[Host]:
    """Give a host whose rank has a ring only."""
    with stand_in(programs, tmp_path / "rings", env=environment(task_id)) as job:
        yield Host(job, task_id, CollectConfig())


def test_a_ring_gives_operations_and_traffic(host: Host) -> None:
    """What hangs is pending, and the bytes that nobody acknowledges are beside it."""
    host.job.tell("init 0 abc 2 1 default_pg", LAUNCH, "proxy 2 0 1 0 0 1 500 0")
    host.job.send_step(3, 2, 400, until="sent")
    batch, flows = host.look()
    assert (batch.source, batch.library, batch.missing_reason) == (
        CollectiveSource.PROFILER, "nccl", None,
    )  # fmt: skip
    assert len(batch.operations) == 1
    (flow,) = flows
    assert (flow.local_address, flow.peer_address, flow.peer_rank, flow.unacked_bytes) == (
        "0xabc/1", "0xabc/0", 0, 400,
    )  # fmt: skip
    assert host.look()[0].operations == ()


def test_without_sockets_the_traffic_of_the_ring_is_told(
    programs: Programs, tmp_path: Path, task_id: str
) -> None:
    """And that the kernel's connections are not read."""
    with stand_in(programs, tmp_path, env=environment(task_id)) as job:
        host = Host(job, task_id, CollectConfig(sockets=0))
        job.tell("init 0 abc 2 1 default_pg", LAUNCH, "proxy 2 0 1 0 0 1 500 0")
        job.send_step(3, 2, 400, until="sent")
        assert len(host.look()[1]) == 1


def test_a_ring_that_a_job_damages_is_told_once_and_harms_nobody(host: Host) -> None:
    """It is cut short and overwritten under the reader; later it is whole again."""
    host.job.tell("init 0 abc 2 1 default_pg", LAUNCH)
    ring = host.job.ring
    whole = ring.read_bytes()
    for content in (b"", whole[:5_000], b"\xff" * len(whole), whole[:20_600]):
        ring.write_bytes(content)
        for _ in range(2):
            batch, flows = host.look()
            assert (batch.missing_reason or "").startswith("refused: ")
            assert flows == ()
    refused = host.looker.collector.counts.refused
    assert sum(refused.values()) == 4
    ring.write_bytes(whole)
    batch, _ = host.look()
    assert (batch.missing_reason, len(batch.operations)) == (None, 1)


def test_a_trouble_is_logged_once_of_each_rank(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two ranks in turns, look after look; and again when it changes."""
    with caplog.at_level("WARNING"):
        for _ in range(5):
            for rank in (0, 1):
                host.looker._say("rings.lost", f"{rank + 3} events", (host.task_id, rank))
        host.looker._say("rings.lost", "9 events", (host.task_id, 1))
    told = [getattr(r, "fields", {}) for r in caplog.records if r.message == "rings.lost"]
    assert [(t["rank"], t["reason"]) for t in told] == [
        (0, "3 events"), (1, "4 events"), (1, "9 events"),
    ]  # fmt: skip


def test_the_inspectors_log_is_told_where_there_is_no_ring(
    programs: Programs, tmp_path: Path, task_id: str
) -> None:
    """Operations that are done; a ring that comes takes its place, since it has those that wait."""
    env = environment(
        task_id, NCCL_INSPECTOR_ENABLE="1", NCCL_INSPECTOR_DUMP_DIR=str(tmp_path), HOSTNAME="h7"
    )
    with stand_in(programs, tmp_path / "rings", env=env) as job:
        host = Host(job, task_id, CollectConfig())
        log = tmp_path / f"h7-pid{job.process.pid}.log"
        written = [*lines(inspector_line(1), inspector_line(2)), b"nonsense"]
        log.write_bytes(b"\n".join(written) + b"\n")
        batch, _ = host.look()
        assert (batch.source, len(batch.operations), batch.format_version) == (
            CollectiveSource.INSPECTOR, 2, "inspector v4.0",
        )  # fmt: skip
        job.tell("init 0 abc 2 1 default_pg", LAUNCH)
        batch, _ = host.look()
        assert (batch.source, len(batch.operations)) == (CollectiveSource.PROFILER, 1)
        log.write_bytes(b"\n".join(lines(*map(inspector_line, range(9)))) + b"\n")
        assert host.look()[0].source is CollectiveSource.PROFILER


def test_ras_is_told_where_there_is_nothing_else(
    programs: Programs, tmp_path: Path, task_id: str
) -> None:
    """How many of each operation the rank launched; ranks that are missing are in the log."""
    placeholder = ras_rank(1, pid=1, AllReduce=50)
    answer = [ras_answer(ras_group([placeholder], [ras_missing(0)]))]

    def behave(client: socket.socket) -> None:
        answering(answer[0])(client)

    with ras_server(behave) as (name, port):
        env = environment(task_id, NCCL_RAS_ENABLE="1", NCCL_RAS_ADDR=f"{name}:{port}")
        with stand_in(programs, tmp_path, env=env) as job:
            host = Host(job, task_id, CollectConfig(ras_s=1))
            unknown, _ = host.look(patient=True)
            placeholder["pid"] = job.process.pid
            answer[0] = ras_answer(ras_group([placeholder], [ras_missing(0)]))
            other = Host(job, task_id, CollectConfig())
            batch, _ = other.look(patient=True)
    assert "RAS: it does not know this process" in (unknown.missing_reason or "")
    assert (batch.source, batch.recorded_at) == (CollectiveSource.RAS, None)
    assert batch.missing_reason == PARTIAL[CollectiveSource.RAS]
    (operation,) = batch.operations
    assert (operation.sequence, operation.launched_at) == (49, None)
    assert batch.communicators == ("0xabc/all_reduce",)


def test_ras_that_does_not_answer_is_told_and_is_no_fault(
    programs: Programs, tmp_path: Path, task_id: str
) -> None:
    """The look goes on; the reason stands beside what else is missing."""
    with ras_server(silent) as (name, port):
        env = environment(task_id, NCCL_RAS_ENABLE="1", NCCL_RAS_ADDR=f"{name}:{port}")
        with stand_in(programs, tmp_path, env=env) as job:
            host = Host(job, task_id, CollectConfig())
            begun, _ = host.look()
            told, _ = host.look(patient=True)
            again, _ = host.look()
    assert "RAS" not in (begun.missing_reason or "")
    for batch in (told, again):
        assert (batch.missing_reason or "").endswith("; RAS: no answer within 10 s")
        assert (batch.operations, batch.pid) == ((), job.process.pid)
