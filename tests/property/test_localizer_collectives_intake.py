"""However records are cut into polls, the hang watcher knows what it would of each by itself."""

from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.collectives.hang_watch import HangWatch
from localizer.collectives.operation_fold import TAKEN
from localizer.config import HangsConfig
from localizer.edge.batches import collective_reader
from localizer.edge.hang_service import HangService
from schemas.codec import Codec
from schemas.enums import CollectiveSource, CollectiveState, ProcessState
from schemas.ids import rank_id
from schemas.kafka.connection import KafkaSettings
from schemas.records import CollectiveBatch, CollectiveOp, CollectiveSnapshot
from schemas.records.batches import RankProcess, batch_of
from schemas.topics import COLLECTIVE_OP

CLUSTER: Final = "c"
AT_US: Final = 1_790_000_000_000_000
RANKS: Final = (("job", 0), ("job", 1), ("job", 2), ("other", 0))
SECOND_US: Final = 1_000_000
CODEC: Final = Codec()
SETTINGS: Final = KafkaSettings(bootstrap="", cluster=CLUSTER)


@dataclass(frozen=True)
class Told:
    """What a rank tells once; `damage` is what is wrong with the message."""

    rank: int
    attempt: int
    operations: list[CollectiveOp]
    whole: bool
    dropped: int
    damage: str | None

    def message(self, number: int) -> Message:
        """Return it as the number-th message."""
        at_us = AT_US + number * SECOND_US
        task, rank = RANKS[self.rank]
        process = RankProcess(
            cluster="another" if self.damage == "cluster" else CLUSTER, task_id=task, rank=rank,
            world_size=3, host_id=f"h{rank}", endpoint_ids=(f"w{rank}/r0",),
            attempt=AT_US + self.attempt * 3_600 * SECOND_US, pid=4711 + self.attempt,
            process_state=ProcessState.RUNNING, cpu_ns=number,
        )  # fmt: skip
        snapshot = CollectiveSnapshot(
            rank=rank, source="", library="nccl", version="2.10", taken_at=at_us,
            taken_at_missing_reason=None, dropped_before=self.dropped, communicators=(),
            operations=tuple(self.operations),
        )  # fmt: skip
        batch = batch_of(
            snapshot, process, taken_at=at_us, source=CollectiveSource.FLIGHT_RECORDER,
            whole=self.whole,
        )  # fmt: skip
        value = CODEC.encode(COLLECTIVE_OP, self._damaged(batch))
        return Message(
            topic=COLLECTIVE_OP.name, partition=self.rank, offset=number,
            key=b"job|7" if self.damage == "key" else rank_id(task, rank).encode(),
            value=value[:-3] if self.damage == "bytes" else value,
            timestamp=(1, at_us // 1_000),
        )  # fmt: skip

    def _damaged(self, batch: CollectiveBatch) -> CollectiveBatch:
        if self.damage != "index" or not batch.operations:
            return batch
        beyond = replace(batch.operations[-1], communicator=len(batch.communicators))
        return replace(batch, operations=(*batch.operations[:-1], beyond))


def operation(number: int, group: str, times: tuple[int | None, ...], size: int) -> CollectiveOp:
    """Return an operation; the times are those of launch, beginning and end."""
    launched, started, ended = (None if t is None else AT_US + t * 100_000 for t in times)
    return CollectiveOp(
        communicator=group, operation="all_reduce", sequence=number, is_p2p=False,
        record_id=number, op_id=None, sender=None, receiver=None, input_sizes=((size,),),
        output_sizes=(), input_dtypes=("F32",), output_dtypes=(), n_bytes=4 * size,
        launched_at=launched, started_at=started, completed_at=ended,
        missing_reason=None if ended else "not recorded", retired=ended is not None,
        state=CollectiveState.STARTED if ended is None else CollectiveState.COMPLETED,
        timeout_ms=600_000, stack=("f",) * (number % 2),
    )  # fmt: skip


TIME = st.none() | st.integers(0, 300)
# Numbers again and again, with gaps, in any order.
OPERATIONS = st.lists(
    st.builds(
        operation, st.integers(0, 40), st.sampled_from(("dp", "tp", "world")),
        st.tuples(TIME, TIME, TIME), st.integers(1, 2),
    ),
    max_size=8,
)  # fmt: skip
TOLD = st.builds(
    Told,
    rank=st.integers(0, len(RANKS) - 1), attempt=st.sampled_from((0, 0, 0, 1)),
    operations=OPERATIONS, whole=st.booleans(), dropped=st.sampled_from((0, 0, 0, 5)),
    damage=st.sampled_from((None,) * 8 + ("bytes", "index", "key", "cluster")),
)  # fmt: skip


class Watcher:
    """The watcher's process without its connections."""

    def __init__(self) -> None:
        self._service = HangService(SETTINGS, CODEC, HangsConfig())
        self._reader = collective_reader(CODEC)
        self.watch = HangWatch(CLUSTER)
        self.refused: list[int] = []
        letters = SimpleNamespace(put=lambda error, _message: self.refused.append(error.offset))
        self._outbox: Any = SimpleNamespace(letters=letters)

    def poll(self, messages: list[Message], *, together: bool) -> None:
        """Take what a poll returns, read together or each by itself."""
        told = [(COLLECTIVE_OP, message) for message in messages]
        read = self._reader.read(told) if together else {}
        for topic, message in told:
            self._service._take(message, topic, self.watch, self._outbox, read.get(id(message)))

    def known(self) -> Any:
        """Return all that is known."""
        return {
            name: (
                job.waits, job.every, job.former, job.heard_ns, job.restarted_ns, job.attempt,
                job._held_up,
                [
                    (
                        state.batch, state.attempt, state.first_ns, state.arrived_ns,
                        tuple(state._cpu), state.operations._counts[:TAKEN],
                        state.operations.records(), state.operations.whole,
                        state.operations.oldest_wait(), state.operations._names,
                    )
                    for _, state in sorted(job.ranks.items())
                ],
            )
            for name, job in self.watch.jobs.items()
        }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    told=st.lists(TOLD, min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    kept=st.integers(1, 8),
)
def test_it_does_not_matter_how_records_are_cut_into_polls(
    told: list[Told], cuts: list[int], kept: int
) -> None:
    """Of ranks in any order, told twice, with gaps; what is bad is refused, the rest is used."""
    messages = [one.message(number) for number, one in enumerate(told)]
    together, alone = Watcher(), Watcher()
    for watcher in (together, alone):
        for task, _ in RANKS:
            job = watcher.watch._watched(task)
            assert job is not None
            job.job.most_kept = kept
    places = [0, *sorted(min(cut, len(messages)) for cut in cuts), len(messages)]
    for begin, end in pairwise(places):
        together.poll(messages[begin:end], together=True)
        alone.poll(messages[begin:end], together=False)
        assert together.known() == alone.known()
    assert together.refused == alone.refused
    bad = {n for n, one in enumerate(told) if one.damage in {"bytes", "key", "cluster"}}
    assert bad <= set(together.refused)
