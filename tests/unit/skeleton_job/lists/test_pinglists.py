"""Lists per agent: preload, skeleton, exploration."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from schemas.codec import Codec
from schemas.enums import PingListPhase, TargetOrigin
from schemas.ids import MAX_ID_CHARS
from schemas.records import PingList, PingTarget, Skeleton, SkeletonMember, SkeletonPair, Task
from schemas.topics import PINGLIST
from skeleton_job.job import Job, Pair, Rnic, natural_key, ordered
from skeleton_job.layout.pairs import MESH_SIZE, chain_pairs, group_pairs
from skeleton_job.lists.pinglists import (
    HEADER_BYTES,
    MAX_LIST_BYTES,
    ListConfig,
    ListDraft,
    basic_pairs,
    merge_targets,
    target_bytes,
    task_targets,
    usable_skeleton,
)
from tests.unit.skeleton_job.records import agent_of, task_record

CONFIG = ListConfig()
ROTATE_NS = CONFIG.explore_rotate_ns


def same_rail_pairs(rnics: Iterable[Rnic]) -> set[Pair]:
    """Return all pairs of one rail on different hosts, one by one: what the basic list holds."""
    rails: dict[int, list[Rnic]] = {}
    for rnic in rnics:
        rails.setdefault(rnic.rail, []).append(rnic)
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for members in rails.values()
        for i, a in enumerate(members)
        for b in members[i + 1 :]
        if a.host != b.host
    }


def job(hosts: int, rails: int = 2, name: str = "job1") -> Job:
    """Return a job with one container on each host."""
    return Job(
        task_id=name,
        rnics=tuple(
            Rnic(f"{name}-w{h}/r{r}", f"{name}-w{h}", f"h{h}", r)
            for h in range(hosts)
            for r in range(rails)
        ),
    )


def skeleton(task: Task, pairs: list[tuple[int, int]], confidence: float = 0.9) -> Skeleton:
    """Return a skeleton that joins hosts on rail 0; all endpoints are members."""
    name = task.task_id
    return Skeleton(
        cluster=task.cluster,
        task_id=name,
        version=1,
        window_start_at=0,
        window_end_at=1,
        confidence=confidence,
        dp=2,
        pp=1,
        tp=2,
        members=tuple(SkeletonMember(endpoint_id=e.endpoint_id, group=0) for e in task.endpoints),
        pairs=tuple(SkeletonPair(a=f"{name}-w{a}/r0", b=f"{name}-w{b}/r0") for a, b in pairs),
    )


def drafts(
    tasks: list[Task],
    skeletons: dict[str, Skeleton] | None = None,
    *,
    now_ns: int = 0,
    registered: dict[str, str] | None = None,
    config: ListConfig = CONFIG,
) -> dict[str, ListDraft]:
    """Return the lists of all agents."""
    shares = [
        task_targets(
            t, (skeletons or {}).get(t.task_id), registered or {}, now_ns=now_ns, config=config
        )
        for t in tasks
    ]
    return {agent: merge_targets(shares, agent) for share in shares for agent in share.targets}


def targets(
    lists: dict[str, ListDraft], origin: TargetOrigin | None = None
) -> set[tuple[str, str]]:
    """Return the ordered pairs of all lists."""
    return {
        (t.src, t.dst)
        for draft in lists.values()
        for t in draft.targets
        if origin in (None, t.origin)
    }


def test_the_preload_list_is_the_full_mesh_less_cross_rail() -> None:
    """Eight rails make it eight times smaller than the full mesh, as published."""
    made = job(16, rails=8)
    pairs = basic_pairs(made)
    assert pairs == same_rail_pairs(made.rnics)
    n = 16 * 8
    assert len(pairs) == 8 * 16 * 15 // 2
    assert len(pairs) * 8.5 == pytest.approx(n * (n - 1) / 2, rel=0.01)


def test_a_large_job_gets_few_peers() -> None:
    """The basic list is bounded, and stays symmetric and fair."""
    pairs = basic_pairs(job(41, rails=1), max_peers=6)
    peers = [end for pair in pairs for end in pair]
    assert {peers.count(e) for e in set(peers)} == {6}


def test_the_other_pairs_of_a_large_job_have_their_turns() -> None:
    """What the basic list of a job leaves out is sampled; a list that holds all is left alone."""
    task = task_record(job(40, rails=1))
    seen: set[tuple[str, str]] = set()
    for turn in range(20):
        lists = drafts([task], now_ns=turn * ROTATE_NS)
        assert {d.phase for d in lists.values()} == {PingListPhase.PRELOAD}
        assert len(targets(lists, TargetOrigin.EXPLORE)) <= 40 * 2
        seen |= targets(lists)
    assert len(seen) == 40 * 39
    assert not targets(drafts([task_record(job(17))]), TargetOrigin.EXPLORE)


def test_each_agent_probes_from_its_own_endpoints() -> None:
    """Both directions are probed, each by the agent at its source."""
    task = task_record(job(4))
    lists = drafts([task])
    assert set(lists) == {agent_of(f"h{h}") for h in range(4)}
    for agent, draft in lists.items():
        assert draft.phase is PingListPhase.PRELOAD
        for target in draft.targets:
            assert target.src.startswith(agent.replace("agent-h", "job1-w") + "/")
            assert target.origin is TargetOrigin.BASIC
            assert target.flows == CONFIG.basic_flows
    found = targets(lists)
    assert {(b, a) for a, b in found} == found
    assert len(found) == 4 * 3 * 2


def test_a_skeleton_replaces_the_basic_list() -> None:
    """Its pairs with their flows, an explore sample with one flow, nothing else."""
    task = task_record(job(8))
    lists = drafts([task], {"job1": skeleton(task, [(0, 1), (2, 3)])})
    assert {d.phase for d in lists.values()} == {PingListPhase.RUNTIME}
    assert len(targets(lists, TargetOrigin.SKELETON)) == 4
    assert not targets(lists, TargetOrigin.BASIC)
    explored = targets(lists, TargetOrigin.EXPLORE)
    assert len(explored) <= 2 * 8 * 2
    flows = {t.origin: t.flows for d in lists.values() for t in d.targets}
    assert flows == {
        TargetOrigin.SKELETON: CONFIG.flows,
        TargetOrigin.EXPLORE: CONFIG.explore_flows,
    }


def test_exploration_visits_every_same_rail_pair() -> None:
    """After half as many turns as hosts each pair had its turn; within a turn nothing moves."""
    task = task_record(job(9))
    skeletons = {"job1": skeleton(task, [(0, 1)])}
    seen: set[tuple[str, str]] = set()
    for turn in range(4):
        lists = drafts([task], skeletons, now_ns=turn * ROTATE_NS)
        later = drafts([task], skeletons, now_ns=turn * ROTATE_NS + ROTATE_NS - 1)
        assert lists == later
        found = targets(lists)
        assert {(b, a) for a, b in found} == found
        seen |= found
    everything = {p for a, b in basic_pairs(job(9)) for p in ((a, b), (b, a))}
    assert seen == everything
    none = replace(CONFIG, explore_peers=0)
    assert not targets(drafts([task], skeletons, config=none), TargetOrigin.EXPLORE)


def test_an_unsure_or_unfitting_skeleton_keeps_the_basic_list() -> None:
    """Low confidence, no degrees, or members that the job does not have any more."""
    task = task_record(job(4))
    good = skeleton(task, [(0, 1)])
    smaller = replace(task, endpoints=task.endpoints[2:])
    assert usable_skeleton(task, good, 0.7) is good
    assert usable_skeleton(task, replace(good, confidence=0.6), 0.7) is None
    assert usable_skeleton(task, replace(good, dp=None), 0.7) is None
    assert usable_skeleton(smaller, good, 0.7) is None
    lists = drafts([smaller], {"job1": good})
    assert {t.origin for d in lists.values() for t in d.targets} == {TargetOrigin.BASIC}


def test_endpoints_of_which_nothing_is_known_keep_their_basic_pairs() -> None:
    """A new endpoint, or one without counters, is probed by its rail; an idle one by nobody."""
    task = task_record(job(5))
    known = skeleton(task, [(0, 1)])
    partly = replace(
        known,
        members=tuple(
            replace(m, group=None) if m.endpoint_id == "job1-w3/r0" else m
            for m in known.members
            if m.endpoint_id != "job1-w4/r0"
        ),
    )
    lists = drafts([task], {"job1": partly})
    assert not [p for p in targets(lists) if "job1-w3/r0" in p]
    assert targets(lists, TargetOrigin.BASIC) == {
        p
        for h in range(3)
        for p in ((f"job1-w{h}/r0", "job1-w4/r0"), ("job1-w4/r0", f"job1-w{h}/r0"))
    }


def test_ended_jobs_give_nothing() -> None:
    """Their targets leave all lists."""
    task = replace(task_record(job(4)), ended_at=1)
    assert drafts([task]) == {}


def test_jobs_of_one_agent_are_merged() -> None:
    """A pair that two jobs name is probed once, for the better reason."""
    first, second = task_record(job(3)), replace(task_record(job(3)), task_id="job0")
    other = task_record(job(3, name="job2"))
    lists = drafts([first, second, other], {"job1": skeleton(first, [(0, 1)])})
    mine = lists[agent_of("h0")]
    assert mine.phase is PingListPhase.RUNTIME
    by_pair = {(t.src, t.dst): t for t in mine.targets}
    assert len(by_pair) == len(mine.targets)
    assert by_pair["job1-w0/r0", "job1-w1/r0"].origin is TargetOrigin.SKELETON
    assert by_pair["job1-w0/r1", "job1-w1/r1"].task_id == "job0"
    assert by_pair["job2-w0/r1", "job2-w1/r1"].origin is TargetOrigin.BASIC


def test_the_registered_agent_probes() -> None:
    """Where an endpoint registered with another agent than planned, that one gets the targets."""
    task = task_record(job(3))
    lists = drafts([task], registered={"job1-w0/r0": "sidecar"})
    assert {t.src for t in lists["sidecar"].targets} == {"job1-w0/r0"}
    assert {t.src for t in lists[agent_of("h0")].targets} == {"job1-w0/r1"}


def encoded(draft: ListDraft) -> int:
    """Return what a list takes on the wire with the longest ids."""
    made = PingList(
        cluster="c" * MAX_ID_CHARS,
        agent_id="a" * MAX_ID_CHARS,
        version=2**62,
        updated_at=2**62,
        phase=draft.phase,
        producer_version="10.20.30rc40",
        targets=draft.targets,
    )
    return len(Codec().encode(PINGLIST, made))


WIDE = replace(CONFIG, max_basic_peers=1023, explore_peers=0)


@pytest.mark.parametrize("name", ["job1", "a-job-with-quite-a-long-name-" * 4, "作業" * 20])
def test_the_basic_list_of_a_job_fits(name: str) -> None:
    """As many peers as 64 KB hold, the same number for all, nothing cut."""
    hosts = 101
    lists = drafts([task_record(job(hosts, rails=8, name=name))], config=WIDE)
    largest = max(encoded(draft) for draft in lists.values())
    assert largest <= MAX_LIST_BYTES
    (peers,) = set(Counter(t.src for draft in lists.values() for t in draft.targets).values())
    assert not any(draft.dropped for draft in lists.values())
    assert peers == hosts - 1 if name == "job1" else largest > 0.85 * MAX_LIST_BYTES
    found = targets(lists)
    assert {(b, a) for a, b in found} == found


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192])
@pytest.mark.parametrize("flows", [1, 63, 64])
def test_the_bytes_of_a_target_are_those_of_the_wire(size: int, flows: int) -> None:
    """At each length at which a number takes one byte more."""
    one = PingTarget(
        src="s" * size, dst="d", task_id="é" * (size // 2), origin=TargetOrigin.BASIC, flows=flows
    )
    without = ListDraft(PingListPhase.PRELOAD, ())
    assert encoded(replace(without, targets=(one,))) - encoded(without) - 1 == target_bytes(one)


@pytest.mark.slow
def test_a_list_of_several_jobs_is_cut_evenly_and_counted() -> None:
    """Skeletons stay; of the rest each endpoint loses as many, in whatever order jobs come."""
    tasks = [task_record(job(60, rails=8, name=f"job{n}")) for n in range(1, 7)]
    sure = {"job1": skeleton(tasks[0], [(0, 1), (0, 2)])}
    mine = drafts(tasks, sure, config=WIDE)[agent_of("h0")]
    assert mine.dropped > 0
    assert MAX_LIST_BYTES - 100 - HEADER_BYTES < encoded(mine) <= MAX_LIST_BYTES
    assert {("job1-w0/r0", "job1-w1/r0"), ("job1-w0/r0", "job1-w2/r0")} <= {
        (t.src, t.dst) for t in mine.targets
    }
    kept = Counter(t.src for t in mine.targets if t.origin is TargetOrigin.BASIC)
    assert len(kept) == 5 * 8
    assert max(kept.values()) - min(kept.values()) <= 1
    again = drafts(tasks[::-1], sure, config=WIDE)[agent_of("h0")]
    assert again == mine


def test_large_groups_get_a_few_peers_each() -> None:
    """Up to four members are meshed; beyond, the ring neighbours and two more distances."""
    for size in (2, 3, 4, 5, 8, 16, 64):
        group = job(size, rails=1).ordered
        pairs = group_pairs(group)
        peers = [end for pair in pairs for end in pair]
        if size <= MESH_SIZE:
            assert len(pairs) == size * (size - 1) // 2
        assert {peers.count(e) for e in set(peers)} == {min(size - 1, peers.count(peers[0]))}
        assert max(peers.count(e) for e in set(peers)) <= 6
        ring = {tuple(sorted((f"job1-w{i}/r0", f"job1-w{(i + 1) % size}/r0"))) for i in range(size)}
        assert ring <= pairs


def test_pairs_inside_a_host_are_none() -> None:
    """What never reaches the network is not probed."""
    here, there = Rnic("a/r0", "a", "h0", 0), Rnic("b/r4", "b", "h0", 4)
    assert group_pairs([here, there]) == set()
    assert chain_pairs([[here, there]]) == set()
    assert same_rail_pairs([here, Rnic("c/r0", "c", "h0", 0)]) == set()


def test_names_are_ordered_by_their_numbers() -> None:
    """The platform's tenth container stands after its second."""
    names = ["job-w10-x2", "job-w2", "job-w10-x10", "a1", "job"]
    assert sorted(names, key=natural_key) == ["a1", "job", "job-w2", "job-w10-x2", "job-w10-x10"]


def test_exploration_does_not_spend_its_turn_on_what_is_probed_already() -> None:
    """The skeleton is the ring of neighbours: what is sampled is always across it."""
    task = task_record(job(4))
    ring = {"job1": skeleton(task, [(0, 1), (1, 2), (2, 3), (0, 3)])}
    for turn in range(4):
        lists = drafts([task], ring, now_ns=turn * ROTATE_NS)
        across = targets(lists, TargetOrigin.EXPLORE)
        assert across
        assert not across & targets(lists, TargetOrigin.SKELETON)
