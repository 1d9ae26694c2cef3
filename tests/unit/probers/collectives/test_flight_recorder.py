"""Dumps of the Flight Recorder: what they say, and what is said of those that cannot be used."""

import json
import os
import pickle
from typing import Any

import pytest

from probers.collectives.flight_recorder import (
    MAX_DUMP_BYTES,
    MAX_JSON_BYTES,
    DumpError,
    NoDumpError,
    read_dump,
)
from schemas.enums import CollectiveState
from tests.flight_recorder import BEGIN_NS, MESH, WORLD, Rank

ONE = Rank(2, MESH).launch("0", sizes=[[4, 256], []]).launch("2", state="started")


def document(**changed: Any) -> bytes:
    """Return a small dump as JSON, some of its keys changed."""
    return json.dumps(ONE.document() | changed).encode()


def test_all_fields_of_an_operation_are_read() -> None:
    """In the units of the records."""
    snapshot = read_dump(ONE.pickled(), "any", taken_at=BEGIN_NS // 1000 + 10**6).snapshot
    first, second = snapshot.operations
    assert (snapshot.rank, snapshot.library, snapshot.version) == (2, "nccl", "2.10")
    assert (first.communicator, first.operation, first.sequence) == ("0", "all_reduce", 1)
    assert (first.input_sizes, first.input_dtypes) == (((4, 256), ()), ("BFloat16", "BFloat16"))
    assert first.n_bytes == 2 * (1024 + 1)
    assert first.launched_at == BEGIN_NS // 1000
    assert first.started_at == first.launched_at + 1_000
    assert first.completed_at == first.launched_at + 2_000
    assert (first.state, first.retired, first.missing_reason) == (
        CollectiveState.COMPLETED, True, None,
    )  # fmt: skip
    assert first.stack == (
        "train at /job/train_all_reduce.py:7", "main at /job/main.py:1",
    )  # fmt: skip
    assert (second.state, second.completed_at) == (CollectiveState.STARTED, None)
    assert second.missing_reason == "not seen to happen"
    assert {view.communicator: view.ranks for view in snapshot.communicators} == {
        "0": (0, 1, 2, 3), "2": (2, 3), "3": (0, 2),
    }  # fmt: skip


def test_json_says_the_same_as_a_pickle_but_for_stacks() -> None:
    """There 0 stands for a time that is missing."""
    pickled = read_dump(ONE.pickled(), "d2").snapshot
    text = read_dump(ONE.json(), "d2").snapshot
    assert all(not operation.stack for operation in text.operations)
    assert [(o.started_at, o.completed_at, o.state) for o in text.operations] == [
        (o.started_at, o.completed_at, o.state) for o in pickled.operations
    ]


@pytest.mark.parametrize(
    "version", ["2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.9", "2.10", "2.99"]
)
def test_minor_versions_are_read_without_a_word(version: str) -> None:
    """Keys that early ones lack are None."""
    content = Rank(1, WORLD, version=version).launch("0").document()
    for key in ("op_id", "thread_id", "timeout_ms", "pg_status"):
        content["entries"][0].pop(key, None)
        content.pop(key, None)
    dump = read_dump(pickle.dumps(content, protocol=2), "d_1")
    assert not dump.warnings
    assert dump.snapshot.operations[0].timeout_ms is None


@pytest.mark.parametrize("version", ["3.0", "", "abc", "1.5"])
def test_other_versions_are_read_as_far_as_they_are_alike(version: str) -> None:
    """And it is said."""
    dump = read_dump(document(version=version), "d2")
    assert "is not known" in dump.warnings[0]
    assert len(dump.snapshot.operations) == 2


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_7", 7), ("7", 7), ("host17_dump_7.json", 7), ("node-3.rank07.pkl", 7),
        ("run2/host17/fr-7.pt", 7),
        ("rank0_113100", 0), ("Rank-7_of_64.json", 7), ("rank7_dump", 7),
    ],
)  # fmt: skip
def test_the_rank_is_a_number_of_the_name(name: str, rank: int) -> None:
    """After `rank`, else the last; whatever else is there, such as hosts and times."""
    assert read_dump(document(pg_config={}), name).snapshot.rank == rank


def test_the_rank_comes_from_the_content_where_it_stands_there() -> None:
    """Stated, or the one rank in all its groups; a name that says otherwise is told."""
    assert read_dump(document(rank=5), "d1").snapshot.rank == 5
    dump = read_dump(document(), "dump_of_host_17")
    assert dump.snapshot.rank == 2
    assert "says rank 17" in dump.warnings[0]
    assert read_dump(document(), "dump").snapshot.rank == 2


def test_a_place_in_a_group_tells_the_rank() -> None:
    """A send names the sender's place."""
    sender = Rank(3, {"9": [1, 3]}).launch("9", "send 1->0", p2p=True)
    assert read_dump(sender.pickled(), "dump").snapshot.rank == 3


@pytest.mark.parametrize("name", ["dump", "dump_rank", "host1_dump"])
def test_a_dump_whose_rank_cannot_be_told_is_refused(name: str) -> None:
    """Its only group has four ranks."""
    content = Rank(1, WORLD).launch("0").pickled()
    with pytest.raises(DumpError, match="which rank's it is cannot be told"):
        read_dump(content, name)


def test_a_name_that_contradicts_all_groups_is_refused() -> None:
    """The file was renamed, or is of another job."""
    with pytest.raises(DumpError, match="says rank 9, which is in none of"):
        read_dump(Rank(1, WORLD).launch("0").pickled(), "rank_9")


def test_gloo_is_done_when_retired_and_its_members_are_not_believed() -> None:
    """Its state stays scheduled, and its one group has no name."""
    content = (
        Rank(1, WORLD).launch("0", state="scheduled").launch("0", state="scheduled").document()
    )
    for entry, retired in zip(content["entries"], (True, False), strict=True):
        entry |= {"profiling_name": "gloo:all_reduce", "retired": retired}
    content["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
    snapshot = read_dump(pickle.dumps(content, protocol=2), "d3").snapshot
    assert [o.state for o in snapshot.operations] == [
        CollectiveState.COMPLETED, CollectiveState.SCHEDULED,
    ]  # fmt: skip
    assert snapshot.operations[0].missing_reason == "not recorded by this library"
    (view,) = snapshot.communicators
    assert (view.communicator, view.ranks) == ("0", None)


def test_a_ring_that_turned_says_how_many_it_lost() -> None:
    """And one with a hole is told."""
    rank = Rank(2, MESH)
    for _ in range(6):
        rank.launch("0")
    assert read_dump(rank.pickled(ring=2), "d2").snapshot.dropped_before == 4
    content = rank.document()
    del content["entries"][3]
    assert read_dump(json.dumps(content).encode(), "d2").warnings == (
        "operations are missing between others",
    )


def test_the_time_of_a_file_that_is_older_than_its_content_is_not_believed() -> None:
    """It is missing, with the reason."""
    snapshot = read_dump(document(), "d2", taken_at=BEGIN_NS // 1000 - 1).snapshot
    assert snapshot.taken_at is None
    assert snapshot.taken_at_missing_reason == "the file is older than what it holds"


class Runs:
    """Its pickle calls `os.system`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("echo run > /dev/null",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps({"version": "2.10", "entries": Runs()}), "would run code"),
        (b"", "empty: the rank ended while it wrote"),
        (ONE.pickled()[:-40], "cut short"),
        (ONE.json()[:-40], "no JSON"),
        (b"[" * 100_000, "neither pickle nor JSON"),
        (b'{"version": ' + b"[" * 100_000, "nested too deep"),
        (b"\x80\x02N.", "no dictionary"),
        (b"{}", "neither version nor entries"),
        (b"2026-01-01 rank 0 starts", "neither pickle nor JSON"),
        (document(entries={}), "entries is no list"),
        (document(entries=[1]), "an entry is no dictionary"),
        (document(entries=[{}]), "record_id is no integer"),
        (document(pg_config=[1]), "pg_config is no dictionary"),
        (document(pg_config={"0": 1}), "a group is no dictionary"),
        (document(entries=[ONE.entries[0] | {"record_id": "7"}]), "record_id is no integer"),
        (document(entries=[ONE.entries[0] | {"record_id": True}]), "record_id is no integer"),
        (document(entries=[ONE.entries[0] | {"time_created_ns": 1.5}]), "a time is no integer"),
        (document(entries=[ONE.entries[0] | {"collective_seq_id": 2**70}]), "no integer"),
        (document(entries=[ONE.entries[0] | {"input_sizes": 4}]), "sizes is no list"),
        (document(entries=[ONE.entries[0] | {"input_sizes": [[0] * 100]}]), "more than 64 items"),
        (document(entries=[ONE.entries[0] | {"frames": [4]}]), "a frame is no dictionary"),
        (b"\x80" + bytes(MAX_DUMP_BYTES), "larger than"),
        (b"{" + bytes(MAX_JSON_BYTES), "bytes of JSON"),
    ],
    ids=range(23),
)
def test_what_cannot_be_used_is_refused_in_a_sentence(content: bytes, said: str) -> None:
    """Nothing else is raised."""
    with pytest.raises(DumpError, match=said):
        read_dump(content, "d2")


def test_a_log_beside_the_dumps_is_no_damaged_dump() -> None:
    """It is something else."""
    with pytest.raises(NoDumpError):
        read_dump(b"rank 0 starts", "log.0")


def test_texts_cannot_steer_a_terminal() -> None:
    """Nor fill it."""
    entry = ONE.entries[0] | {
        "profiling_name": "nccl:all\x1b[2Jreduce",
        "frames": [{"name": "x" * 10_000, "filename": "\r\n", "line": "\x07"}],
    }
    (operation,) = read_dump(document(entries=[entry]), "d2").snapshot.operations
    assert operation.operation == "all?[2Jreduce"
    assert operation.stack[0].endswith(" at ??:?")
    assert len(operation.stack[0]) < 500


def test_a_number_of_a_group_cannot_steer_a_terminal_nor_explode() -> None:
    """A pickle may name one list twice in another, forty deep."""
    held: Any = "x"
    for _ in range(40):
        held = [held, held]
    for number, name in ((held, ""), ("\x1b[31mred", "?[31mred")):
        content = ONE.document() | {"pg_config": {}}
        entry = {k: v for k, v in ONE.entries[0].items() if k != "process_group"}
        content["entries"] = [entry | {"pg_id": number}]
        (operation,) = read_dump(pickle.dumps(content, 2), "d2").snapshot.operations
        assert operation.communicator == name


def test_ranks_that_many_groups_share_are_read_once_and_limited() -> None:
    """In a pickle they cost a byte for each group."""
    ranks = list(range(100_000))
    for count, refused in ((40, False), (60, True)):
        config = {str(n): {"name": str(n), "desc": "", "ranks": ranks} for n in range(count)}
        content = pickle.dumps(ONE.document() | {"pg_config": config}, 2)
        if refused:
            with pytest.raises(DumpError, match="names more than"):
                read_dump(content, "d2")
        else:
            views = read_dump(content, "d2").snapshot.communicators
            assert len({id(view.ranks) for view in views if view.ranks}) == 1


def test_a_byte_order_mark_is_no_content() -> None:
    """Some editors put one before JSON."""
    assert read_dump(b"\xef\xbb\xbf" + document(), "d2").snapshot.rank == 2


def test_a_coalesced_launch_leaves_no_hole() -> None:
    """It is left out of the operations, and was recorded."""
    rank = Rank(0, WORLD)
    for _ in range(2):
        rank.launch("0", "send 0->1", p2p=True)
        rank.launch("0", "coalesced", p2p=True, same_launch=True)
    dump = read_dump(rank.pickled(), "d0")
    assert len(dump.snapshot.operations) == 2
    assert not dump.warnings


def test_tensors_that_many_operations_share_are_limited() -> None:
    """Read for each of 200,000 operations they would take hours."""
    entry = ONE.entries[0] | {"input_sizes": [[8]] * 50_000, "input_dtypes": ["Float"] * 50_000}
    content = pickle.dumps(ONE.document() | {"entries": [entry] * 10_000}, 2)
    with pytest.raises(DumpError, match="values"):
        read_dump(content, "d2")
