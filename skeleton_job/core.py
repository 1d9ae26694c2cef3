"""What the skeleton job knows, and what follows from it: records in, records out.

No Kafka and no clock: event times come with the records.
"""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

from schemas.enums import PingListPhase
from schemas.records import CounterBatch, Endpoint, PingList, Skeleton, Task
from schemas.units import SECOND_NS
from skeleton_job.job import Job
from skeleton_job.layout.skeleton import Inference
from skeleton_job.lists.pinglists import (
    ListConfig,
    ListDraft,
    TaskTargets,
    merged,
    task_targets,
    usable_skeleton,
)
from skeleton_job.series.columns import CounterColumns
from skeleton_job.series.counters import CounterStore
from skeleton_job.tasks.inference import Due, InferenceConfig, Question
from skeleton_job.tasks.roster import Roster
from skeleton_job.tasks.skeletons import CurrentSkeleton, to_record

# Agents that have gone are remembered for an hour of 2,000 containers a minute.
GONE_AGENTS: Final = 120_000


class SkeletonCore:
    """Jobs, endpoints and counters; lists and skeletons as published.

    `counts` holds what was refused or dropped, by name.
    """

    def __init__(
        self,
        cluster: str,
        lists: ListConfig,
        inference: InferenceConfig,
        *,
        producer_version: str | None = None,
    ) -> None:
        self.cluster = cluster
        self.counts: Counter[str] = Counter()
        self._producer_version = producer_version
        self._list_config = lists
        self._config = inference
        self._now_ns = 0
        self._turn = 0
        self._roster = Roster()
        # An inference waits for an interval at most: then the next window replaces it.
        self._store = CounterStore(inference.window_ns + inference.interval_ns + 10 * SECOND_NS)
        self._standing: dict[str, CurrentSkeleton] = {}
        self._asked_ns: dict[str, int] = {}
        # Jobs of which an agent's readings have passed an end of a window.
        self._ripe: set[str] = set()
        self._shares: dict[str, TaskTargets] = {}
        self._jobs_of: dict[str, set[str]] = {}
        self._published: dict[str, PingList] = {}
        self._versions: dict[str, int] = {}
        self._gone: deque[str] = deque()
        self._stale_tasks: set[str] = set()
        self._dirty_agents: set[str] = set()

    @property
    def now_ns(self) -> int:
        """Event time: the largest among the accepted records."""
        return self._now_ns

    def task(self, task_id: str, task: Task | None) -> None:
        """Take a task.v1 record, or its tombstone."""
        if task is not None:
            if not self._ours(task.cluster):
                return
            self._advance((task.ended_at or task.submitted_at) * 1000)
        self._roster.set_task(task_id, task)
        self._stale_tasks.add(task_id)
        self._ripe.add(task_id)
        if task is None:
            self._asked_ns.pop(task_id, None)

    def endpoint(self, endpoint_id: str, endpoint: Endpoint | None) -> None:
        """Take an endpoint.v1 record, or its tombstone."""
        if endpoint is None or self._ours(endpoint.cluster):
            tasks, agents = self._roster.set_endpoint(endpoint_id, endpoint)
            self._stale_tasks |= tasks
            self._ripe |= tasks
            self._dirty_agents |= agents

    def counters(self, batch: CounterBatch | CounterColumns) -> None:
        """Take a rnic.counters.v1 record, or its columns."""
        if self._ours(batch.cluster):
            self._advance(batch.started_at * 1000)
            before_ns = self._store.latest_of(batch.agent_id)
            if isinstance(batch, CounterColumns):
                self._store.add_columns(batch)
            else:
                self.counts["samples_unusable"] += self._store.add_batch(batch)
            latest_ns = self._store.latest_of(batch.agent_id)
            if latest_ns is not None and (
                before_ns is None
                or self._config.window_end_ns(before_ns) < self._config.window_end_ns(latest_ns)
            ):
                self._ripe |= self._roster.tasks_of(batch.agent_id)

    def own_list(self, agent_id: str, ping_list: PingList | None) -> None:
        """Take what an earlier run of this job published for an agent; None: nothing readable."""
        self._dirty_agents.add(agent_id)
        self._published.pop(agent_id, None)
        if ping_list is not None and self._ours(ping_list.cluster):
            self._advance(ping_list.updated_at * 1000)
            self._published[agent_id] = ping_list
            self._versions[agent_id] = max(ping_list.version, self._versions.get(agent_id, 0))

    def own_skeleton(self, task_id: str, skeleton: Skeleton | None) -> None:
        """Take what an earlier run of this job published for a task."""
        self._standing.pop(task_id, None)
        if skeleton is not None and self._ours(skeleton.cluster):
            self._standing[task_id] = CurrentSkeleton(skeleton)
        self._stale_tasks.add(task_id)

    def lists_due(self) -> Iterator[tuple[str, PingList | None]]:
        """Yield lists that differ from those published, and take them for published.

        An agent without targets gets an empty list. None is a tombstone: the
        agent has no endpoint any more, so there is nobody who remembers a version.
        """
        self._refresh_shares()
        dirty, self._dirty_agents = self._dirty_agents, set()
        for agent_id in sorted(dirty):
            jobs = sorted(self._jobs_of.get(agent_id, ()))
            draft = merged([self._shares[t] for t in jobs], agent_id)
            old = self._published.get(agent_id)
            if draft.targets or self._roster.has_endpoints(agent_id):
                if _differs(draft, old):
                    due = self._list(agent_id, draft)
                    self.counts["targets_dropped"] += draft.dropped
                    self.counts["lists_cut"] += draft.dropped > 0
                    self._published[agent_id] = due
                    self._versions[agent_id] = due.version
                    yield agent_id, due
            elif old is not None:
                del self._published[agent_id]
                self._forget_versions(agent_id)
                yield agent_id, None

    def list_failed(self, agent_id: str) -> None:
        """Take back that a list was published, so that it is published again."""
        self.counts["lists_not_delivered"] += 1
        self._published.pop(agent_id, None)
        self._dirty_agents.add(agent_id)

    def skeletons_gone(self) -> list[str]:
        """Return the ids of tasks that have a skeleton but no record any more; forget them."""
        gone = sorted(self._standing.keys() - self._roster.tasks.keys())
        for task_id in gone:
            del self._standing[task_id]
        return gone

    def inferences_due(self) -> list[Due]:
        """Return the inferences that are due; where no readings are new, that costs nothing.

        They are due on a grid of event time, so that a replay makes the same ones.
        """
        found = []
        ripe, self._ripe = self._ripe, set()
        for task_id in sorted(ripe):
            task = self._roster.tasks.get(task_id)
            if task is None or task.ended_at is not None:
                continue
            latest_ns = self._store.latest_ns(self._roster.agents_of(task_id))
            if latest_ns is None:
                continue
            end_ns = self._config.window_end_ns(latest_ns)
            if end_ns <= self._asked_ns.get(task_id, 0):
                continue
            self._asked_ns[task_id] = end_ns
            found.append(Due(task_id, (end_ns - self._config.window_ns, end_ns)))
        return found

    def question(self, due: Due) -> Question | None:
        """Return what is needed for an inference, None if there is nothing to infer from."""
        task = self._roster.tasks.get(due.task_id)
        if task is None:
            return None
        job = Job.from_task(task)
        readings = self._store.readings(
            self._roster.agents_of(due.task_id),
            [r.endpoint_id for r in job.ordered],
            *due.window_ns,
        )
        return Question(job, due.window_ns, readings) if readings.time_ns.size else None

    def questions(self) -> Iterator[Question]:
        """Yield the inferences that are due with all that they need, one at a time."""
        for due in self.inferences_due():
            question = self.question(due)
            if question is not None:
                yield question

    def answered(self, question: Question, inference: Inference) -> Skeleton | None:
        """Take an inference; return the skeleton to publish, if it changes anything."""
        task_id = question.job.task_id
        task = self._roster.tasks.get(task_id)
        if task is None or task.ended_at is not None or Job.from_task(task) != question.job:
            self.counts["inferences_outdated"] += 1
            return None
        min_confidence = self._list_config.min_confidence
        record = to_record(
            inference,
            question.job,
            cluster=self.cluster,
            version=0,
            window_ns=question.window_ns,
            min_confidence=min_confidence,
            producer_version=self._producer_version,
        )
        standing = self._standing.setdefault(task_id, CurrentSkeleton())
        usable = usable_skeleton(task, standing.skeleton, min_confidence) is not None
        published = standing.offer(record, usable=usable)
        if published is not None:
            self._stale_tasks.add(task_id)
        return published

    def skeleton_failed(self, task_id: str) -> None:
        """Take back that a skeleton was published; the next inference publishes again."""
        self.counts["skeletons_not_delivered"] += 1
        if task_id in self._standing:
            self._standing[task_id].failed()

    def _forget_versions(self, agent_id: str) -> None:
        """Remember the version of an agent that has gone for a while: it may come back."""
        self._gone.append(agent_id)
        if len(self._gone) > GONE_AGENTS:
            oldest = self._gone.popleft()
            if oldest not in self._published:
                self._versions.pop(oldest, None)

    def _ours(self, cluster: str) -> bool:
        if cluster == self.cluster:
            return True
        self.counts["foreign_cluster"] += 1
        return False

    def _advance(self, event_ns: int) -> None:
        self._now_ns = max(self._now_ns, event_ns)

    def _refresh_shares(self) -> None:
        turn = self._now_ns // self._list_config.explore_rotate_ns
        if turn != self._turn:
            self._turn = turn
            self._stale_tasks |= {t for t, share in self._shares.items() if share.runtime}
        for task_id in self._stale_tasks:
            self._set_share(task_id, self._share(task_id))
        self._stale_tasks.clear()

    def _share(self, task_id: str) -> TaskTargets | None:
        task = self._roster.tasks.get(task_id)
        if task is None:
            return None
        standing = self._standing.get(task_id)
        return task_targets(
            task,
            standing.skeleton if standing is not None else None,
            self._roster.registered,
            now_ns=self._now_ns,
            config=self._list_config,
        )

    def _set_share(self, task_id: str, share: TaskTargets | None) -> None:
        old = self._shares.pop(task_id, None)
        for agent_id in old.targets if old is not None else ():
            self._jobs_of[agent_id].discard(task_id)
            if not self._jobs_of[agent_id]:
                del self._jobs_of[agent_id]
            self._dirty_agents.add(agent_id)
        for agent_id in share.targets if share is not None else ():
            self._jobs_of.setdefault(agent_id, set()).add(task_id)
            self._dirty_agents.add(agent_id)
        if share is not None and share.targets:
            self._shares[task_id] = share

    def _list(self, agent_id: str, draft: ListDraft) -> PingList:
        return PingList(
            cluster=self.cluster,
            agent_id=agent_id,
            version=self._versions.get(agent_id, 0) + 1,
            updated_at=self._now_ns // 1000,
            phase=draft.phase,
            producer_version=self._producer_version,
            targets=draft.targets,
        )


def _differs(draft: ListDraft, old: PingList | None) -> bool:
    """Whether a list says something else than the one published; an empty one has no phase."""
    if old is None:
        return bool(draft.targets)
    if not draft.targets:
        return bool(old.targets) or old.phase is not PingListPhase.PRELOAD
    return (draft.targets, draft.phase) != (old.targets, old.phase)
