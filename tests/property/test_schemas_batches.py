"""A snapshot that went through `collective.op.v1` is the same."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import Codec
from schemas.enums import CollectiveSource, CollectiveState, CommunicatorRole, ProcessState
from schemas.ids import rank_id
from schemas.records import CollectiveBatch, CollectiveOp, CollectiveSnapshot, CommunicatorProgress
from schemas.records.batches import (
    RankProcess,
    batch_of,
    communicators_of,
    role_of,
    snapshot_of,
)
from schemas.topics import COLLECTIVE_COMM, COLLECTIVE_OP

PROCESS = RankProcess(
    cluster="c", task_id="job1", rank=3, world_size=8, host_id="h0", endpoint_ids=("e0", "e1"),
    attempt=17, pid=4711, process_state=ProcessState.SLEEPING, cpu_ns=5,
)  # fmt: skip
CODEC = Codec()

texts = st.text(max_size=8)
ranks = st.integers(0, 2**17 - 1)
longs = st.integers(0, 2**53)
times = st.none() | st.integers(0, 7_258_118_400_000_000)
shapes = st.lists(st.lists(longs, max_size=3).map(tuple), max_size=3).map(tuple)
dtypes = st.lists(st.sampled_from(["Float", "BFloat16"]), max_size=3).map(tuple)


@st.composite
def snapshots(draw: st.DrawFn) -> CollectiveSnapshot:
    """Return any snapshot within the bounds of the topic."""
    names = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    operations = st.builds(
        CollectiveOp,
        communicator=st.sampled_from(names), operation=texts, sequence=longs, is_p2p=st.booleans(),
        record_id=longs, op_id=st.none() | longs, sender=st.none() | ranks,
        receiver=st.none() | ranks, input_sizes=shapes, output_sizes=shapes, input_dtypes=dtypes,
        output_dtypes=dtypes, n_bytes=st.none() | longs, launched_at=times, started_at=times,
        completed_at=times, missing_reason=st.none() | st.sampled_from(["one", "another"]),
        state=st.sampled_from(CollectiveState), retired=st.none() | st.booleans(),
        timeout_ms=st.none() | longs, stack=st.lists(texts, max_size=3).map(tuple),
    )  # fmt: skip
    members = st.none() | st.lists(ranks, min_size=1, max_size=3).map(tuple)
    taken_at = draw(times)
    return CollectiveSnapshot(
        rank=PROCESS.rank, source=rank_id(PROCESS.task_id, PROCESS.rank),
        library=draw(st.none() | texts), version=draw(texts), taken_at=taken_at,
        taken_at_missing_reason="not known" if taken_at is None else None,
        dropped_before=draw(longs),
        communicators=tuple(
            CommunicatorProgress(communicator=name, description=draw(texts), ranks=draw(members))
            for name in names
        ),
        operations=tuple(draw(st.lists(operations, max_size=5))),
    )  # fmt: skip


@given(held=snapshots())
def test_a_snapshot_comes_back_as_it_was(held: CollectiveSnapshot) -> None:
    """All of it, by the bytes of both topics."""
    source = CollectiveSource.FLIGHT_RECORDER
    batch = CODEC.decode(
        COLLECTIVE_OP,
        CODEC.encode(COLLECTIVE_OP, batch_of(held, PROCESS, taken_at=5, source=source)),
    )
    told = [
        CODEC.decode(COLLECTIVE_COMM, CODEC.encode(COLLECTIVE_COMM, one))
        for one in communicators_of(held, PROCESS, updated_at=5)
    ]
    assert isinstance(batch, CollectiveBatch)
    assert (batch.endpoint_ids, batch.pid, batch.source) == (("e0", "e1"), 4711, source)
    assert snapshot_of(batch, {one.communicator: one for one in told}) == held


@given(held=snapshots())
def test_a_batch_names_what_its_operations_need(held: CollectiveSnapshot) -> None:
    """Each once; of some operations no communicator of the others."""
    some = held.operations[:2]
    batch = batch_of(
        held, PROCESS, taken_at=5, source=CollectiveSource.UNKNOWN, operations=some, whole=False
    )
    assert set(batch.communicators) == {o.communicator for o in some}
    for table in (batch.communicators, batch.shapes, batch.signatures, batch.frames, batch.stacks):
        assert len(set(table)) == len(table)
    assert snapshot_of(batch, {}).operations == some


@given(held=snapshots().filter(lambda s: s.operations), index=st.sampled_from([-1, 60_000]))
def test_an_index_beyond_a_table_is_refused(held: CollectiveSnapshot, index: int) -> None:
    """It would be another operation's, or end the reader."""
    batch = batch_of(held, PROCESS, taken_at=5, source=CollectiveSource.UNKNOWN)
    for field in ("communicator", "signature", "stack", "missing_reason"):
        changed: dict[str, Any] = {field: index}
        first = replace(batch.operations[0], **changed)
        with pytest.raises(ValueError, match="an index beyond"):
            snapshot_of(replace(batch, operations=(first, *batch.operations[1:])), {})


def test_roles_are_told_by_descriptions() -> None:
    """Those of PyTorch's device mesh, of Megatron and of none."""
    known = {
        "default_pg": CommunicatorRole.WORLD, "mesh_tp": CommunicatorRole.TP,
        "DATA_PARALLEL_GROUP": CommunicatorRole.DP, "undefined": CommunicatorRole.UNKNOWN,
    }  # fmt: skip
    assert {name: role_of(name) for name in known} == known
