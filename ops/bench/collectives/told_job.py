"""A made-up training job whose ranks stand still at planned times, as its collectors would tell it.

All of it is a function of time, so that a teller that was killed goes on where the job is, as a
collector does that reads ranks anew. `python -m ops.bench.collectives.told_job PLAN HALF` tells
half of the ranks of each job until it is ended.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from schemas.codec import Codec
from schemas.enums import CollectiveSource, CollectiveState, ProcessState
from schemas.ids import rank_id
from schemas.kafka.connection import load_settings
from schemas.records import CollectiveBatch, CollectiveOp, CollectiveSnapshot
from schemas.records.batches import RankProcess, batch_of
from schemas.topics import COLLECTIVE_OP

RANKS: Final = 8
GROUP: Final = "0"
STEP_US: Final = 500_000
TAKES_US: Final = 50_000
PERIOD_S: Final = 2.0
# A collector reads ranks in about so much time; what ended since the last reading is told.
BACK_US: Final = 2_600_000
# What the first batch of a teller, and each fifteenth, holds.
WHOLE: Final = 60
WHOLE_EACH: Final = 15
CPU_SHARE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Standstill:
    """A rank launches nothing between two times (microseconds since the epoch)."""

    rank: int
    begin_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class ToldJob:
    """A job, when it began, and when which rank holds it up; times are multiples of a step."""

    task_id: str
    begin_us: int
    stands: tuple[Standstill, ...]

    def operations(self, rank: int, at_us: int) -> Iterator[CollectiveOp]:
        """Yield what a rank has launched by a time, the newest first."""
        trained_us = at_us - self.begin_us
        for stand in self.stands:
            trained_us -= max(0, min(at_us, stand.end_us) - stand.begin_us)
        for number in range(trained_us // STEP_US, -1, -1):
            begin_us, end_us = self._times(number)
            launched_us = begin_us
            held = next((s for s in self.stands if s.begin_us == begin_us), None)
            if held is not None and held.rank == rank:
                launched_us = held.end_us
            if launched_us <= at_us:
                yield _operation(number, launched_us, end_us if end_us <= at_us else None)

    def _times(self, number: int) -> tuple[int, int]:
        """Return when an operation is launched and when it ends."""
        at_us = self.begin_us + number * STEP_US
        for stand in self.stands:
            if at_us > stand.begin_us:
                at_us += stand.end_us - stand.begin_us
        held_us = next((s.end_us for s in self.stands if s.begin_us == at_us), at_us)
        return at_us, held_us + TAKES_US

    def batch(self, rank: int, at_us: int, *, whole: bool) -> CollectiveBatch:
        """Return what a collector tells of a rank at a time."""
        own: list[CollectiveOp] = []
        for operation in self.operations(rank, at_us):
            ended_us = operation.completed_at or at_us
            if len(own) >= WHOLE or (not whole and ended_us < at_us - BACK_US):
                break
            own.append(operation)
        held = CollectiveSnapshot(
            rank=rank, source="", library="nccl", version="2.10", taken_at=at_us,
            taken_at_missing_reason=None, dropped_before=own[-1].record_id if own else 0,
            communicators=(), operations=tuple(reversed(own)),
        )  # fmt: skip
        process = RankProcess(
            cluster="lab", task_id=self.task_id, rank=rank, world_size=RANKS,
            host_id=f"host:{self.task_id}-{rank * 2 // RANKS}",
            endpoint_ids=(f"{self.task_id}-w{rank}/r0",), attempt=self.begin_us, pid=1_000 + rank,
            process_state=ProcessState.SLEEPING,
            cpu_ns=round((at_us - self.begin_us) * 1_000 * CPU_SHARE),
        )  # fmt: skip
        source = CollectiveSource.FLIGHT_RECORDER
        return batch_of(held, process, taken_at=at_us, source=source, whole=whole)


def _operation(number: int, launched_us: int, ended_us: int | None) -> CollectiveOp:
    done = ended_us is not None
    return CollectiveOp(
        communicator=GROUP, operation="all_reduce", sequence=number, is_p2p=False,
        record_id=number, op_id=number, sender=None, receiver=None, input_sizes=((4096,),),
        output_sizes=((4096,),), input_dtypes=("BFloat16",), output_dtypes=("BFloat16",),
        n_bytes=8_192, launched_at=launched_us, started_at=launched_us,
        completed_at=ended_us, missing_reason=None,
        state=CollectiveState.COMPLETED if done else CollectiveState.STARTED,
        retired=done, timeout_ms=None, stack=(),
    )  # fmt: skip


def save(jobs: list[ToldJob], path: Path) -> None:
    """Write a plan for tellers."""
    path.write_text(json.dumps([asdict(job) for job in jobs]), encoding="utf-8")


def load(path: Path) -> list[ToldJob]:
    """Read a plan."""
    read: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [
        ToldJob(one["task_id"], one["begin_us"], tuple(Standstill(**s) for s in one["stands"]))
        for one in read
    ]


def main() -> None:
    """Tell half of the ranks of each job, for ever."""
    config, plan, half = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    settings, codec = load_settings(config), Codec()
    producer = Producer(settings.librdkafka())
    jobs, turn = load(plan), 0
    while True:
        due_s = time.monotonic() + PERIOD_S
        for job in jobs:
            for rank in range(half * RANKS // 2, (half + 1) * RANKS // 2):
                now_us = time.time_ns() // 1_000
                if now_us < job.begin_us:
                    continue
                batch = job.batch(rank, now_us, whole=turn % WHOLE_EACH == 0)
                producer.produce(
                    settings.topic(COLLECTIVE_OP.name), key=rank_id(job.task_id, rank),
                    value=codec.encode(COLLECTIVE_OP, batch),
                )  # fmt: skip
        producer.flush(PERIOD_S)
        turn += 1
        time.sleep(max(0.0, due_s - time.monotonic()))


if __name__ == "__main__":
    main()
