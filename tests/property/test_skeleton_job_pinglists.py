"""Lists that follow from events one by one are those that follow from what is there at the end."""

from dataclasses import replace
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import TargetOrigin, Transport
from schemas.records import Endpoint, PingList, Skeleton, Task
from schemas.units import SECOND_NS
from skeleton_job.core import SkeletonCore
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.tasks.inference import InferenceConfig
from tests.unit.skeleton_job.lists.test_pinglists import job, skeleton
from tests.unit.skeleton_job.records import CLUSTER, SUBMITTED_AT, agent_of, task_record

LISTS: Final = ListConfig(explore_rotate_ns=60 * SECOND_NS)
JOBS: Final = ("job1", "job2", "job3")
# The jobs stand on the same hosts: their agents have lists of several.
TASKS: Final = {
    name: task_record(job(hosts, rails=2, name=name))
    for name, hosts in zip(JOBS, (3, 4, 2), strict=True)
}
ENDPOINTS: Final = [e for task in TASKS.values() for e in task.endpoints]

names = st.sampled_from(JOBS)
events = st.one_of(
    st.tuples(st.just("task"), names, st.sampled_from(["runs", "grows", "ended", "gone"])),
    st.tuples(
        st.just("endpoint"),
        st.integers(0, len(ENDPOINTS) - 1),
        st.sampled_from(["planned", "sidecar", "gone"]),
    ),
    st.tuples(st.just("skeleton"), names, st.sampled_from(["sure", "unsure", "gone"])),
    st.tuples(st.just("turn"), st.just(0), st.just("")),
)


class Twin:
    """A core that is fed event by event, and what is there to feed another one at once."""

    def __init__(self) -> None:
        self.core = SkeletonCore(CLUSTER, LISTS, InferenceConfig())
        self.tasks: dict[str, Task] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.skeletons: dict[str, Skeleton] = {}
        self.at = SUBMITTED_AT
        self.lists: dict[str, PingList] = {}

    def take(self, kind: str, what: str | int, how: str) -> None:
        """Take an event."""
        if kind == "task":
            self._task(str(what), how)
        elif kind == "endpoint":
            self._endpoint(int(what), how)
        elif kind == "skeleton":
            self._skeleton(str(what), how)
        else:
            # Only a record moves event time.
            self.at += 60 * 10**6
            self._task(JOBS[0], "runs")

    def _task(self, name: str, how: str) -> None:
        task = replace(TASKS[name], submitted_at=self.at)
        if how == "grows":
            wider = task_record(job(5, rails=2, name=name))
            task = replace(task, endpoints=wider.endpoints)
        if how == "ended":
            task = replace(task, ended_at=self.at)
        self.core.apply_task(name, None if how == "gone" else task)
        if how == "gone":
            self.tasks.pop(name, None)
            for gone in self.core.skeletons_gone():
                self.skeletons.pop(gone, None)
        else:
            self.tasks[name] = task

    def _endpoint(self, index: int, how: str) -> None:
        e = ENDPOINTS[index]
        if how == "gone":
            self.endpoints.pop(e.endpoint_id, None)
            self.core.apply_endpoint(e.endpoint_id, None)
            return
        made = Endpoint(
            cluster=CLUSTER,
            endpoint_id=e.endpoint_id,
            container_id=e.container_id,
            agent_id=e.agent_id if how == "planned" else agent_of(how),
            host_id=e.host_id,
            task_id=e.endpoint_id.split("-")[0],
            rail=e.rail,
            transport=Transport.UDP,
            address="127.0.0.1",
            port=1,
            incarnation=1,
            registered_at=self.at,
        )
        self.endpoints[e.endpoint_id] = made
        self.core.apply_endpoint(e.endpoint_id, made)

    def _skeleton(self, name: str, how: str) -> None:
        made = None
        if how != "gone":
            made = skeleton(TASKS[name], [(0, 1)], confidence=0.9 if how == "sure" else 0.1)
            self.skeletons[name] = made
        else:
            self.skeletons.pop(name, None)
        self.core.apply_own_skeleton(name, made)

    def publish(self) -> None:
        """Take what is due; nothing that says what was said before may be."""
        for agent, due in self.core.lists_due():
            old = self.lists.get(agent)
            if due is None:
                assert old is not None
                del self.lists[agent]
                continue
            if old is not None:
                assert (due.targets, due.phase) != (old.targets, old.phase)
                assert due.version > old.version
            self.lists[agent] = due

    def anew(self) -> dict[str, PingList]:
        """Return the lists of a core that sees only what is there now."""
        core = SkeletonCore(CLUSTER, LISTS, InferenceConfig())
        # Event time is part of what is there: the turn of exploring hangs on it.
        core.apply_task("clock", replace(TASKS[JOBS[0]], task_id="clock", submitted_at=self.at))
        core.apply_task("clock", None)
        for name, made in self.skeletons.items():
            core.apply_own_skeleton(name, made)
        for endpoint_id, endpoint in self.endpoints.items():
            core.apply_endpoint(endpoint_id, endpoint)
        for name, task in self.tasks.items():
            core.apply_task(name, task)
        return {agent: due for agent, due in core.lists_due() if due is not None}


@settings(max_examples=150)
@given(steps=st.lists(st.lists(events, min_size=1, max_size=4), max_size=10))
def test_incremental_lists_are_those_from_scratch(
    steps: list[list[tuple[str, str | int, str]]],
) -> None:
    """After every few events, whatever they were; and no list is published twice."""
    twin = Twin()
    for step in steps:
        for event in step:
            twin.take(*event)
        twin.publish()
        targets = {a: (x.phase, x.targets) for a, x in twin.lists.items() if x.targets}
        assert targets == {a: (x.phase, x.targets) for a, x in twin.anew().items()}
        # Nothing new: nothing is due.
        assert list(twin.core.lists_due()) == []
    assert all(t.origin is not TargetOrigin.UNKNOWN for x in twin.lists.values() for t in x.targets)
