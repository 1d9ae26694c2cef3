"""All state of the skeleton job, and what follows from it: records in, records to publish out.

No Kafka and no clock: event times come with the records.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Final

from schemas.enums import PingListPhase
from schemas.process import memory
from schemas.records import CounterBatch, Endpoint, FlowTable, PingList, Skeleton, Task
from schemas.units import SECOND_NS
from skeleton_job.job import Job, Pair
from skeleton_job.layout.skeleton import Inference
from skeleton_job.lists.pinglists import (
    ListConfig,
    ListDraft,
    TaskTargets,
    merge_targets,
    task_targets,
    usable_skeleton,
)
from skeleton_job.lists.ways import Ways
from skeleton_job.series.columns import CounterColumns
from skeleton_job.series.counters import CounterStore
from skeleton_job.tasks.inference import DueInference, InferenceConfig, InferenceInput
from skeleton_job.tasks.roster import DEFAULT_LIMITS, Limits, Roster
from skeleton_job.tasks.skeletons import CurrentSkeleton, holds_skeleton, to_record

# How long ended jobs, and the list versions of departed agents, are remembered.
KEEP_DEPARTED_NS: Final = 300 * SECOND_NS
SWEEP_NS: Final = 10 * SECOND_NS


class SkeletonCore:
    """Jobs, endpoints, counters; ping lists and skeletons as published.

    Attributes
    ----------
    counts
        What was refused or dropped, by name.
    """

    def __init__(
        self,
        cluster: str,
        lists: ListConfig,
        inference: InferenceConfig,
        *,
        limits: Limits = DEFAULT_LIMITS,
        producer_version: str | None = None,
    ) -> None:
        self.cluster = cluster
        self.counts: Counter[str] = Counter()
        self._producer_version = producer_version
        self._list_config = lists
        self._config = inference
        self._now_ns = 0
        self._turn = 0
        self._swept_ns = 0
        self._roster = Roster(limits)
        self._ways = Ways()
        # An inference waits for one interval at most; then the next window replaces it.
        horizon_ns = inference.window_ns + inference.interval_ns + 10 * SECOND_NS
        self._store = CounterStore(horizon_ns, limits.series, self._is_in_job)
        self._skeletons: dict[str, CurrentSkeleton] = {}
        self._last_window_ns: dict[str, int] = {}
        # Jobs for which some agent's readings have passed the end of a window.
        self._maybe_due: set[str] = set()
        self._targets_of: dict[str, TaskTargets] = {}
        self._jobs_of: dict[str, set[str]] = {}
        self._published: dict[str, PingList] = {}
        self._versions: dict[str, int] = {}
        # Departed agents and ended jobs, the first to leave first, and when they left.
        self._gone: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._stale_tasks: set[str] = set()
        self._dirty_agents: set[str] = set()
        # Agents whose published list lacks something that a list of today says.
        self._outdated: set[str] = set()

    @property
    def now_ns(self) -> int:
        """Event time: the greatest of the accepted records."""
        return self._now_ns

    @property
    def agents(self) -> int:
        """How many agents have a list."""
        return len(self._published)

    @property
    def refused(self) -> dict[str, int]:
        """How many records and readings were refused because there is too much of a kind."""
        return {
            "tasks": self._roster.tasks_refused,
            "endpoints": self._roster.endpoints_refused,
            "readings": self._store.refused,
        }

    @property
    def count(self) -> int:
        """How many things are held of which there may be thousands."""
        return len(self._roster) + self._store.series + len(self._published)

    def running_tasks(self) -> dict[str, bool]:
        """Return the tasks that have not ended, and whether there is a skeleton of them."""
        found = {
            task_id: current.skeleton is not None and holds_skeleton(current.skeleton)
            for task_id, current in self._skeletons.items()
        }
        tasks = self._roster.tasks
        return {t: found.get(t, False) for t, task in tasks.items() if task.ended_at is None}

    def apply_task(self, task_id: str, task: Task | None) -> None:
        """Apply a task.v1 record, or its tombstone."""
        if task is not None:
            if not self._is_ours(task.cluster):
                return
            self._advance((task.ended_at or task.submitted_at) * 1000)
        if not self._roster.set_task(task_id, task):
            return
        self._stale_tasks.add(task_id)
        self._maybe_due.add(task_id)
        self._ended.pop(task_id, None)
        if task is not None and task.ended_at is not None:
            self._ended[task_id] = self._now_ns
        if task is None:
            self._last_window_ns.pop(task_id, None)

    def apply_endpoint(self, endpoint_id: str, endpoint: Endpoint | None) -> None:
        """Apply an endpoint.v1 record, or its tombstone."""
        if endpoint is None or self._is_ours(endpoint.cluster):
            tasks, agents = self._roster.set_endpoint(endpoint_id, endpoint)
            self._stale_tasks |= tasks
            self._maybe_due |= tasks
            self._dirty_agents |= agents

    def apply_flow_table(self, host_id: str, table: FlowTable | None) -> None:
        """Apply an overlay.flows.v1 record, or its tombstone."""
        if table is None or self._is_ours(table.cluster):
            for endpoint_id in self._ways.set_table(host_id, table):
                agent_id = self._roster.registered.get(endpoint_id)
                if agent_id is not None:
                    self._stale_tasks |= self._roster.tasks_of(agent_id)

    def observe_counters(self, batch: CounterBatch | CounterColumns) -> None:
        """Apply a rnic.counters.v1 record, or its columns."""
        if self._is_ours(batch.cluster):
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
                self._maybe_due |= self._roster.tasks_of(batch.agent_id)

    def is_registered(self, endpoint_id: str) -> bool:
        """Whether a registration of the endpoint is known, and was not refused."""
        return endpoint_id in self._roster.registered

    def apply_own_list(
        self, agent_id: str, ping_list: PingList | None, *, outdated: bool = False
    ) -> None:
        """Restore the list that an earlier run published for an agent; None: it is unreadable.

        One that is `outdated` is published again.
        """
        (self._outdated.add if outdated else self._outdated.discard)(agent_id)
        self._dirty_agents.add(agent_id)
        self._published.pop(agent_id, None)
        if ping_list is not None and self._is_ours(ping_list.cluster):
            self._advance(ping_list.updated_at * 1000)
            self._published[agent_id] = ping_list
            self._versions[agent_id] = max(ping_list.version, self._versions.get(agent_id, 0))

    def apply_own_skeleton(self, task_id: str, skeleton: Skeleton | None) -> None:
        """Restore the skeleton that an earlier run published for a task."""
        self._skeletons.pop(task_id, None)
        if skeleton is not None and self._is_ours(skeleton.cluster):
            self._skeletons[task_id] = CurrentSkeleton(skeleton)
        self._stale_tasks.add(task_id)

    def lists_due(self) -> Iterator[tuple[str, PingList | None]]:
        """Yield lists that differ from the published ones, and count them as published.

        An agent without targets gets an empty list. None is a tombstone: the agent has no endpoint
        any more, so nobody remembers a version of its list.
        """
        self._refresh_targets()
        self._forget_departed()
        dirty, self._dirty_agents = self._dirty_agents, set()
        for agent_id in sorted(dirty):
            jobs = sorted(self._jobs_of.get(agent_id, ()))
            draft = merge_targets([self._targets_of[t] for t in jobs], agent_id)
            old = self._published.get(agent_id)
            if draft.targets or self._roster.has_endpoints(agent_id):
                if _differs(draft, old) or (old is not None and agent_id in self._outdated):
                    due = self._list(agent_id, draft)
                    self._outdated.discard(agent_id)
                    self.counts["targets_dropped"] += draft.dropped
                    self.counts["lists_cut"] += draft.dropped > 0
                    self._published[agent_id] = due
                    self._versions[agent_id] = due.version
                    yield agent_id, due
            elif old is not None:
                del self._published[agent_id]
                self._outdated.discard(agent_id)
                self._gone.pop(agent_id, None)
                self._gone[agent_id] = self._now_ns
                yield agent_id, None

    def list_failed(self, agent_id: str) -> None:
        """Note that a list was not delivered; it is published again."""
        self.counts["lists_not_delivered"] += 1
        self._published.pop(agent_id, None)
        self._dirty_agents.add(agent_id)

    def skeletons_gone(self) -> list[str]:
        """Return the ids of tasks that have a skeleton but no record any more; forget them."""
        gone = sorted(self._skeletons.keys() - self._roster.tasks.keys())
        for task_id in gone:
            del self._skeletons[task_id]
        return gone

    def inferences_due(self) -> list[DueInference]:
        """Return the inferences that are due; costs nothing if there are no new readings.

        They are due on a grid of event time, so that a replay makes the same ones.
        """
        found = []
        candidates, self._maybe_due = self._maybe_due, set()
        for task_id in sorted(candidates):
            task = self._roster.tasks.get(task_id)
            if task is None or task.ended_at is not None:
                continue
            latest_ns = self._store.latest_ns(self._roster.agents_of(task_id))
            if latest_ns is None:
                continue
            end_ns = self._config.window_end_ns(latest_ns)
            if end_ns <= self._last_window_ns.get(task_id, 0):
                continue
            self._last_window_ns[task_id] = end_ns
            found.append(DueInference(task_id, (end_ns - self._config.window_ns, end_ns)))
        return found

    def inference_input(self, due: DueInference) -> InferenceInput | None:
        """Return the input of an inference, None if there are no readings."""
        task = self._roster.tasks.get(due.task_id)
        if task is None:
            return None
        job = Job.from_task(task)
        readings = self._store.readings(
            self._roster.agents_of(due.task_id),
            [r.endpoint_id for r in job.ordered],
            *due.window_ns,
        )
        return InferenceInput(job, due.window_ns, readings) if readings.time_ns.size else None

    def apply_inference(self, inputs: InferenceInput, inference: Inference) -> Skeleton | None:
        """Apply the result of an inference; return the skeleton to publish, if it is new."""
        task_id = inputs.job.task_id
        task = self._roster.tasks.get(task_id)
        if task is None or task.ended_at is not None or Job.from_task(task) != inputs.job:
            self.counts["inferences_outdated"] += 1
            return None
        inference = self._without_refuted(inputs.job, inference)
        min_confidence = self._list_config.min_confidence
        record = to_record(
            inference,
            inputs.job,
            cluster=self.cluster,
            version=0,
            window_ns=(inference.begin_ns or inputs.window_ns[0], inputs.window_ns[1]),
            min_confidence=min_confidence,
            producer_version=self._producer_version,
        )
        current = self._skeletons.setdefault(task_id, CurrentSkeleton())
        usable = usable_skeleton(task, current.skeleton, min_confidence) is not None
        published = current.offer(record, usable=usable)
        if published is not None:
            self._stale_tasks.add(task_id)
        return published

    def skeleton_failed(self, task_id: str) -> None:
        """Note that a skeleton was not delivered; the next inference publishes again."""
        self.counts["skeletons_not_delivered"] += 1
        if task_id in self._skeletons:
            self._skeletons[task_id].failed()

    def _without_refuted(self, job: Job, inference: Inference) -> Inference:
        """Return an inference without the pairs that flow tables refute, and as much less sure."""
        hedges = inference.hedges - self._refuted(job, inference.hedges)
        inference = replace(inference, hedges=hedges)
        refuted = self._refuted(job, inference.pairs)
        if not refuted:
            return inference
        self.counts["pairs_refuted"] += len(refuted)
        note = f"{len(refuted)} of {len(inference.pairs)} pairs have no flow-table entry"
        return replace(
            inference,
            pairs=inference.pairs - refuted,
            confidence=inference.confidence * (1.0 - len(refuted) / len(inference.pairs)),
            reason=note if inference.reason is None else f"{inference.reason}; {note}",
        )

    def _refuted(self, job: Job, pairs: Iterable[Pair]) -> frozenset[Pair]:
        """Return the pairs across rails that lack a flow-table entry: nothing is sent on them.

        Pairs of a rail stay: an entry that they lack is a fault to be found.
        """
        rails = {r.endpoint_id: r.rail for r in job.rnics}
        return frozenset(
            (a, b) for a, b in pairs if rails.get(a) != rails.get(b) and self._ways.lacks(a, b)
        )

    def _forget_departed(self) -> None:
        """Forget ended jobs and the versions of departed agents' lists: some come back, but soon.

        The skeleton of a job that is forgotten is deleted as if the job had been.
        """
        if self._now_ns - self._swept_ns < SWEEP_NS:
            return
        self._swept_ns = self._now_ns
        before_ns = self._now_ns - KEEP_DEPARTED_NS
        for agent_id in _pop_older(self._gone, before_ns):
            if agent_id not in self._published:
                self._versions.pop(agent_id, None)
        for task_id in _pop_older(self._ended, before_ns):
            self.apply_task(task_id, None)
        for owner in (self, self._roster):
            memory.shrink_tables(owner)

    def _is_in_job(self, agent_id: str) -> bool:
        return bool(self._roster.tasks_of(agent_id))

    def _is_ours(self, cluster: str) -> bool:
        if cluster == self.cluster:
            return True
        self.counts["foreign_cluster"] += 1
        return False

    def _advance(self, event_ns: int) -> None:
        self._now_ns = max(self._now_ns, event_ns)

    def _refresh_targets(self) -> None:
        turn = self._now_ns // self._list_config.explore_rotate_ns
        if turn != self._turn:
            self._turn = turn
            self._stale_tasks |= {t for t, targets in self._targets_of.items() if targets.rotating}
        for task_id in self._stale_tasks:
            self._set_task_targets(task_id, self._task_targets(task_id))
        self._stale_tasks.clear()

    def _task_targets(self, task_id: str) -> TaskTargets | None:
        task = self._roster.tasks.get(task_id)
        if task is None:
            return None
        current = self._skeletons.get(task_id)
        skeleton = current.skeleton if current is not None else None
        if skeleton is not None and skeleton.pairs:
            refuted = self._refuted(Job.from_task(task), ((p.a, p.b) for p in skeleton.pairs))
            kept = (p for p in skeleton.pairs if (p.a, p.b) not in refuted)
            skeleton = replace(skeleton, pairs=tuple(kept)) if refuted else skeleton
        return task_targets(
            task,
            skeleton,
            self._roster.registered,
            now_ns=self._now_ns,
            config=self._list_config,
        )

    def _set_task_targets(self, task_id: str, targets: TaskTargets | None) -> None:
        old = self._targets_of.pop(task_id, None)
        for agent_id in old.targets if old is not None else ():
            self._jobs_of[agent_id].discard(task_id)
            if not self._jobs_of[agent_id]:
                del self._jobs_of[agent_id]
            self._dirty_agents.add(agent_id)
        for agent_id in targets.targets if targets is not None else ():
            self._jobs_of.setdefault(agent_id, set()).add(task_id)
            self._dirty_agents.add(agent_id)
        if targets is not None and targets.targets:
            self._targets_of[task_id] = targets

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


def _pop_older(since_ns: dict[str, int], before_ns: int) -> list[str]:
    """Remove and return the names from before a time; the dict is in the order of time."""
    names = list(takewhile(lambda name: since_ns[name] < before_ns, since_ns))
    for name in names:
        del since_ns[name]
    return names


def _differs(draft: ListDraft, old: PingList | None) -> bool:
    """Return whether a list differs from the published one; an empty list has no phase."""
    if old is None:
        return bool(draft.targets)
    if not draft.targets:
        return bool(old.targets) or old.phase is not PingListPhase.PRELOAD
    return (draft.targets, draft.phase) != (old.targets, old.phase)
