"""Lines of NCCL's Inspector: operations that are done, and lines that are none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.collectives.nccl_inspector import (
    ENDED_EARLIER,
    MAX_LINE_BYTES,
    InspectorLog,
    LineError,
    parse_line,
)
from schemas.enums import CollectiveState
from tests.nccl_answers import LOGGED_US, inspector_line, inspector_p2p, lines


def parse(document: Any, *, rank: int = 1, world_size: int | None = 2) -> Any:
    """Return what a line says."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_line(content, number=5, rank=rank, world_size=world_size)


def test_a_collective_is_done_and_how_long_it_took_is_known() -> None:
    """NCCL counts for each function: it is a communicator of its own."""
    line = parse(inspector_line(1_407))
    one = line.operation
    assert (one.communicator, one.operation, one.sequence, one.record_id) == (
        "0xabc/all_reduce", "all_reduce", 1_407, 5,
    )  # fmt: skip
    assert (one.n_bytes, one.state) == (1_000, CollectiveState.COMPLETED)
    assert (one.launched_at, one.started_at, one.completed_at) == (
        None, LOGGED_US - 250, LOGGED_US,
    )  # fmt: skip
    assert (one.missing_reason, line.version) == (ENDED_EARLIER, "v4.0")
    assert (line.group.description, line.group.ranks) == ("dp", (0, 1))


def test_a_verbose_line_has_its_times() -> None:
    """From its launch to the last channel's end."""
    document = inspector_line()
    document["coll_perf"]["event_trace_ts"] = {
        "coll_start_ts": LOGGED_US - 900, "coll_stop_ts": LOGGED_US - 890,
        "kernel_events": [
            {"channel_id": 0, "kernel_start_ts": LOGGED_US - 800, "kernel_stop_ts": LOGGED_US - 90},
            {"channel_id": 1, "kernel_start_ts": LOGGED_US - 700, "kernel_stop_ts": LOGGED_US - 80},
        ],
    }  # fmt: skip
    one = parse(document).operation
    assert (one.launched_at, one.started_at, one.completed_at, one.missing_reason) == (
        LOGGED_US - 900, LOGGED_US - 800, LOGGED_US - 80, None,
    )  # fmt: skip
    document["coll_perf"]["event_trace_ts"]["kernel_events"][1]["kernel_stop_ts"] = 0
    assert parse(document).operation.missing_reason == ENDED_EARLIER


@pytest.mark.parametrize(("func", "ends"), [("Send", (1, 0)), ("Recv", (0, 1))])
def test_point_to_point_operations_have_ends(func: str, ends: tuple[int, int]) -> None:
    """Those of the communicator."""
    one = parse(inspector_p2p(3, func)).operation
    assert (one.is_p2p, one.sequence, one.communicator) == (True, 3, "0xabc")
    assert (one.sender, one.receiver) == ends


def test_members_are_known_of_the_jobs_own_communicator_alone() -> None:
    """A smaller one, or one in which the rank has another number, has members nobody names."""
    assert parse(inspector_line(), world_size=4).group.ranks is None
    assert parse(inspector_line(), rank=0).group.ranks is None
    assert parse(inspector_line(comm_name="unknown")).group.description == ""
    # Of versions that do not name communicators, and with keys that are not known.
    document = inspector_line() | {"new": {"deep": [1]}}
    del document["header"]["comm_name"]
    assert parse(document).group.description == ""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"7", "without header"),
        (b"{}", "without header"),
        (b" " * (MAX_LINE_BYTES + 1), "longer than"),
        (inspector_line(coll_sn=-1), "coll_sn"),
        (inspector_line(coll_sn=2**63), "coll_sn"),
        (inspector_line(coll_sn=True), "coll_sn"),
        (inspector_line(coll_sn=1.5), "coll_sn"),
        (inspector_line(rank=2), "rank"),
        (inspector_line(n_ranks=2**40), "n_ranks"),
        (inspector_line(id=""), "without a communicator"),
        (inspector_line(coll=["AllReduce"]), "without a communicator or a function"),
        (inspector_line(dump_timestamp_us=2**62), "dump_timestamp_us"),
    ],
)
def test_what_is_no_line_is_refused(content: Any, why: str) -> None:
    """With a reason."""
    with pytest.raises(LineError, match=why):
        parse(content)


def test_a_log_goes_on_behind_a_bad_line() -> None:
    """Bad lines are counted; numbers of operations go on from one look to the next."""
    log = InspectorLog(1, 2)
    first = log.take([*lines(inspector_line(1)), b"{", b""], written_at=LOGGED_US)
    second = log.take(lines(inspector_line(2), inspector_p2p()), written_at=LOGGED_US)
    assert [o.record_id for o in first.snapshot.operations] == [0]
    assert [o.record_id for o in second.snapshot.operations] == [1, 2]
    assert (second.snapshot.dropped_before, second.highest_record_id) == (1, 2)
    assert (log.refused, log.why) == (1, "a line that is no JSON")
    assert second.snapshot.version == "inspector v4.0"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KEYS = sorted({key for part in (*inspector_line().values(), *inspector_p2p().values())
               for key in part})  # fmt: skip


@given(
    st.one_of(
        st.binary(max_size=200),
        JSON.map(lambda value: json.dumps(value).encode()),
        st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3).map(
            lambda changed: json.dumps(inspector_line(**changed)).encode()
        ),
    )
)
def test_no_line_harms_its_reader(content: bytes) -> None:
    """It is an operation within the bounds of records, or is refused."""
    try:
        one = parse(content).operation
    except LineError:
        return
    assert 0 <= one.sequence < 2**63
    assert 0 <= (one.completed_at or 0) < 2**63
    assert (one.communicator + one.operation).isprintable()
