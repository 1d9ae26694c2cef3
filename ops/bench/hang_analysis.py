"""How long it takes to say why a job of many ranks hangs: `python -m ops.bench.hang_analysis`.

A job of tensor-, pipeline- and data-parallel groups and one of all ranks. Ten seconds of batches
are read and folded; then one rank launches nothing more, and everybody ends up waiting for it.
Told in seconds of CPU time of one core.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from localizer.collectives import operation_fold
from localizer.collectives.batch_reader import BatchReader
from localizer.collectives.hang_watch import HangWatch
from schemas import topics
from schemas.codec import Codec
from schemas.enums import CollectiveSource, CollectiveState, ProcessState
from schemas.records import CollectiveOp, CollectiveSnapshot, Hang
from schemas.records.batches import RankProcess, batch_of
from schemas.units import SECOND_NS, US_NS

TENSOR: Final = 8
PIPELINE: Final = 8
WINDOW_S: Final = 10
PERIOD_S: Final = 2
# Two iterations a second, each with as many operations of each group.
ITERATIONS: Final = 2 * WINDOW_S
TENSOR_OPERATIONS: Final = 4
DATA_OPERATIONS: Final = 2
BEGIN_US: Final = 1_700_000_000_000_000
TIMEOUT_MS: Final = 600_000
# Messages that are read at once.
POLL: Final = 500
# How long the job stands until the last batch.
STANDS_US: Final = 8_000_000


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank's place in the job."""

    number: int
    world: int

    @property
    def groups(self) -> tuple[str, str, str]:
        """Its tensor-parallel group, its data-parallel group, and that of all ranks."""
        tensor, place = divmod(self.number, TENSOR)
        stage = tensor % PIPELINE
        return f"tp{tensor}", f"dp{stage * TENSOR + place}", "0"


def launches(rank: Rank, *, stalls: int) -> list[CollectiveOp]:
    """Return what a rank launched, the last iteration as far as it came.

    `stalls` launches nothing of the last iteration; its peers wait in it.
    """
    tensor, data, world = rank.groups
    culprit = Rank(stalls, rank.world)
    plan = [tensor] * TENSOR_OPERATIONS + [data] * DATA_OPERATIONS + [world]
    step_us = SECOND_NS // 2 // US_NS
    found: list[CollectiveOp] = []
    counts = dict.fromkeys(plan, 0)
    for iteration in range(ITERATIONS):
        last = iteration == ITERATIONS - 1
        for place, group in enumerate(plan):
            if last and rank.number == stalls:
                return found
            at = BEGIN_US + iteration * step_us + place * 10_000
            waits = last and (
                (group == tensor and tensor == culprit.groups[0])
                or (group == data and stalls_data(rank, culprit))
                or group == world
            )
            found.append(_operation(group, counts[group], len(found), at, done=not waits))
            counts[group] += 1
            if waits:
                return found
    return found


def stalls_data(rank: Rank, culprit: Rank) -> bool:
    """Return whether a rank's data-parallel group has a member that is stuck before it."""
    stuck = culprit.number // TENSOR * TENSOR
    return rank.groups[1] in {Rank(stuck + i, rank.world).groups[1] for i in range(TENSOR)}


def _operation(group: str, sequence: int, number: int, at: int, *, done: bool) -> CollectiveOp:
    return CollectiveOp(
        communicator=group, operation="all_reduce", sequence=sequence, is_p2p=False,
        record_id=number, op_id=number, sender=None, receiver=None, input_sizes=((4096, 1024),),
        output_sizes=((4096, 1024),), input_dtypes=("BFloat16",), output_dtypes=("BFloat16",),
        n_bytes=8_388_608, launched_at=at, started_at=at,
        completed_at=at + 9_000 if done else None, missing_reason=None,
        state=CollectiveState.COMPLETED if done else CollectiveState.STARTED,
        retired=done, timeout_ms=TIMEOUT_MS, stack=(),
    )  # fmt: skip


def batches(rank: Rank, *, stalls: int) -> Iterator[tuple[CollectiveSnapshot, int]]:
    """Yield what a rank launched in each period, and when it was read (µs)."""
    every = launches(rank, stalls=stalls)
    end = BEGIN_US + WINDOW_S * 1_000_000 + STANDS_US
    before = 0
    for read in range(BEGIN_US + PERIOD_S * 1_000_000, end + 1, PERIOD_S * 1_000_000):
        upto = next(
            (i for i, o in enumerate(every) if (o.launched_at or 0) > read), len(every)
        )  # fmt: skip
        yield (
            CollectiveSnapshot(
                rank=rank.number, source="", library="nccl", version="2.10", taken_at=read,
                taken_at_missing_reason=None, dropped_before=0, communicators=(),
                operations=tuple(every[before:upto]),
            ),
            read,
        )  # fmt: skip
        before = upto


def messages(ranks: int, culprit: int, codec: Codec) -> list[tuple[int, bytes]]:
    """Return what the collectors of a job send in the window, in order, each with when (µs)."""
    found = []
    for number in range(ranks):
        process = RankProcess(
            cluster="bench", task_id="job1", rank=number, world_size=ranks,
            host_id=f"host:{number // 8}", endpoint_ids=(f"job1-w{number // 8}/r{number % 8}",),
            attempt=BEGIN_US, pid=number + 1, process_state=ProcessState.SLEEPING, cpu_ns=None,
        )  # fmt: skip
        for snapshot, at in batches(Rank(number, ranks), stalls=culprit):
            # A hundredth of a core.
            work = replace(process, cpu_ns=(at - BEGIN_US) * US_NS // 100)
            batch = batch_of(
                snapshot, work, taken_at=at, source=CollectiveSource.FLIGHT_RECORDER, whole=False
            )
            found.append((at, codec.encode(topics.COLLECTIVE_OP, batch)))
    return sorted(found, key=lambda message: message[0])


@dataclass(frozen=True, slots=True)
class Run:
    """CPU seconds of each part, and what was read and found."""

    reading: float
    folding: float
    analysis: float
    operations: int
    n_bytes: int
    found: list[Hang]


def run(ranks: int, culprit: int) -> Run:
    """Read and fold the window as the watcher does, and analyse once."""
    codec = Codec()
    sent = messages(ranks, culprit, codec)
    watch, reader = HangWatch("bench"), BatchReader(codec)
    operation_fold.warm()
    reader.read([value for _, value in sent[:POLL]], np.zeros(min(POLL, len(sent)), np.int64))
    reading, folding, count = 0.0, 0.0, 0
    for begin in range(0, len(sent), POLL):
        part = sent[begin : begin + POLL]
        began = time.process_time()
        read = reader.read([v for _, v in part], np.array([at * US_NS for at, _ in part]))
        reading += time.process_time() - began
        began = time.process_time()
        for (at, _), held in zip(part, read, strict=True):
            if held is not None:
                watch.feed(held.rank_id, held, at * US_NS)
                count += len(held.operations)
        folding += time.process_time() - began
    began = time.process_time()
    found = watch.advance(sent[-1][0] * US_NS + SECOND_NS)
    return Run(
        reading, folding, time.process_time() - began, count,
        sum(len(value) for _, value in sent), found,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 if the culprit was not found."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.hang_analysis", description=__doc__)
    parser.add_argument("--ranks", type=int, default=10_240)
    options = parser.parse_args(arguments)
    culprit = options.ranks // 3
    one = run(options.ranks, culprit)
    intake = one.reading + one.folding
    print(f"ranks {options.ranks:,}, operations {one.operations:,} in {WINDOW_S} s")
    print(f"read: {one.reading:.2f} s CPU, fold: {one.folding:.2f} s CPU")
    print(
        f"intake, a second of CPU: {one.operations / intake:,.0f} operations, "
        f"{one.n_bytes / intake / 1e6:.1f} MB"
    )
    print(f"one analysis: {one.analysis:.2f} s CPU")
    for hang in one.found:
        print(f"{hang.hang_class} {hang.ranks}, {len(hang.waiting_ranks):,} ranks wait")
    return 0 if [h.ranks for h in one.found] == [(culprit,)] else 1


if __name__ == "__main__":
    sys.exit(main())
