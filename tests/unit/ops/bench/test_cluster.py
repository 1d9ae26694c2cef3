"""The simulated cluster: who runs where, what its agents publish, what is held against it."""

from dataclasses import replace
from typing import Any

import pytest

from arena.simulation.setup import Rec
from ops.bench.cluster.agents import COLLECT_NS, Fleet, Outgoing
from ops.bench.cluster.jobs import Jobs
from ops.bench.cluster.lists import Lists
from ops.bench.cluster.paths import rnic_of
from ops.bench.cluster.run import ClusterRun, Stored
from ops.bench.cluster.shape import CLUSTER, FULL_AGENTS, RAILS, ClusterShape
from ops.bench.cluster.watch import Costs, LagClock, Verdicts
from ops.bench.rig.report import Figure
from ops.bench.scale.cluster import figures
from schemas import topics
from schemas.codec import Codec
from schemas.enums import FaultLifecycle, Layer
from schemas.records import FaultEvent, PingList
from schemas.units import SECOND_NS
from skeleton_job.core import SkeletonCore
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.tasks.inference import InferenceConfig
from streams.columns.rounds import round_columns

SHAPE = ClusterShape(agents=40, seconds=20)
NOW_NS = 1_790_000_000 * SECOND_NS
CODEC = Codec()


class Platform:
    """Jobs and a skeleton job's core that makes their lists, as the topics join them."""

    def __init__(self, shape: ClusterShape = SHAPE) -> None:
        self.jobs = Jobs(shape)
        self.core = SkeletonCore(CLUSTER, ListConfig(), InferenceConfig())
        self.lists = Lists(self.jobs)
        self.fleet = Fleet(shape, CODEC, NOW_NS)
        self.publish(self.jobs.fill(NOW_NS // 1000))

    def publish(self, recs: list[Rec]) -> None:
        """Hand records to the core and to the agents, and its lists to both."""
        hosts = set()
        for rec in recs:
            if rec.topic == topics.TASK.name:
                self.core.apply_task(rec.key, rec.record)
            else:
                self.core.apply_endpoint(rec.key, rec.record)
                self.fleet.registered(rec.key, here=rec.record is not None)
                hosts.add(rnic_of(rec.key) // RAILS)
        self.fleet.touched(sorted(hosts))
        self.lists.touched(hosts)
        for agent, made in self.core.lists_due():
            self.fleet.listed(agent, made)
            self.lists.observe_list(agent, made, 100)

    def second(self, number: int) -> list[Outgoing]:
        """Return what all agents publish of a second."""
        at_ns = NOW_NS + number * SECOND_NS
        return [
            made
            for agent in self.fleet.by_phase
            for made in self.fleet.second(agent, at_ns + agent.phase_ns)
        ]


def rounds(made: list[Outgoing]) -> list[dict[str, Any]]:
    """Return the rounds among messages, decoded."""
    return [
        CODEC.decode_datum(topics.PROBE_ROUND, m.value)
        for m in made
        if m.topic is topics.PROBE_ROUND
    ]


def test_the_full_size_is_the_published_cluster() -> None:
    """40,000 RNICs, some 2,000 jobs at once, 2,000 containers a minute."""
    shape = ClusterShape()
    assert (shape.rnics, shape.agents) == (40_000, FULL_AGENTS)
    assert shape.containers_hz * 60 == pytest.approx(2_000)
    jobs = Jobs(shape)
    jobs.fill(0)
    assert 1_900 <= len(jobs.running) <= 2_100
    assert ClusterShape.parse(shape.text()) == shape


def test_faults_lie_within_the_time_one_after_another() -> None:
    """Also in the shortest run that a test makes."""
    for seconds in (20, 60, 600):
        planned = ClusterShape(seconds=seconds).planned
        times = [t for fault in planned for t in (fault.begin_s, fault.end_s)]
        assert times == sorted(times)
        assert times[-1] <= seconds


def test_a_host_has_one_container_at_a_time_and_rests_between_two() -> None:
    """Whatever comes and goes; as many containers begin as are due."""
    jobs = Jobs(SHAPE)
    jobs.fill(0)
    ended_at: dict[int, float] = {}
    for step in range(1, 600):
        at_s = step / 2
        before = set(jobs.job_of)
        jobs.churn(at_s, round(at_s * 1e6))
        for host in before - set(jobs.job_of):
            ended_at[host] = at_s
        for host in set(jobs.job_of) - before:
            assert at_s - ended_at.get(host, -99.0) >= 1.0
        hosts = [host for job in jobs.running for host in job.hosts]
        assert len(hosts) == len(set(hosts)) == len(jobs.job_of)
        assert set(hosts).isdisjoint(jobs.free)
    assert jobs.begun == pytest.approx(300 * SHAPE.containers_hz, abs=5)


def test_agents_probe_what_their_lists_say() -> None:
    """Each round is one that a worker takes, and holds each 5-tuple of the list once."""
    platform = Platform()
    for number in range(3):
        found = rounds(platform.second(number))
        assert len(found) == len(platform.jobs.job_of)
        for datum in found:
            columns = round_columns(datum)
            host = int(datum["agent_id"].removeprefix("agent-h"))
            made = platform.fleet.agents[host].pinglist
            assert made is not None
            wanted = {(t.src, t.dst, flow) for t in made.targets for flow in range(t.flows)}
            assert {key[1:] for key in columns.keys} == wanted
            assert columns.count == len(wanted)
            assert bool(columns.ok.all())


def test_who_has_left_is_not_probed() -> None:
    """A job that ends takes its 5-tuples with it at once, list or not."""
    platform = Platform()
    host = next(iter(platform.jobs.job_of))
    peers = platform.jobs.job_of[host].hosts
    for rail in range(RAILS):
        platform.fleet.registered(f"ep:h{host}/r{rail}", here=False)
    platform.fleet.touched(peers)
    probed = {r["dst"] for datum in rounds(platform.second(0)) for r in datum["results"]}
    assert not any(dst.startswith(f"ep:h{host}/") for dst in probed)


@pytest.mark.parametrize("sort", [0, 2])
def test_what_is_dead_loses_all_probes_and_nothing_else_does(sort: int) -> None:
    """An RNIC (0) or a spine (2): three losses a round, late rounds, traces; then all is well."""
    platform = Platform()
    fleet = platform.fleet
    fabric = SHAPE.fabric
    host = platform.jobs.running[0].hosts[0]
    number = host * RAILS + 3 if sort == 0 else fabric.numbers(2).start
    platform.second(0)
    fleet.break_down(frozenset({number}), NOW_NS + SECOND_NS)
    made = platform.second(1)
    lost: set[tuple[str, str, int]] = set()
    for message in made:
        if message.topic is not topics.PROBE_ROUND:
            continue
        datum = CODEC.decode_datum(topics.PROBE_ROUND, message.value)
        assert round_columns(datum).count == message.results
        by_key: dict[tuple[str, str, int], list[str]] = {}
        for r in datum["results"]:
            by_key.setdefault((r["src"], r["dst"], r["flow"]), []).append(r["status"])
        for key, statuses in by_key.items():
            agent = fleet.agents[rnic_of(key[0]) // RAILS]
            paths = agent.paths
            assert paths is not None
            place = list(zip(paths.src, paths.dst, paths.flow, strict=True)).index(key)
            crosses = number in paths.way[place]
            assert len(statuses) == (3 if crosses else 1)
            assert all((status != "OK") == crosses for status in statuses)
            if crosses:
                lost.add(key)
                assert message.due_ns - message.at_ms * 10**6 > COLLECT_NS
    traces = [
        CODEC.decode_datum(topics.PATH_TRACE, m.value) for m in made if m.topic is topics.PATH_TRACE
    ]
    traced = {(t["src"], t["dst"], t["flow"]) for t in traces if t["cause"] == "LOSS"}
    assert lost
    assert traced == lost
    assert all(t["complete"] == (t["cause"] != "LOSS") for t in traces)
    fleet.break_down(frozenset(), NOW_NS + 2 * SECOND_NS)
    again = rounds(platform.second(2))
    assert all(r["status"] == "OK" for datum in again for r in datum["results"])


def test_a_fault_told_ahead_begins_when_it_does() -> None:
    """Its rounds are made before, sent from its begin on, and over at its end."""
    platform = Platform()
    number = SHAPE.fabric.numbers(2).start
    platform.fleet.break_down(frozenset({number}), NOW_NS + 12 * SECOND_NS)
    lost = {}
    for second in range(1, 17):
        if second == 13:
            platform.fleet.break_down(frozenset(), NOW_NS + 15 * SECOND_NS)
        found = rounds(platform.second(second))
        lost[second] = sum(r["status"] != "OK" for d in found for r in d["results"])
        if second == 11:
            assert all(a.ahead for a in platform.fleet.agents if a.paths is not None and a.seq)
    assert {second for second, count in lost.items() if count} == {12, 13, 14}


def test_needless_and_wrong_lists_are_noticed() -> None:
    """Said again, said of an agent nothing happened to, or never said: each is counted."""
    platform = Platform()
    lists = platform.lists
    assert (lists.missing(), lists.wrong()) == (0, 0)
    lists.begin()
    platform.publish(platform.jobs.churn(30.0, NOW_NS // 1000 + 1))
    told = lists.counts()
    assert told["lists_needless"] == told["lists_wrong"] == 0
    assert 0 < told["agents_changed"] <= told["lists"] <= 2 * told["agents_changed"]
    agent, made = _any(platform)
    lists.observe_list(agent, replace(made, version=made.version + 1), 100)
    assert (lists.needless, lists.wrong()) == (1, 0)
    # From now on nothing happens to any agent.
    lists.begin()
    lists.observe_list(agent, replace(made, targets=made.targets[1:]), 100)
    assert (lists.needless, lists.wrong()) == (1, 1)
    lists.observe_list(agent, None, 0)
    assert (lists.needless, lists.missing(), lists.wrong()) == (2, 1, 1)


def _any(platform: Platform) -> tuple[str, PingList]:
    for job in reversed(platform.jobs.running):
        made = platform.fleet.agents[job.hosts[0]].pinglist
        if made is not None and made.targets:
            return made.agent_id, made
    raise AssertionError("no agent has a list")


def test_lag_is_the_age_of_the_oldest_that_waits() -> None:
    """In seconds: of the worst partition, whatever the others do."""
    clock = LagClock()
    assert clock.observe(0.0, {0: 10, 1: 0}, {0: 10, 1: None}) == (0.0, 0)
    assert clock.observe(1.0, {0: 20, 1: 0}, {0: 20, 1: None}) == (0.0, 0)
    # What came after the look at 1 s waits: for two seconds at most.
    assert clock.observe(3.0, {0: 30, 1: 5}, {0: 20, 1: None}) == (2.0, 15)
    assert clock.observe(4.0, {0: 40, 1: 5}, {0: 30, 1: None}) == (3.0, 15)
    assert clock.observe(5.0, {0: 40, 1: 5}, {0: 40, 1: 5}) == (0.0, 0)


def event(fault_id: str, component: str, *tasks: str) -> FaultEvent:
    """Return a verdict."""
    return FaultEvent(
        cluster=CLUSTER, fault_id=fault_id, seq=1, state=FaultLifecycle.OPEN, event_at=1,
        onset_at=1, opened_at=1, layer=Layer.UNDERLAY, component_kind="LINK",
        component_id=component, decided=True, fault_kind="connectivity", severity="error",
        confidence=1.0, summary="", bad_paths=3, good_paths=0, unexplained_paths=0, flaps=0,
        tasks=tasks, candidates=(), evidence=(),
    )  # fmt: skip


def test_verdicts_are_held_against_what_was_put_in() -> None:
    """The delay runs from the fault; what names nothing put in is false, by whose jobs it hits."""
    verdicts = Verdicts()
    verdicts.observe({"what": "x", "components": ["spine:1"], "at_ns": 5 * SECOND_NS})
    assert verdicts.delay_s(verdicts.injected[0]) is None
    verdicts.begun.add("born")
    verdicts.events += [
        (4.0, event("a", "spine:1")),
        (8.5, event("b", "spine:1")),
        (9.0, event("c", "vswitch:h1", "born")),
        (9.5, event("d", "vswitch:h2", "born", "old")),
        (9.6, event("e", "vswitch:h3")),
    ]
    assert verdicts.delay_s(verdicts.injected[0]) == pytest.approx(3.5)
    assert [e.fault_id for e in verdicts.false(begun=True)] == ["c"]
    assert [e.fault_id for e in verdicts.false(begun=False)] == ["d", "e"]


def a_run(**told: float) -> ClusterRun:
    """Return a run in which all is well, but for what is told otherwise."""
    said = {
        "results": 1_000, "messages": 100, "seconds": 10.0, "containers": 5, "behind_s": 0.1,
        "unpublished": 0, "lists": 12, "agents_changed": 10, "lists_needless": 0,
        "lists_wrong": 0, "lists_longest": 2_048, "activation_s": 1.0,
        "activation_worst_s": 2.0, "cpu_s": 4.0, "peak_bytes": 10**8,
    }  # fmt: skip
    run = ClusterRun(SHAPE, Verdicts(), Costs({}), summary=said | told, lag_s=1.0, drained_s=0.5)
    run.verdicts.observe({"what": "x", "components": ["spine:1"], "at_ns": 5 * SECOND_NS})
    run.verdicts.events.append((8.0, event("a", "spine:1")))
    run.localizer_behind_s = [0.5, 1.5]
    run.costs.share["worker"] = 0.25
    run.costs.rss_bytes["worker"] = 3 * 10**8
    names = ("probe.window.v1", "anomaly.v1")
    run.stored = {name: Stored(size=10_240, records=100) for name in names}
    return run


def rows(*runs: ClusterRun) -> dict[str, Figure]:
    """Return the figures without the size in their names."""
    return {row.figure.partition(": ")[2]: row for row in figures(list(runs))}


def test_a_good_run_meets_its_bars() -> None:
    """The simulator's cost stands beside the others'."""
    found = rows(a_run())
    assert all(row.met for row in found.values())
    assert found["simulator: CPU, of a core"].value == pytest.approx(40)
    assert found["worker: CPU, of a core"].value == pytest.approx(25)
    assert found["x: until the verdict"].value == pytest.approx(3)


def test_what_goes_wrong_misses_its_bar() -> None:
    """Each by itself, also where another run was well."""
    late = a_run()
    late.lag_s = 30.0
    blamed = a_run()
    blamed.verdicts.events.append((9.0, event("b", "leaf:1")))
    silent = a_run()
    silent.verdicts.events.clear()
    slow = a_run()
    slow.verdicts.events[:] = [(10.5, event("a", "spine:1"))]
    held_up = a_run()
    held_up.localizer_behind_s.append(6.0)
    lagging = a_run()
    lagging.worst_lag_s = 7.0
    died = a_run()
    died.ended.append("worker")
    for run, name in (
        (late, "workers behind at the end"),
        (blamed, "false verdicts"),
        (slow, "x: until the verdict"),
        (held_up, "localizer behind, as it says itself, the most"),
        (lagging, "workers behind, the most"),
        (died, "processes that ended by themselves"),
        (a_run(behind_s=9.0), "messages that the simulator published late, the latest"),
        (a_run(unpublished=1), "messages not published"),
        (a_run(lists_needless=1), "lists published needlessly"),
        (a_run(lists_wrong=1), "lists that are wrong at the end"),
        (a_run(lists_longest=65 * 1_024), "the longest list"),
    ):
        missed = [key for key, row in rows(a_run(), run).items() if not row.met]
        assert missed == [name]
    found = rows(a_run(), silent)
    assert [key for key, row in found.items() if not row.met] == [
        "x: named", "x: until the verdict",
    ]  # fmt: skip
    assert found["x: until the verdict"].value is None
