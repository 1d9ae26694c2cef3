"""Many batches read by a kernel are what the codec reads one by one."""

import json
import sys
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.collectives import batch_operations, operation_fold, remembered
from localizer.collectives.batch_reader import BatchReader
from localizer.collectives.rank_batch import BatchHead, RankBatch
from localizer.collectives.rank_operations import RankOperations
from schemas import avro, topics
from schemas.avro import SchemaVersion
from schemas.codec import Codec, DecodeError, to_datum
from schemas.enums import CollectiveSource, CollectiveState, ProcessState
from schemas.framing import ConfluentFramer, Framer
from schemas.records import (
    BatchOperation,
    CallStack,
    CollectiveBatch,
    CollectiveOp,
    OperationSignature,
    TensorShape,
)
from schemas.records.batches import BatchError, operations_of

CODEC = Codec()
AT_US = 1_790_000_000 * 10**6
ARRIVAL_NS = AT_US * 1_000
INDEX = st.integers(0, 2)
TIMES = st.none() | st.integers(AT_US, AT_US + 10**7)
NUMBERS = st.none() | st.integers(0, 100_000)
NAMES = st.text("abc/_1", max_size=8)
OPERATIONS = st.builds(
    BatchOperation,
    record_id=st.integers(0, 2**40), communicator=INDEX, signature=INDEX,
    sequence=st.integers(-1, 10**9), is_p2p=st.booleans(), op_id=NUMBERS, sender=NUMBERS,
    receiver=NUMBERS, n_bytes=NUMBERS, launched_at=TIMES, started_at=TIMES, completed_at=TIMES,
    missing_reason=st.none() | INDEX, state=st.sampled_from(CollectiveState),
    retired=st.none() | st.booleans(), timeout_ms=NUMBERS, stack=st.none() | INDEX,
)  # fmt: skip
SIGNATURES = st.builds(
    OperationSignature,
    operation=NAMES, input_shapes=st.lists(INDEX, max_size=3).map(tuple),
    output_shapes=st.lists(INDEX, max_size=3).map(tuple),
    input_dtypes=st.lists(NAMES, max_size=2).map(tuple),
    output_dtypes=st.lists(NAMES, max_size=2).map(tuple),
)  # fmt: skip


def tables(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw what indices refer to: sometimes too little."""
    return st.lists(values, min_size=2, max_size=4).map(tuple)


BATCHES = st.builds(
    CollectiveBatch,
    cluster=st.just("c"), rank_id=st.just("job|1"), task_id=st.just("job"), rank=st.just(1),
    world_size=st.none() | st.just(8), host_id=st.just("h"),
    endpoint_ids=st.lists(st.sampled_from(["w1/r0", "w1/r1"]), max_size=2).map(tuple),
    attempt=st.just(AT_US), pid=st.none() | st.just(4711),
    process_state=st.sampled_from(ProcessState), cpu_ns=NUMBERS,
    source=st.sampled_from(CollectiveSource), library=st.none() | st.just("nccl"),
    format_version=st.none() | st.sampled_from(["2.10", "ä"]), taken_at=st.just(AT_US),
    recorded_at=TIMES, missing_reason=st.none() | NAMES, snapshot=st.booleans(),
    dropped_before=st.integers(0, 5), communicators=tables(NAMES),
    shapes=tables(
        st.builds(TensorShape, sizes=st.lists(st.integers(0, 9), max_size=3).map(tuple))
    ),
    signatures=tables(SIGNATURES), frames=tables(NAMES),
    stacks=tables(st.builds(CallStack, frames=st.lists(INDEX, max_size=3).map(tuple))),
    reasons=tables(NAMES), operations=st.lists(OPERATIONS, max_size=5).map(tuple),
    producer_version=st.none() | st.just("1.0"),
)  # fmt: skip


PLAIN = CollectiveBatch(
    cluster="c", rank_id="job|1", task_id="job", rank=1, host_id="h", endpoint_ids=(),
    attempt=AT_US, process_state=ProcessState.RUNNING, source=CollectiveSource.FLIGHT_RECORDER,
    taken_at=AT_US, snapshot=False, dropped_before=0, communicators=(), shapes=(), signatures=(),
    frames=(), stacks=(), reasons=(), operations=(),
)  # fmt: skip


# The head of a batch, its communicators, and its operations.
Said = tuple[BatchHead, tuple[str, ...], tuple[CollectiveOp, ...]]


def by_codec(value: bytes) -> Said | None:
    """Return what the codec says, None for an error."""
    try:
        batch = CODEC.decode(topics.COLLECTIVE_OP, value, arrival_ns=ARRIVAL_NS)
        operations = operations_of(batch)
    except (DecodeError, BatchError):
        return None
    return BatchHead.of(batch), batch.communicators, operations


def read(reader: BatchReader, values: list[bytes]) -> list[Said | None]:
    """Let a reader read messages."""
    found = reader.read(values, np.full(len(values), ARRIVAL_NS, np.int64))
    return [None if one is None else said(one) for one in found]


def said(one: RankBatch) -> Said:
    """Return what a reader has read."""
    operations = one.operations
    return one.head, tuple(operations.communicators), tuple(operations.columns().records())


@settings(max_examples=200)
@given(
    batches=st.lists(BATCHES, min_size=1, max_size=5),
    damage=st.none() | st.tuples(st.integers(0, 4), st.integers(0, 400), st.integers(0, 255)),
)
def test_it_reads_what_the_codec_reads(
    batches: list[CollectiveBatch], damage: tuple[int, int, int] | None
) -> None:
    """Indices in and out of the tables, damaged bytes, arrays that are known and new."""
    values = [CODEC.encode(topics.COLLECTIVE_OP, batch) for batch in batches]
    whole = list(values)
    if damage is not None and damage[0] < len(values):
        number, at, byte = damage
        broken = bytearray(values[number])
        broken[at % len(broken)] = byte
        values[number] = bytes(broken)
    reader = BatchReader(CODEC)
    for _ in range(2):
        # The second time all arrays that can be are known.
        for got, value, sent, batch in zip(
            read(reader, values), values, whole, batches, strict=True
        ):
            said = by_codec(value)
            plain = value == sent and batch.format_version != "ä"
            assert got == said if got is not None or plain else True


class Refusing(Codec):
    """A codec that is not asked."""

    def decode(self, *_: Any, **__: Any) -> Any:
        """Fail."""
        raise AssertionError("asked")


class Noting(Codec):
    """A codec that notes the batches that it decodes."""

    def __init__(self, framer: Framer | None = None) -> None:
        super().__init__(framer)
        self.decoded: list[CollectiveBatch] = []

    def decode(self, *args: Any, **kwargs: Any) -> Any:
        """Note, and decode."""
        self.decoded.append(super().decode(*args, **kwargs))
        return self.decoded[-1]


def completed(count: int) -> tuple[BatchOperation, ...]:
    """Return so many operations that are over, of the first communicator and signature."""
    return tuple(
        BatchOperation(
            record_id=number, communicator=0, signature=0, sequence=number, is_p2p=False,
            state=CollectiveState.COMPLETED,
        )
        for number in range(count)
    )  # fmt: skip


@pytest.mark.parametrize("version", [None, "2.10"])
def test_of_what_is_new_the_codec_decodes_no_operations(version: str | None) -> None:
    """They were read already, and are what takes long; what follows them is not missed."""
    signature = OperationSignature(
        operation="all_reduce", input_shapes=(0,), output_shapes=(), input_dtypes=("Float",),
        output_dtypes=(),
    )  # fmt: skip
    operations = completed(100)
    batch = replace(
        PLAIN, communicators=("a",), shapes=(TensorShape(sizes=(7,)),), signatures=(signature,),
        operations=operations, producer_version=version, endpoint_ids=("w1/r0",),
    )  # fmt: skip
    value = CODEC.encode(topics.COLLECTIVE_OP, batch)
    codec = Noting()
    assert read(BatchReader(codec), [value]) == [by_codec(value)]
    assert codec.decoded == [replace(batch, operations=(), producer_version=None)]


@given(batch=BATCHES.filter(lambda b: b.format_version != "\xe4"))
def test_what_a_job_says_again_is_read_without_the_codec(batch: CollectiveBatch) -> None:
    """The same communicators, signatures and endpoints, with another operation."""
    if by_codec(CODEC.encode(topics.COLLECTIVE_OP, batch)) is None:
        return
    reader = BatchReader(CODEC)
    read(reader, [CODEC.encode(topics.COLLECTIVE_OP, batch)])
    reader._codec = Refusing()
    later = replace(batch, operations=batch.operations[:-1], taken_at=AT_US + 1)
    value = CODEC.encode(topics.COLLECTIVE_OP, later)
    assert read(reader, [value]) == [by_codec(value)]


def _turned() -> SchemaVersion:
    """Return a version whose fields stand in another order: names before all else."""
    current = avro.current(topics.COLLECTIVE_OP.name)
    schema = json.loads(current.text)
    schema["fields"].sort(key=lambda field: field["name"] not in ("communicators", "endpoint_ids"))
    return avro.load_version(current.topic, current.version + 1, json.dumps(schema))


class Turned:
    """A registry that knows this version alone, by one id."""

    version: Final = _turned()

    def id_of(self, _schema: SchemaVersion) -> int:
        """Return it."""
        return 77

    def schema_of(self, _topic: str, _schema_id: int) -> SchemaVersion:
        """Return the version."""
        return self.version


@settings(max_examples=50)
@given(batches=st.lists(BATCHES, min_size=1, max_size=4))
def test_what_another_version_wrote_is_read_alike(batches: list[CollectiveBatch]) -> None:
    """Its fields stand in another order: the codec reads its names, each once."""
    framer = ConfluentFramer(Turned())
    current = [CODEC.encode(topics.COLLECTIVE_OP, batch) for batch in batches]
    good = [
        (batch, wanted)
        for batch, wanted in zip(batches, map(by_codec, current), strict=True)
        if batch.format_version != "\xe4" and wanted is not None
    ]
    values = [
        framer.header(Turned.version) + avro.write_datum(Turned.version, to_datum(batch))
        for batch, _ in good
    ]
    codec = Noting(framer)
    reader = BatchReader(codec)
    for _ in range(2):
        assert read(reader, values) == [wanted for _, wanted in good]
    senders, tables, asked = set(), set(), []
    for batch, _ in good * 2:
        sender = batch.world_size, batch.endpoint_ids, batch.communicators
        refers = (
            batch.shapes, batch.signatures, batch.frames, batch.stacks, batch.reasons,
        )  # fmt: skip
        if sender not in senders or refers not in tables:
            asked.append(batch)
        senders.add(sender)
        tables.add(refers)
    assert codec.decoded == asked


def test_names_of_another_rank_are_read_without_the_codec() -> None:
    """At a start those of each rank are new; what they refer to is not."""
    reader = BatchReader(CODEC)
    read(reader, [CODEC.encode(topics.COLLECTIVE_OP, PLAIN)])
    reader._codec = Refusing()
    others = [
        replace(PLAIN, endpoint_ids=(f"w{n}/r0",) * (n % 3), communicators=(f"tp{n}",) * (n % 4))
        for n in range(20)
    ]
    values = [CODEC.encode(topics.COLLECTIVE_OP, other) for other in others]
    assert read(reader, values) == [by_codec(value) for value in values]


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint_ids": ("",)}, {"endpoint_ids": ("w",) * 65}, {"endpoint_ids": ("w" * 300,)},
        {"communicators": ("c" * 1_025,)},
    ],
)  # fmt: skip
def test_names_out_of_bounds_are_the_codec_s_to_refuse(wrong: dict[str, Any]) -> None:
    """As many and as long as the topic's bounds allow, where the tables are known as well."""
    reader = BatchReader(CODEC)
    values = [
        CODEC.encode(topics.COLLECTIVE_OP, batch) for batch in (PLAIN, replace(PLAIN, **wrong))
    ]
    assert by_codec(values[1]) is None
    for _ in range(2):
        assert read(reader, values) == [by_codec(value) for value in values]


def test_of_arrays_that_are_always_new_only_the_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer that says something else each time fills no memory, and is read all the same."""
    monkeypatch.setattr(remembered, "MAX_KNOWN_BYTES", 5_000)
    values = [
        CODEC.encode(topics.COLLECTIVE_OP, replace(PLAIN, communicators=(f"group{number:08}",)))
        for number in range(20)
    ]
    reader = BatchReader(CODEC)
    assert read(reader, values) == [by_codec(value) for value in values]
    assert 0 < len(reader._senders) < len(values) // 2


def test_nothing_of_a_bad_message_stands_in_the_next_one() -> None:
    """It ends a byte too late, when all its columns are filled."""
    operation = BatchOperation(
        record_id=1, communicator=0, signature=0, sequence=0, is_p2p=False,
        state=CollectiveState.COMPLETED,
    )  # fmt: skip
    signature = OperationSignature(
        operation="all_reduce", input_shapes=(), output_shapes=(), input_dtypes=(),
        output_dtypes=(),
    )  # fmt: skip
    batch = replace(PLAIN, communicators=("a",), signatures=(signature,), operations=(operation,))
    good = CODEC.encode(topics.COLLECTIVE_OP, batch)
    retired = replace(batch, operations=(replace(operation, retired=True),))
    reader = BatchReader(CODEC)
    (alone,) = read(reader, [good])
    bad = CODEC.encode(topics.COLLECTIVE_OP, retired) + b"\0"
    assert read(reader, [bad, good]) == [None, alone]


def test_it_reads_messages_with_many_more_operations_than_those_before() -> None:
    """Room is made for as many as is usual; a block that has more is read once more."""
    one = BatchOperation(
        record_id=0, communicator=0, signature=0, sequence=0, is_p2p=False,
        state=CollectiveState.COMPLETED,
    )  # fmt: skip
    reader = BatchReader(CODEC)
    said = replace(PLAIN, communicators=("dp",), signatures=(OperationSignature(
        operation="all_reduce", input_shapes=(), output_shapes=(), input_dtypes=(),
        output_dtypes=(),
    ),))  # fmt: skip
    for count in (1, 400, 1, 0, 400):
        batch = replace(
            said, operations=tuple(replace(one, record_id=number) for number in range(count))
        )
        values = [CODEC.encode(topics.COLLECTIVE_OP, batch)] * 20
        values[3] = values[3][:-2]
        assert read(reader, values) == [by_codec(value) for value in values]


def test_names_are_not_python_s_to_keep() -> None:
    """Python 3.12.0 to 3.12.6 never free what they have interned."""
    batch = replace(PLAIN, endpoint_ids=("w4711/r0",), host_id="host-4711")
    held = BatchReader(CODEC).read(
        [CODEC.encode(topics.COLLECTIVE_OP, b) for b in (PLAIN, batch)], np.full(2, ARRIVAL_NS)
    )
    assert held[1] is not None
    for name in (*held[1].head.endpoint_ids, held[1].head.host_id):
        # Equal, but another object: the interned one if there is any.
        other = "".join(list(name))
        assert sys.intern(other) is other


def test_a_message_that_is_not_read_lets_no_kernel_be_compiled() -> None:
    """What is left of its block stands in the order for which kernels are compiled at a start."""
    operations = completed(20)
    signature = OperationSignature(
        operation="all_reduce", input_shapes=(), output_shapes=(), input_dtypes=(),
        output_dtypes=(),
    )  # fmt: skip
    good = replace(PLAIN, communicators=("a",), signatures=(signature,), operations=operations)
    values = [
        CODEC.encode(topics.COLLECTIVE_OP, batch)
        for batch in (good, replace(good, format_version="\xe4"), good)
    ]
    reader = BatchReader(CODEC)
    reader.warm()
    operation_fold.warm()
    kernels: tuple[Any, ...] = (operation_fold.fold, batch_operations._note_greatest)
    before = [list(kernel.signatures) for kernel in kernels]
    first, bad, last = reader.read(values, np.full(3, ARRIVAL_NS))
    assert first is not None
    assert bad is None
    assert last is not None
    assert last.operations.numbers.flags.c_contiguous
    for batch in (first, last):
        RankOperations().apply(batch.operations, 2, whole=False)
    assert [list(kernel.signatures) for kernel in kernels] == before
