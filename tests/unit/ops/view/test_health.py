"""Is it the network? Each part says how it does, and the answer admits what nobody would see."""

from typing import Any

from ops.view.cluster import ClusterView
from ops.view.health import Answer, Status, headline, parts
from schemas import topics as t
from schemas.enums import Layer
from schemas.topics import Topic
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, fault, heartbeat, small_cluster


def view_of(*more: tuple[Topic, Any]) -> ClusterView:
    """Return the small cluster, all well, and what more was said."""
    view, log = ClusterView(), Log()
    for seen in log.all([*small_cluster(), *more]):
        view.apply(seen)
    return view


def status(view: ClusterView, name: str, now_ms: int = START_MS + 1_000) -> Status:
    """Return how a part does."""
    return next(p.status for p in parts(view, now_ms) if p.name == name)


def answer(view: ClusterView, now_ms: int = START_MS + 1_000) -> Answer:
    """Return whether it is the network."""
    return headline(view, parts(view, now_ms)).answer


def test_all_well_is_no() -> None:
    """Nobody is silent, all 5-tuples are probed, the worker has decided."""
    view = view_of()
    assert answer(view) is Answer.NO
    assert {p.name for p in parts(view, START_MS) if p.status is Status.BAD} == set()


def test_an_open_fault_is_yes() -> None:
    """Of the network, that is; one of a host is not."""
    assert answer(view_of((t.FAULT_EVENT, fault()))) is Answer.YES
    host = fault(layer=Layer.HOST, severity="warning")
    view = view_of((t.FAULT_EVENT, host))
    assert answer(view) is Answer.NO
    assert status(view, "host") is Status.ODD


def test_a_job_that_hangs_is_not_the_network() -> None:
    """Unless nobody knows why."""
    stopped = fault(layer=Layer.JOB, fault_kind="rank_stopped")
    view = view_of((t.FAULT_EVENT, stopped))
    assert answer(view) is Answer.NO
    assert status(view, "job") is Status.BAD
    stuck = fault(layer=Layer.JOB, fault_kind="collective_stuck", decided=False)
    assert answer(view_of((t.FAULT_EVENT, stuck))) is Answer.UNKNOWN


def test_nobody_there_is_no_answer() -> None:
    """An empty cluster, silent agents and a silent worker see no fault."""
    assert answer(ClusterView()) is Answer.UNKNOWN
    view = view_of()
    assert status(view, "agents", START_MS + 10_000) is Status.BAD
    assert status(view, "worker", START_MS + 20_000) is Status.BAD
    assert answer(view, START_MS + 10_000) is Answer.UNKNOWN


def test_agents_that_drop_or_whose_clock_is_wrong_are_odd() -> None:
    """They still probe."""
    log = Log()
    view = ClusterView()
    for second in (0, 1, 2):
        beat = heartbeat(rounds_dropped=second * 7, clock_offset_ns=2 * 10**9)
        view.apply(log.seen(t.HEARTBEAT, beat, at_ms=START_MS + second * 1_000))
    found = next(p for p in parts(view, START_MS + 2_000) if p.name == "agents")
    assert found.status is Status.ODD
    assert "wrong clock" in found.found
    assert "dropping" in found.found


def test_half_of_the_5_tuples_unprobed_is_bad() -> None:
    """By windows, where they are there."""
    log = Log()
    view = ClusterView()
    for topic, record in small_cluster():
        if topic is t.PROBE_WINDOW and (record.flow or record.src == "h1/r0"):
            continue
        silent = topic is t.HEARTBEAT
        told = heartbeat(record.agent_id, flows_active=0) if silent else record
        view.apply(log.seen(topic, told))
    found = next(p for p in parts(view, START_MS) if p.name == "coverage")
    assert found.status is Status.BAD
    assert "1 of 8" in found.found
