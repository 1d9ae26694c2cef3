"""The collector as a process, from ranks to a real broker."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from schemas.enums import CollectiveState, ProcessState
from schemas.kafka.connection import KafkaSettings
from schemas.records import CollectiveBatch, Communicator, RankSocket
from schemas.records.batches import snapshot_of
from schemas.topics import COLLECTIVE_COMM, COLLECTIVE_FLOW, COLLECTIVE_OP
from tests.flight_recorder import Rank
from tests.integration.agent_harness import Watcher
from tests.integration.stand_in_ranks import rank

pytestmark = pytest.mark.broker
GROUPS = {"0": [0, 1], "tp": [0, 1]}


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def write(folder: Path, number: int, content: bytes) -> None:
    """Put a dump into its place as the helper does."""
    new = folder / "new"
    new.write_bytes(content)
    new.replace(folder / f"rank_{number}")


class Followed:
    """What a collector tells of a job."""

    def __init__(self, kafka: KafkaSettings, task: str) -> None:
        self.task = task
        self.zero, self.one = f"{task}|0", f"{task}|1"
        self.watcher = Watcher(kafka, COLLECTIVE_OP, COLLECTIVE_COMM, COLLECTIVE_FLOW)

    def batches(self, key: str) -> list[CollectiveBatch]:
        """Return the batches of a rank."""
        return self.watcher.of(COLLECTIVE_OP, key)

    def communicators(self) -> dict[str, Communicator]:
        """Return the job's communicators by name."""
        found = self.watcher.of(COLLECTIVE_COMM)
        return {c.communicator: c for c in found if c.task_id == self.task}

    def is_in(self, key: str, *states: ProcessState) -> bool:
        """Whether a rank's process is in one of these states now."""
        return self.batches(key)[-1].process_state in states

    def sockets(self, key: str) -> tuple[RankSocket, ...]:
        """Return the latest sockets of a rank."""
        found = self.watcher.of(COLLECTIVE_FLOW, key)
        return found[-1].sockets if found else ()

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        self.watcher.until(what, condition)


def check_operations(job: Followed) -> None:
    """Wait for both ranks, with what they recorded before."""
    job.until(
        "operations",
        lambda: all(any(b.operations for b in job.batches(k)) for k in (job.zero, job.one)),
    )
    first = next(b for b in job.batches(job.zero) if b.operations)
    job.until("communicators", lambda: len(job.communicators()) == 2)
    snapshot = snapshot_of(first, job.communicators())
    assert [(o.communicator, o.sequence, o.state) for o in snapshot.operations] == [
        ("0", 1, CollectiveState.COMPLETED), ("tp", 1, CollectiveState.COMPLETED),
        ("tp", 2, CollectiveState.STARTED),
    ]  # fmt: skip
    assert {g.communicator: g.ranks for g in snapshot.communicators} == {"0": (0, 1), "tp": (0, 1)}
    assert (first.host_id, first.endpoint_ids, first.world_size) == ("h0", ("w0/r0",), 2)


def check_stopped_rank(job: Followed, process: subprocess.Popen[bytes]) -> None:
    """Stop a rank: it goes on to be told, with bytes that it does not read."""
    job.until(
        "a connection whose both ends are known",
        lambda: any(s.peer_rank == 1 and s.acked_bytes for s in job.sockets(job.zero)),
    )
    process.send_signal(signal.SIGSTOP)
    job.until(
        "a stopped rank and its unread bytes",
        lambda: (
            job.is_in(job.one, ProcessState.STOPPED)
            and any(s.unread_bytes for s in job.sockets(job.one))
        ),
    )
    before = len(job.batches(job.one))
    job.until("that it goes on to be told", lambda: len(job.batches(job.one)) > before + 2)
    times = [batch.taken_at for batch in job.batches(job.one)]
    assert times == sorted(set(times))


def check_bad_dump(job: Followed, folder: Path, recorded: Rank) -> None:
    """Write a dump that runs code: it is refused, and the next good one is used."""

    def reason() -> str:
        return job.batches(job.zero)[-1].missing_reason or ""

    write(folder, 0, pickle.dumps(Runs()))
    job.until("a refusal", lambda: reason().startswith("refused: "))
    recorded.entries[-1] |= {"state": "completed", "retired": True}
    write(folder, 0, recorded.pickled())
    job.until(
        "that the pending operation is done",
        lambda: any(
            o.record_id == 2 and o.state is CollectiveState.COMPLETED
            for batch in job.batches(job.zero) for o in batch.operations
        ),
    )  # fmt: skip
    assert reason() == ""


class Runs:
    """A pickle of it would run code."""

    def __reduce__(self) -> Any:
        return os.kill, (os.getpid(), signal.SIGKILL)


def test_ranks_are_followed_to_their_end(kafka: KafkaSettings, tmp_path: Path) -> None:
    """Operations, sockets, a rank that is stopped, a dump that runs code, one that is killed."""
    job = Followed(kafka, task := f"job-{uuid.uuid4().hex[:8]}")
    recorded = [
        Rank(number, GROUPS).launch("0").launch("tp").launch("tp", state="started")
        for number in range(2)
    ]
    port = free_port()
    with ExitStack() as stack:
        stack.callback(job.watcher.close)
        ranks = [
            stack.enter_context(rank(number, task, tmp_path, "127.0.0.1", port))
            for number in range(2)
        ]
        for number, of_rank in enumerate(recorded):
            write(tmp_path, number, of_rank.pickled())
        command = [
            *(sys.executable, "-m", "probers.collector", "--bootstrap", kafka.bootstrap),
            *("--prefix", kafka.topic_prefix, "--interval-ms", "500", "--host-id", "h0"),
        ]
        collector = stack.enter_context(subprocess.Popen(command))
        stack.callback(collector.kill)
        check_operations(job)
        assert job.batches(job.zero)[-1].pid == ranks[0].pid
        check_stopped_rank(job, ranks[1])
        check_bad_dump(job, tmp_path, recorded[0])
        ranks[0].kill()
        job.until(
            "the end of rank 0", lambda: job.is_in(job.zero, ProcessState.ZOMBIE, ProcessState.GONE)
        )
        ranks[0].wait()
        job.until("that it is gone", lambda: job.is_in(job.zero, ProcessState.GONE))
        collector.send_signal(signal.SIGTERM)
        assert collector.wait(20) == 0
