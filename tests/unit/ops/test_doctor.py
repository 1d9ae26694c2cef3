"""Each thing that can be wrong is found, named and answered with something to do."""

from dataclasses import replace

import pytest

from ops.doctor.examine import CHECKS, examine
from ops.doctor.snapshot import Beat, Check, Snapshot, Status
from schemas.enums import AgentState, PingListPhase, ProbingState, TargetOrigin, Transport
from schemas.kafka.leadership import Leader
from schemas.records import Endpoint, Heartbeat, PingList, PingTarget, Skeleton, Task
from tests.unit.ops.recording_samples import START_MS

NOW_MS = START_MS + 3_600_000
NOW = NOW_MS * 1000


def heartbeat(agent: str = "agent-h0", age_ms: int = 500, **change: object) -> Heartbeat:
    """Return an agent's heartbeat of that age."""
    beat = Heartbeat(
        cluster="c",
        agent_id=agent,
        host_id="h0",
        incarnation=1,
        seq=5,
        sent_at=NOW - age_ms * 1000,
        interval_ns=10**9,
        state=AgentState.RUNNING,
        endpoints=1,
        targets_active=3,
        targets_waiting=0,
        rounds_sent=9,
        results_sent=99,
        rounds_dropped=0,
        replies_duplicate=0,
        replies_late=0,
        replies_foreign=0,
        packets_malformed=0,
        records_undecodable=0,
        broker_away=False,
    )
    return replace(beat, **change)  # type: ignore[arg-type]


def endpoint(endpoint_id: str, agent: str = "agent-h0") -> Endpoint:
    """Return a registration."""
    return Endpoint(
        cluster="c",
        endpoint_id=endpoint_id,
        agent_id=agent,
        container_id="c0",
        host_id="h0",
        rail=0,
        transport=Transport.UDP,
        address="127.0.0.1",
        port=1,
        incarnation=1,
        registered_at=NOW,
    )


def pinglist(*targets: str) -> PingList:
    """Return the list of an agent of task t0."""
    return PingList(
        cluster="c",
        agent_id="agent-h0",
        version=1,
        updated_at=NOW,
        phase=PingListPhase.PRELOAD,
        targets=tuple(
            PingTarget(src="c0/r0", dst=d, task_id="t0", origin=TargetOrigin.BASIC, flows=4)
            for d in targets
        ),
    )


def task(age_ms: int, ended: bool = False) -> Task:
    """Return task t0, submitted so long ago."""
    return Task(
        cluster="c",
        task_id="t0",
        submitted_at=NOW - age_ms * 1000,
        ended_at=NOW if ended else None,
        endpoints=(),
    )


WELL = Snapshot(
    now_ms=NOW_MS,
    bootstrap="127.0.0.1:9092",
    heartbeats={"agent-h0": heartbeat()},
    live={"agent-h0": Beat(delay_ms=20, incarnations=frozenset({1}))},
    listened_ms=2500,
    endpoints={"c0/r0": endpoint("c0/r0"), "c1/r0": endpoint("c1/r0")},
    pinglists={"agent-h0": pinglist("c1/r0")},
    tasks={"t0": task(60_000)},
    rounds_ms={0: NOW_MS - 800},
    progress_ms={0: NOW_MS - 900},
    worker_lag={0: 1, 1: None},
    localizer_lag={0: 2},
    leaders={"localizer": Leader("h0:7", "0a", NOW_MS - 900), "bridge": None},
)


def found(snapshot: Snapshot, name: str) -> Check:
    """Return the check of that name."""
    (check,) = (c for c in examine(snapshot) if c.name == name)
    return check


def test_a_healthy_cluster_has_nothing_to_do() -> None:
    """All checks are ok, and none asks for anything."""
    checks = examine(WELL)
    assert [(c.name, c.status, c.todo) for c in checks] == [(c.name, Status.OK, "") for c in checks]
    assert len(checks) == len(CHECKS) + 1


def test_an_empty_cluster_only_lacks_agents() -> None:
    """A new cluster, topics made, is not called broken."""
    checks = examine(Snapshot(now_ms=NOW_MS, bootstrap="b"))
    assert [c.name for c in checks if c.status is not Status.OK] == ["agents alive"]


def test_without_broker_nothing_else_is_guessed() -> None:
    """An unreachable broker is one failure, not thirteen."""
    (check,) = examine(Snapshot(now_ms=NOW_MS, bootstrap="b", unreachable="no route"))
    assert (check.name, check.status, check.found) == ("broker", Status.FAIL, "no route")


HOUR_MS = 3_600_000
CASES: list[tuple[str, Status, str, dict[str, object]]] = [
    ("topics", Status.FAIL, "missing: task.v1", {"missing_topics": ("task.v1",)}),
    ("topics", Status.WARN, "1 difference: ~ x", {"topic_differences": ("~ x",)}),
    ("schemas", Status.FAIL, "HTTP 500", {"registry_url": "u", "registry_error": "HTTP 500"}),
    ("schemas", Status.FAIL, "not registered: a", {"registry_url": "u", "unregistered": ("a",)}),
    (
        "agents alive",
        Status.FAIL,
        "silent: agent-h0 (30 s ago)",
        {"heartbeats": {"agent-h0": heartbeat(age_ms=30_000)}, "live": {}},
    ),
    (
        "agents alive",
        Status.FAIL,
        "silent: agent-h9 (no heartbeat)",
        {"endpoints": {"c9/r0": endpoint("c9/r0", "agent-h9")}},
    ),
    (
        "agents well",
        Status.WARN,
        "degraded: agent-h0 (counters unreadable)",
        {
            "heartbeats": {
                "agent-h0": heartbeat(state=AgentState.DEGRADED, state_reason="counters unreadable")
            }
        },
    ),
    (
        "agent ids",
        Status.FAIL,
        "more than one process sends as agent-h0",
        {"live": {"agent-h0": Beat(delay_ms=1, incarnations=frozenset({1, 2}))}},
    ),
    (
        "clocks",
        Status.WARN,
        "against this machine's: agent-h0 2.0 s ahead",
        {"live": {"agent-h0": Beat(delay_ms=-2_000, incarnations=frozenset({1}))}},
    ),
    (
        "clocks",
        Status.FAIL,
        "against this machine's: agent-h0 6.0 s behind",
        {"live": {"agent-h0": Beat(delay_ms=6_000, incarnations=frozenset({1}))}},
    ),
    ("clocks", Status.WARN, "no heartbeat came in 2 s: cannot tell", {"live": {}}),
    (
        "clock offsets",
        Status.WARN,
        "against the broker's: agent-h0 0.9 s behind; 1 agent could not tell",
        {
            "heartbeats": {
                "agent-h0": heartbeat(clock_offset_ns=-900_000_000),
                "agent-h1": heartbeat("agent-h1", clock_offset_ns=3_000_000),
                "agent-h2": heartbeat("agent-h2"),
            }
        },
    ),
    (
        "clock offsets",
        Status.FAIL,
        "against the broker's: agent-h0 40.0 s ahead",
        {"heartbeats": {"agent-h0": heartbeat(clock_offset_ns=40_000_000_000)}},
    ),
    (
        "probing",
        Status.FAIL,
        "displaced, or refusing a ping list: agent-h0 (yielded to 7), "
        "agent-h1 (list refused: IMPLAUSIBLE_VERSION)",
        {
            "heartbeats": {
                "agent-h0": heartbeat(
                    probing=ProbingState.DISPLACED, probing_reason="yielded to 7"
                ),
                "agent-h1": heartbeat("agent-h1", list_refusal="IMPLAUSIBLE_VERSION"),
            }
        },
    ),
    (
        "drops",
        Status.WARN,
        "since they started: agent-h0 dropped 7 rounds, agent-h0 could not decode 1 record",
        {"heartbeats": {"agent-h0": heartbeat(rounds_dropped=7, records_undecodable=1)}},
    ),
    (
        "rounds",
        Status.FAIL,
        "1 agent with active targets, but no rounds: last 60 s ago",
        {"rounds_ms": {0: NOW_MS - 60_000}, "progress_ms": {0: NOW_MS - 60_000}},
    ),
    (
        "worker",
        Status.FAIL,
        "partition 1 never decided; 1 round not committed",
        {"rounds_ms": {0: NOW_MS, 1: NOW_MS}},
    ),
    (
        "worker",
        Status.WARN,
        "up to 10 s behind the rounds; 1 round not committed",
        {"progress_ms": {0: NOW_MS - 10_800}},
    ),
    ("localizer", Status.FAIL, "has never committed a position", {"localizer_lag": {0: None}}),
    ("localizer", Status.FAIL, "400 records of anomaly.v1 not read", {"localizer_lag": {0: 400}}),
    (
        "leaders",
        Status.FAIL,
        "no localizer leads: h0:7 did until 60 s ago",
        {"leaders": {"localizer": Leader("h0:7", "0a", NOW_MS - 60_000)}},
    ),
    (
        "dead letters",
        Status.WARN,
        "probe.round.v1.dlq 3, task.v1 (met by doctor) 1",
        {"dead_letters": {"probe.round.v1.dlq": 3}, "undecodable": {"task.v1": 1}},
    ),
    (
        "targets",
        Status.WARN,
        "on ping lists, never registered: t0: c7/r0",
        {"pinglists": {"agent-h0": pinglist("c7/r0")}, "tasks": {"t0": task(HOUR_MS)}},
    ),
    (
        "skeletons",
        Status.WARN,
        "none for t0 (submitted 60 min ago)",
        {"tasks": {"t0": task(HOUR_MS)}},
    ),
]


@pytest.mark.parametrize(("name", "status", "text", "change"), CASES)
def test_what_is_wrong_is_found(
    name: str, status: Status, text: str, change: dict[str, object]
) -> None:
    """Each fault changes its check, which says what it saw and what to do."""
    check = found(replace(WELL, **change), name)  # type: ignore[arg-type]
    assert (check.status, check.found) == (status, text)
    assert check.todo


def test_targets_of_young_and_ended_tasks_are_no_fault() -> None:
    """Containers start up to ten minutes apart, and an ended task needs nobody."""
    lists = {"agent-h0": pinglist("c7/r0")}
    young = found(replace(WELL, pinglists=lists), "targets")
    assert (young.status, young.found) == (
        Status.OK,
        "all registered; 1 target of young tasks not yet up",
    )
    ended = replace(WELL, pinglists=lists, tasks={"t0": task(HOUR_MS, ended=True)})
    assert found(ended, "targets").status is Status.OK
    assert found(ended, "skeletons").found == "no task runs"


def test_refused_rounds_that_are_committed_are_not_behind() -> None:
    """Garbage came to a partition that never had a round: done with, though no time moved."""
    garbage = replace(
        WELL, rounds_ms={0: NOW_MS - 800, 1: NOW_MS - 500}, worker_lag={0: 1, 1: 0}
    )  # fmt: skip
    assert found(garbage, "worker").status is Status.OK
    waiting = replace(garbage, worker_lag={0: 1, 1: 2})
    assert found(waiting, "worker").status is Status.FAIL


def test_an_agent_that_left_is_not_silent() -> None:
    """After LEAVING and its tombstones nothing is expected of an agent."""
    gone = {"agent-h0": heartbeat(), "agent-h1": heartbeat("agent-h1", 60_000,
            state=AgentState.LEAVING)}  # fmt: skip
    assert found(replace(WELL, heartbeats=gone), "agents alive").status is Status.OK


def test_skeletons_are_counted_with_their_age() -> None:
    """A task that has a skeleton is well, however long ago it was inferred."""
    skeleton = Skeleton(
        cluster="c",
        task_id="t0",
        version=1,
        window_start_at=0,
        window_end_at=NOW - 600 * 10**6,
        confidence=0.9,
        members=(),
        pairs=(),
    )
    snapshot = replace(WELL, tasks={"t0": task(HOUR_MS)}, skeletons={"t0": skeleton})
    assert found(snapshot, "skeletons").found == "1 for 1 running task, oldest from 10 min ago"


def test_long_lists_are_cut() -> None:
    """A thousand silent agents take one line."""
    many = {f"c{i}/r0": endpoint(f"c{i}/r0", f"agent-{i:04}") for i in range(1000)}
    check = found(replace(WELL, endpoints=many, pinglists={}), "agents alive")
    assert check.found.endswith("and 995 more")
    assert len(check.found) < 250
