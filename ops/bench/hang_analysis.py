"""How long it takes to say why a job of many ranks hangs: `python -m ops.bench.hang_analysis`.

A job of tensor-, pipeline- and data-parallel groups and one of all ranks. Some seconds of batches
are read and folded; then one rank launches nothing more, and everybody ends up waiting for it.
Told in seconds of CPU time of one core.

One job is large and has few operations: its analysis counts. Another one launches as much as is
published of large jobs: what is taken in of its second half counts, for which no reader has
anything to learn.
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
from schemas.process import memory
from schemas.records import CollectiveOp, CollectiveSnapshot, Hang
from schemas.records.batches import RankProcess, batch_of
from schemas.units import SECOND_NS, US_NS

TENSOR: Final = 8
PIPELINE: Final = 8
PERIOD_S: Final = 2
# Two iterations a second, each with as many operations of a data-parallel group.
ITERATION_US: Final = 500_000
SECOND_US: Final = 1_000_000
# Tensor-parallel operations of an iteration. Ten thousand GPUs send 35 MB a second as published
# (Mycroft, SOSP 2025): with 55 bytes each these are 64 operations a second of a rank.
FEW: Final = 4
MANY: Final = 28
DATA_OPERATIONS: Final = 2
BEGIN_US: Final = 1_700_000_000_000_000
TIMEOUT_MS: Final = 600_000
# Messages that are read at once.
POLL: Final = 500
# How long the job stands until the last batch.
STANDS_US: Final = 8_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """A job: how many ranks launch how many tensor-parallel operations each iteration, how long."""

    ranks: int
    tensor_operations: int
    window_s: int


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank's place in the job."""

    number: int
    load: Load

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
    culprit = Rank(stalls, rank.load)
    plan = [tensor] * rank.load.tensor_operations + [data] * DATA_OPERATIONS + [world]
    iterations = rank.load.window_s * SECOND_US // ITERATION_US
    found: list[CollectiveOp] = []
    counts = dict.fromkeys(plan, 0)
    for iteration in range(iterations):
        last = iteration == iterations - 1
        for place, group in enumerate(plan):
            if last and rank.number == stalls:
                return found
            at = BEGIN_US + iteration * ITERATION_US + place * 10_000
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
    return rank.groups[1] in {Rank(stuck + i, rank.load).groups[1] for i in range(TENSOR)}


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
    end = BEGIN_US + rank.load.window_s * SECOND_US + STANDS_US
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


def messages(load: Load, culprit: int, codec: Codec) -> list[tuple[int, bytes]]:
    """Return what the collectors of a job send in the window, in order, each with when (µs)."""
    found = []
    for number in range(load.ranks):
        process = RankProcess(
            cluster="bench", task_id="job1", rank=number, world_size=load.ranks,
            host_id=f"host:{number // 8}", endpoint_ids=(f"job1-w{number // 8}/r{number % 8}",),
            attempt=BEGIN_US, pid=number + 1, process_state=ProcessState.SLEEPING, cpu_ns=None,
        )  # fmt: skip
        for snapshot, at in batches(Rank(number, load), stalls=culprit):
            # A hundredth of a core.
            work = replace(process, cpu_ns=(at - BEGIN_US) * US_NS // 100)
            batch = batch_of(
                snapshot, work, taken_at=at, source=CollectiveSource.FLIGHT_RECORDER, whole=False
            )
            found.append((at, codec.encode(topics.COLLECTIVE_OP, batch)))
    return sorted(found, key=lambda message: message[0])


@dataclass(frozen=True, slots=True)
class Run:
    """CPU seconds of each part, and what was read and found; intake of the second half."""

    reading: float
    folding: float
    analysis: float
    operations: int
    n_bytes: int
    found: list[Hang]


def run(load: Load, culprit: int) -> Run:
    """Read and fold the window as the watcher does, and analyse once."""
    codec = Codec()
    sent = messages(load, culprit, codec)
    later_us = BEGIN_US + load.window_s * SECOND_US // 2
    watch, reader = HangWatch("bench"), BatchReader(codec)
    operation_fold.warm()
    reader.read([value for _, value in sent[:POLL]], np.zeros(min(POLL, len(sent)), np.int64))
    reading, folding, count, n_bytes = 0.0, 0.0, 0, 0
    for begin in range(0, len(sent), POLL):
        part = sent[begin : begin + POLL]
        began = time.process_time()
        read = reader.read([v for _, v in part], np.array([at * US_NS for at, _ in part]))
        was_read = time.process_time()
        for (at, _), held in zip(part, read, strict=True):
            if held is None:
                raise RuntimeError("a batch that could not be read")
            watch.feed(held.rank_id, held, at * US_NS)
        if part[0][0] > later_us:
            reading += was_read - began
            folding += time.process_time() - was_read
            count += sum(len(held.operations) for held in read if held is not None)
            n_bytes += sum(len(value) for _, value in part)
    began = time.process_time()
    found = watch.advance(sent[-1][0] * US_NS + SECOND_NS)
    return Run(
        reading, folding, time.process_time() - began, count, n_bytes, found
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 if the culprit was not found."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.hang_analysis", description=__doc__)
    parser.add_argument("--ranks", type=int, default=10_240, help="of the large job (10,240)")
    parser.add_argument("--busy-ranks", type=int, default=1_024, help="of the other one (1,024)")
    options = parser.parse_args(arguments)
    # As the watcher's process does.
    memory.collect_on_demand()
    right = True
    for load in (
        Load(options.ranks, FEW, window_s=10),
        Load(options.busy_ranks, MANY, window_s=20),
    ):
        culprit = load.ranks // 3
        one = run(load, culprit)
        each = one.operations / (load.ranks * load.window_s / 2)
        print(f"{load.ranks:,} ranks with {each:.0f} operations a second each")
        print(
            f"  intake: an operation {1e6 * one.reading / one.operations:.2f} us of CPU read, "
            f"{1e6 * one.folding / one.operations:.2f} us folded"
        )
        intake = one.reading + one.folding
        print(
            f"  a second of CPU: {one.operations / intake:,.0f} operations, "
            f"{one.n_bytes / intake / 1e6:.1f} MB"
        )
        print(f"  one analysis: {one.analysis:.2f} s of CPU")
        for hang in one.found:
            print(f"  {hang.hang_class} {hang.ranks}, {len(hang.waiting_ranks):,} ranks wait")
        right &= [h.ranks for h in one.found] == [(culprit,)]
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
