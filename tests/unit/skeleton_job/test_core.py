"""The core: records in, lists and skeletons out, in event time."""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import replace

import pytest

from schemas.enums import PingListPhase, TargetOrigin, Transport
from schemas.records import CounterBatch, Endpoint, PingList, Skeleton, Task
from schemas.units import SECOND_NS
from skeleton_job.core import SkeletonCore
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.series.counters import CounterStore
from skeleton_job.tasks.inference import InferenceConfig, InferenceInput
from skeleton_job.tasks.roster import Limits
from tests.unit.skeleton_job.records import (
    CLUSTER,
    SUBMITTED_AT,
    agent_of,
    counter_batches,
    task_record,
)
from tests.unit.skeleton_job.traffic import Layout, Workload

WORKLOAD = Workload(Layout(rails=2, seconds=45))
BATCHES = list(counter_batches(WORKLOAD))
TASK = task_record(WORKLOAD.job)
LISTS = ListConfig(explore_rotate_ns=10**6 * SECOND_NS)


def core(lists: ListConfig = LISTS) -> SkeletonCore:
    """Return a fresh core."""
    inference = InferenceConfig(interval_ns=5 * SECOND_NS, window_ns=40 * SECOND_NS)
    return SkeletonCore(CLUSTER, lists, inference, producer_version="test")


def due_inputs(of: SkeletonCore) -> Iterator[InferenceInput]:
    """Yield the inputs of all inferences that are due, one at a time."""
    return filter(None, map(of.inference_input, of.inferences_due()))


def feed(to: SkeletonCore, batches: Iterable[CounterBatch]) -> list[Skeleton]:
    """Give counters and make all inferences at once; return the skeletons published."""
    published = []
    for batch in batches:
        to.observe_counters(batch)
        for inputs in due_inputs(to):
            record = to.apply_inference(inputs, inputs.infer())
            if record is not None:
                published.append(record)
    return published


def due(of: SkeletonCore) -> dict[str, PingList | None]:
    """Return the lists that are due."""
    return dict(of.lists_due())


def endpoint(index: int = 0, agent: str | None = None) -> Endpoint:
    """Return the registration of one of the job's endpoints."""
    e = TASK.endpoints[index]
    return Endpoint(
        cluster=CLUSTER,
        endpoint_id=e.endpoint_id,
        agent_id=agent or e.agent_id,
        container_id=e.container_id,
        host_id=e.host_id,
        task_id=TASK.task_id,
        rail=e.rail,
        transport=Transport.UDP,
        address="127.0.0.1",
        port=1,
        incarnation=1,
        registered_at=SUBMITTED_AT,
    )


def test_a_task_brings_lists_and_nothing_brings_them_again() -> None:
    """Versions begin at 1, the time is the task's, and what has not changed is not due."""
    made = core()
    made.apply_task("job1", TASK)
    lists = due(made)
    assert set(lists) == {agent_of(f"h{h}") for h in range(4)}
    for record in lists.values():
        assert record is not None
        assert (record.version, record.updated_at) == (1, SUBMITTED_AT)
        assert record.phase is PingListPhase.PRELOAD
        assert len(record.targets) == 6
    made.apply_task("job1", TASK)
    for e in TASK.endpoints:
        made.apply_endpoint(e.endpoint_id, endpoint(TASK.endpoints.index(e)))
    assert due(made) == {}


def test_counters_turn_the_lists_to_runtime() -> None:
    """First the reason why there is none, then the skeleton, then nothing new."""
    made = core()
    made.apply_task("job1", TASK)
    due(made)
    published = feed(made, BATCHES)
    assert [r.version for r in published] == list(range(1, len(published) + 1))
    assert published[0].dp is None
    last = published[-1]
    assert (last.dp, last.pp, last.tp) == (2, 2, 2)
    assert {(p.a, p.b) for p in last.pairs} >= WORKLOAD.truth.pairs
    assert len(last.pairs) <= 2 * len(WORKLOAD.truth.pairs)
    # Most pairs of other layouts are withdrawn once the layout is sure; it stays what it is.
    assert len({(r.dp, r.pp, r.tp, r.members) for r in published if r.dp is not None}) == 1
    assert sum(r.dp is not None for r in published) <= 2
    lists = due(made)
    targets = {(t.src, t.dst) for p in lists.values() if p for t in p.targets
               if t.origin is TargetOrigin.SKELETON}  # fmt: skip
    assert targets == {way for p in last.pairs for way in ((p.a, p.b), (p.b, p.a))}
    assert {p.phase for p in lists.values() if p} == {PingListPhase.RUNTIME}
    assert {p.version for p in lists.values() if p} == {2}


def test_a_restart_republishes_nothing() -> None:
    """A new core that reads what the old one wrote, in any order, has nothing due."""
    old = core()
    old.apply_task("job1", TASK)
    written: dict[str, PingList | None] = due(old)
    skeletons = feed(old, BATCHES)
    written |= due(old)
    new = core()
    new.apply_own_skeleton("job1", skeletons[-1])
    for agent, record in reversed(written.items()):
        new.apply_own_list(agent, record)
    assert feed(new, BATCHES[::-1]) == []
    new.apply_task("job1", TASK)
    assert due(new) == {}
    assert feed(new, BATCHES) == []
    assert due(new) == {}
    assert new.skeletons_gone() == []
    new.apply_task("job1", replace(TASK, endpoints=TASK.endpoints[2:]))
    after = due(new)
    assert {r.version for r in after.values() if r} == {3}


def test_inferences_are_due_on_a_grid_of_event_time() -> None:
    """The same windows, in whatever order the hosts of a second come."""
    windows = []
    for batches in (
        BATCHES,
        [b for i in range(0, len(BATCHES), 4) for b in BATCHES[i : i + 4][::-1]],
    ):
        made = core()
        made.apply_task("job1", TASK)
        asked = []
        for batch in batches:
            made.observe_counters(batch)
            asked += [q.window_ns for q in due_inputs(made)]
        windows.append(asked)
    assert windows[0] == windows[1]
    assert all(
        end % (5 * SECOND_NS) == 0 and end - start == 40 * SECOND_NS for start, end in windows[0]
    )


def test_a_fast_clock_and_a_dead_agent_do_not_decide_when() -> None:
    """The median of the job's agents is its time."""
    made = core()
    made.apply_task("job1", TASK)
    ahead = replace(BATCHES[0], started_at=BATCHES[0].started_at + 3600 * 10**6)
    made.observe_counters(ahead)
    asked = []
    for batch in BATCHES:
        if batch.agent_id not in (ahead.agent_id, agent_of("h1")):
            made.observe_counters(batch)
            asked += list(due_inputs(made))
    assert len(asked) >= 8
    assert max(q.window_ns[1] for q in asked) <= BATCHES[-1].started_at * 1000


def test_an_ended_job_leaves_and_a_gone_agent_gets_a_tombstone() -> None:
    """A registered agent gets an empty list; one without endpoints nothing but a tombstone."""
    made = core()
    made.apply_task("job1", TASK)
    made.apply_endpoint(TASK.endpoints[0].endpoint_id, endpoint(0))
    due(made)
    made.apply_task("job1", replace(TASK, ended_at=SUBMITTED_AT + 1))
    lists = due(made)
    here = lists.pop(agent_of("h0"))
    assert here is not None
    assert (here.targets, here.version, here.phase) == ((), 2, PingListPhase.PRELOAD)
    assert lists == {agent_of(f"h{h}"): None for h in range(1, 4)}
    made.apply_endpoint(TASK.endpoints[0].endpoint_id, None)
    assert due(made) == {agent_of("h0"): None}
    made.apply_task("job1", TASK)
    again = due(made)
    assert {r.version for r in again.values() if r} == {2, 3}


def test_an_endpoint_that_moved_moves_its_targets() -> None:
    """The registered agent probes; after it left, the planned one again."""
    made = core()
    made.apply_task("job1", TASK)
    due(made)
    first = TASK.endpoints[0].endpoint_id
    made.apply_endpoint(first, endpoint(0, "sidecar"))
    lists = due(made)
    assert set(lists) == {"sidecar", agent_of("h0")}
    assert {t.src for t in lists["sidecar"].targets if lists["sidecar"]} == {first}  # type: ignore[union-attr]
    made.apply_endpoint(first, None)
    lists = due(made)
    assert lists["sidecar"] is None
    assert lists[agent_of("h0")] is not None


def test_a_lost_list_is_due_again() -> None:
    """With a higher version."""
    made = core()
    made.apply_task("job1", TASK)
    due(made)
    made.list_failed(agent_of("h1"))
    lists = due(made)
    assert [(a, r.version if r else None) for a, r in lists.items()] == [(agent_of("h1"), 2)]
    assert made.counts["lists_not_delivered"] == 1


def test_a_garbled_own_list_is_replaced() -> None:
    """What an agent cannot read must not stay its latest list."""
    made = core()
    made.apply_task("job1", TASK)
    due(made)
    made.apply_own_list(agent_of("h2"), None)
    assert set(due(made)) == {agent_of("h2")}


def test_a_deleted_task_takes_its_skeleton_along() -> None:
    """A tombstone on task.v1 is one on skeleton.v1."""
    made = core()
    made.apply_task("job1", TASK)
    assert feed(made, BATCHES)
    made.apply_task("job1", None)
    assert made.skeletons_gone() == ["job1"]
    assert made.skeletons_gone() == []


def test_another_cluster_is_refused_and_counted() -> None:
    """No list, no inference, one count for each record."""
    made = core()
    made.apply_task("job1", replace(TASK, cluster="other"))
    made.apply_endpoint("e", replace(endpoint(), cluster="other"))
    made.observe_counters(replace(BATCHES[0], cluster="other"))
    assert due(made) == {}
    assert made.counts["foreign_cluster"] == 3
    assert made.now_ns == 0


def test_an_answer_for_a_job_that_has_changed_is_dropped() -> None:
    """An inference that took long must not bring back what is over."""
    made = core()
    made.apply_task("job1", TASK)
    for batch in BATCHES:
        made.observe_counters(batch)
    (inputs,) = due_inputs(made)
    inference = inputs.infer()
    made.apply_task("job1", replace(TASK, endpoints=TASK.endpoints[:-2]))
    assert made.apply_inference(inputs, inference) is None
    assert made.counts["inferences_outdated"] == 1


def test_explore_turns_publish_only_what_moved() -> None:
    """When event time enters another turn, the sampled pairs change and nothing else."""
    workload = Workload(Layout(dp=8, pp=2, rails=1, seconds=45))
    task = task_record(workload.job)
    made = core(replace(LISTS, explore_rotate_ns=60 * SECOND_NS))
    made.apply_task("job1", task)
    batches = list(counter_batches(workload))
    feed(made, batches)
    before = {a: r for a, r in due(made).items() if r}
    assert due(made) == {}
    later = replace(batches[-1], started_at=batches[-1].started_at + 60 * 10**6)
    made.observe_counters(later)
    after = {a: r for a, r in due(made).items() if r}
    assert after
    for agent, record in after.items():
        kept = [t for t in record.targets if t.origin is TargetOrigin.SKELETON]
        assert kept == [t for t in before[agent].targets if t.origin is TargetOrigin.SKELETON]
        assert record.version == before[agent].version + 1


def test_unusable_samples_are_counted_and_left_out() -> None:
    """Nulls, negative counters and absurd offsets; the rest of the batch counts."""
    store = CounterStore(60 * SECOND_NS)
    good = BATCHES[0]
    s = good.samples[0]
    bad = (
        replace(s, tx_bytes=None, missing_reason="gone"),
        replace(s, rx_bytes=-1),
        replace(s, counter_bits=0),
        replace(s, tick_offset_ns=-1),
        replace(s, tick_offset_ns=10**15),
    )
    assert store.add_batch(replace(good, samples=good.samples + bad)) == len(bad)
    assert store.add_batch(replace(good, samples=bad)) == len(bad)
    start_ns = good.started_at * 1000
    names = sorted({s.endpoint_id for s in good.samples})
    found = store.readings([good.agent_id], names, start_ns, start_ns + SECOND_NS)
    assert found.time_ns.size == len(good.samples)


def test_the_store_forgets_what_is_older_than_its_horizon() -> None:
    """Memory is bounded by event time, agent by agent."""
    store = CounterStore(10 * SECOND_NS)
    for batch in BATCHES:
        store.add_batch(batch)
    agents = {b.agent_id for b in BATCHES}
    names = [e.endpoint_id for e in TASK.endpoints]
    everything = store.readings(agents, names, 0, 2**62).time_ns
    assert 9 * SECOND_NS <= everything.max() - everything.min() <= 12 * SECOND_NS
    assert not store.readings(["nobody"], names, 0, 2**62).time_ns.size
    assert store.latest_ns(["nobody"]) is None


@pytest.mark.parametrize("lost", [0, 3])
def test_window_of_the_question_begins_with_the_jobs_first_reading(lost: int) -> None:
    """A young job is not short of samples: its window begins when it began."""
    made = core()
    made.apply_task("job1", TASK)
    young = [b for b in BATCHES if b.started_at <= BATCHES[0].started_at + 22 * 10**6]
    records = feed(made, young[4 * lost :])
    assert records
    assert "no counters" not in (records[-1].reason or "")


def test_task_identity() -> None:
    """A record whose endpoints appear twice counts them once."""
    made = core()
    made.apply_task("job1", replace(TASK, endpoints=TASK.endpoints + TASK.endpoints))
    assert {len(r.targets) for r in due(made).values() if r} == {6}
    assert isinstance(TASK, Task)


def test_versions_of_agents_long_gone_are_forgotten() -> None:
    """Containers' agents come and go by the thousand; one that comes back soon counts on."""
    made = core()
    made.apply_task("job1", TASK)
    due(made)
    agents = len({e.agent_id for e in TASK.endpoints})

    def moved(turn: int, name: int) -> Task:
        """Return the job with other agents, a minute later each turn."""
        return replace(
            TASK, submitted_at=SUBMITTED_AT + turn * 60 * 10**6,
            endpoints=tuple(
                replace(e, agent_id=f"a{name}-{e.agent_id}") for e in TASK.endpoints
            ),
        )  # fmt: skip

    for turn in range(20):
        made.apply_task("job1", moved(turn, turn))
        due(made)
    assert len(made._versions) <= 8 * agents
    made.apply_task("job1", moved(20, 18))
    assert {r.version for r in due(made).values() if r} == {2}
    made.apply_task("job1", moved(21, 3))
    assert {r.version for r in due(made).values() if r} == {1}


def test_a_job_is_forgotten_some_time_after_its_end_and_its_skeleton_deleted() -> None:
    """As if its record had been deleted; not at once, since a job may be submitted again."""
    made = core()
    made.apply_task("job1", TASK)
    assert feed(made, BATCHES)
    ended_at = BATCHES[-1].started_at
    made.apply_task("job1", replace(TASK, ended_at=ended_at))
    due(made)
    assert made.skeletons_gone() == []
    other = replace(TASK, task_id="job2", endpoints=())
    made.apply_task("job2", replace(other, submitted_at=ended_at + 299 * 10**6))
    due(made)
    assert made.skeletons_gone() == []
    made.apply_task("job2", replace(other, submitted_at=ended_at + 320 * 10**6))
    due(made)
    assert made.skeletons_gone() == ["job1"]


def test_beyond_the_limits_new_ones_are_refused_and_counted() -> None:
    """What is known goes on, and when something leaves there is room again."""
    members = len(TASK.endpoints)
    limits = Limits(tasks=2, endpoints=members, series=members)
    inference = InferenceConfig(interval_ns=5 * SECOND_NS, window_ns=40 * SECOND_NS)
    made = SkeletonCore(CLUSTER, LISTS, inference, limits=limits)
    made.apply_task("job1", TASK)
    made.apply_task("larger", replace(TASK, task_id="larger"))
    for number in range(9):
        made.apply_task(f"empty{number}", replace(TASK, task_id=f"empty{number}", endpoints=()))
    for index in range(members):
        made.apply_endpoint(TASK.endpoints[index].endpoint_id, endpoint(index))
    for number in range(9):
        made.apply_endpoint(f"x{number}", replace(endpoint(), endpoint_id=f"x{number}"))
    made.apply_endpoint(TASK.endpoints[0].endpoint_id, endpoint(agent="another"))
    assert feed(made, BATCHES)
    assert made.refused == {"tasks": 9, "endpoints": 9, "readings": 0}
    made.observe_counters(replace(BATCHES[-1], agent_id="stranger"))
    assert made.refused["readings"] == len(BATCHES[-1].samples)
    made.apply_task("job1", None)
    made.apply_task("larger", replace(TASK, task_id="larger"))
    assert made.refused["tasks"] == 9


def test_jobs_that_come_and_go_leave_nothing_behind() -> None:
    """After the first minutes the core holds as much as after the next thousand."""
    made = core()
    sizes = []
    for number in range(3_000):
        at = SUBMITTED_AT + number * 10**6
        name = f"job{number}"
        one = replace(
            TASK, task_id=name, submitted_at=at,
            endpoints=tuple(
                replace(e, endpoint_id=f"{name}-{e.endpoint_id}", agent_id=f"{name}-{e.agent_id}")
                for e in TASK.endpoints
            ),
        )  # fmt: skip
        made.apply_task(name, one)
        due(made)
        made.apply_task(name, replace(one, ended_at=at))
        due(made)
        made.inferences_due()
        if number % 1_000 == 999:
            sizes.append(sum(len(v) for v in vars(made).values() if isinstance(v, Sized)))
    assert sizes[2] <= sizes[1] <= sizes[0] + 10
