"""What NCCL's plugin tells is enough to say why a job hangs: from ring to verdict, without Kafka.

Three jobs of two ranks each, all of them stand-ins that play NCCL. They go on for a while; then one
loses its network, of one a rank launches nothing more, and of one the GPUs stop.
"""

import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from localizer.collectives.hang_watch import HangWatch
from probers.clock import SystemClock
from probers.collector.config import CollectConfig
from probers.collector.look import Looker
from schemas.enums import CollectiveSource, HangClass
from schemas.process.eventlog import EventLog
from schemas.records import CollectiveBatch, Hang
from tests.nccl_stand_in import HAS_COMPILER, StandIn, compile_programs, stand_in

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler")
# Waits of less than four seconds count for nothing; the rest is for a busy machine.
WAIT_S = 40
LOOK_S = 0.5
OPERATIONS = 100
EXPECTED = {
    "network": HangClass.NETWORK,
    "skipped": HangClass.NEVER_LAUNCHED,
    "gpu": HangClass.GPU_STOPPED,
}


def classes(tasks: dict[str, str], found: dict[str, Hang]) -> dict[str, HangClass]:
    """Return what is said of each job of which something is."""
    return {name: found[task].hang_class for name, task in tasks.items() if task in found}


def launch(rank: StandIn) -> None:
    """Let a rank launch what hangs."""
    rank.tell("coll 1 0 AllReduce 1000 ncclFloat32 1 0", "stop 1", "kernel 2 0 1 0")


def test_three_jobs_that_hang_for_three_reasons(tmp_path: Path) -> None:
    """Each is told once, with its class and its rank."""
    programs = compile_programs(tmp_path / "programs")
    tasks = {name: f"{name}-{uuid.uuid4().hex[:8]}" for name in ("network", "skipped", "gpu")}
    looker = Looker(CollectConfig(ras_s=0), "c", "h", EventLog("collect"))
    watch = HangWatch("c")
    found: dict[str, Hang] = {}
    sources = set()

    def look() -> None:
        now = SystemClock().now()
        for message in looker.look(now):
            if message.record.task_id not in tasks.values():
                continue
            if isinstance(message.record, CollectiveBatch):
                sources.add(message.record.source)
            watch.feed(message.key, message.record, now.realtime_ns)
        found.update((hang.task_id, hang) for hang in watch.advance(now.realtime_ns))
        time.sleep(LOOK_S)

    with ExitStack() as stack:
        ranks: dict[str, list[StandIn]] = {}
        for name, task_id in tasks.items():
            for number in range(2):
                environment = {
                    "RANK": str(number), "WORLD_SIZE": "2", "SKELETONHUNTER_TASK_ID": task_id,
                }  # fmt: skip
                rank = stack.enter_context(
                    stand_in(programs, tmp_path / "rings", env=environment)
                )  # fmt: skip
                rank.tell(f"init 0 abc 2 {number} default_pg", f"flood 1 {OPERATIONS} 2")
                ranks.setdefault(name, []).append(rank)
        look()
        for job in ranks.values():
            for rank in job:
                rank.tell("flood 1 50 2")
        look()
        for name, job in ranks.items():
            for rank in job if name != "skipped" else job[:1]:
                launch(rank)
        sender, receiver = ranks["network"]
        sender.tell("proxy 4 0 1 0 1 1 500 0")
        sender.send_step(5, 4, 400, until="sent")
        receiver.tell("proxy 4 0 1 0 0 0 500 0", "step 5 0 4 0", "record 5 10 0")
        deadline = time.monotonic() + WAIT_S
        # A reading of sockets that failed, while processes of others came and went, is made up for.
        while classes(tasks, found) != EXPECTED and time.monotonic() < deadline:
            look()
    assert sources == {CollectiveSource.PROFILER}
    assert classes(tasks, found) == EXPECTED
    assert found[tasks["skipped"]].ranks == (1,)
    assert {hang.communicator for hang in found.values()} == {"0xabc"}
