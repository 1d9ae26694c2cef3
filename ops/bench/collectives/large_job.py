"""A made-up job of very many ranks, as its collectors tell it: tensor, pipeline, data parallel.

All go on until one rank launches nothing more, and everybody ends up waiting for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from schemas import topics
from schemas.codec import Codec
from schemas.enums import CollectiveSource, CollectiveState, ProcessState
from schemas.ids import rank_id
from schemas.records import CollectiveOp, CollectiveSnapshot
from schemas.records.batches import RankProcess, batch_of
from schemas.units import US_NS

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
TASK: Final = "job1"
# How long the job stands until the last batch.
STANDS_US: Final = 8_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """A job: how many ranks launch how many tensor-parallel operations each iteration, how long.

    Attributes
    ----------
    begin_us
        When it begins, microseconds since the epoch.
    """

    ranks: int
    tensor_operations: int
    window_s: int
    begin_us: int = BEGIN_US

    @property
    def rate_hz(self) -> int:
        """Operations that each rank launches a second."""
        return (self.tensor_operations + DATA_OPERATIONS + 1) * SECOND_US // ITERATION_US

    @property
    def lasts_us(self) -> int:
        """How long it is told, microseconds: also while it stands."""
        return self.window_s * SECOND_US + STANDS_US


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
            at = rank.load.begin_us + iteration * ITERATION_US + place * 10_000
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
    begin, before = rank.load.begin_us, 0
    for read in range(
        begin + PERIOD_S * SECOND_US, begin + rank.load.lasts_us + 1, PERIOD_S * SECOND_US
    ):
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


class Message(NamedTuple):
    """What a collector sends, and when (microseconds since the epoch)."""

    at_us: int
    key: str
    value: bytes


def messages(load: Load, culprit: int, codec: Codec) -> list[Message]:
    """Return what the collectors of a job send in the window, in order."""
    found = []
    for number in range(load.ranks):
        process = RankProcess(
            cluster="bench", task_id=TASK, rank=number, world_size=load.ranks,
            host_id=f"host:{number // 8}", endpoint_ids=(f"{TASK}-w{number // 8}/r{number % 8}",),
            attempt=load.begin_us, pid=number + 1, process_state=ProcessState.SLEEPING,
            cpu_ns=None,
        )  # fmt: skip
        for snapshot, at in batches(Rank(number, load), stalls=culprit):
            # A hundredth of a core.
            work = replace(process, cpu_ns=(at - load.begin_us) * US_NS // 100)
            batch = batch_of(
                snapshot, work, taken_at=at, source=CollectiveSource.FLIGHT_RECORDER, whole=False
            )
            value = codec.encode(topics.COLLECTIVE_OP, batch)
            found.append(Message(at, rank_id(TASK, number), value))
    return sorted(found, key=lambda message: message.at_us)
