"""The core over counters of a live lab.

`tests/data/skeleton/netns_lab.npz` is what the agents of `lab up --kind netns` read in its first
100 seconds, on a machine with other work: 4 hosts of 4 rails, two replicas of two stages, tensor
groups of a whole host. Rows are host after host, rail after rail; columns are differences from one
reading to the next, the first from 0 (times from the begin of the lab).

From these windows an earlier version inferred replicas inside the hosts (DP 4, PP 2, TP 2), and
listed pairs across rails.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from schemas.enums import Transport
from schemas.records import (
    CounterBatch,
    CounterSample,
    Endpoint,
    FlowEntry,
    FlowTable,
    Skeleton,
)
from schemas.units import SECOND_NS
from skeleton_job.core import SkeletonCore
from skeleton_job.job import Job, Rnic
from skeleton_job.layout.skeleton import Inference
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.tasks.inference import InferenceConfig
from tests import DATA
from tests.unit.skeleton_job.records import CLUSTER, SUBMITTED_AT, agent_of, task_record

RECORDING = DATA / "skeleton" / "netns_lab.npz"
HOSTS = RAILS = 4
# As many inferences as in the live job over this time, and some more.
INFERENCE = InferenceConfig(interval_ns=20 * SECOND_NS, window_ns=300 * SECOND_NS)
JOB = Job(
    task_id="job1",
    rnics=tuple(
        Rnic(f"job1-w{host}/r{rail}", f"job1-w{host}", f"h{host}", rail)
        for host in range(HOSTS)
        for rail in range(RAILS)
    ),
)


def _batches() -> Iterator[CounterBatch]:
    """Yield the readings as the agents sent them: second by second."""
    with np.load(RECORDING) as columns:
        time_us, tx, rx = (columns[n].astype(np.int64).cumsum(axis=1)
                           for n in ("time_us", "tx_bytes", "rx_bytes"))  # fmt: skip
    for second in range(int(time_us.max()) // 10**6 + 1):
        for host in range(HOSTS):
            samples = []
            for row in range(host * RAILS, (host + 1) * RAILS):
                chosen = np.flatnonzero(time_us[row] // 10**6 == second)
                samples += [
                    CounterSample(
                        endpoint_id=JOB.rnics[row].endpoint_id,
                        rail=row % RAILS,
                        tick_offset_ns=int(time_us[row, at] % 10**6) * 1000,
                        tx_bytes=int(tx[row, at]),
                        rx_bytes=int(rx[row, at]),
                        counter_bits=64,
                    )
                    for at in chosen
                ]
            yield CounterBatch(
                cluster=CLUSTER,
                agent_id=agent_of(f"h{host}"),
                host_id=f"h{host}",
                started_at=SUBMITTED_AT + second * 10**6,
                tick_ns=10**8,
                samples=tuple(samples),
            )


def test_the_skeleton_of_a_live_lab_is_right_and_stays() -> None:
    """Every window gives the degrees of the job, one skeleton is published, no pair leaves a rail.

    The confidence does not rise where the answer turns wrong: no answer does.
    """
    core = SkeletonCore(CLUSTER, ListConfig(), INFERENCE)
    core.apply_task(JOB.task_id, task_record(JOB))
    inferred, published = [], list[Skeleton]()
    for batch in _batches():
        core.observe_counters(batch)
        for due in core.inferences_due():
            inputs = core.inference_input(due)
            if inputs is None:
                continue
            found = inputs.infer()
            record = core.apply_inference(inputs, found)
            published += [] if record is None else [record]
            if found.dp is not None:
                inferred.append((found.dp, found.pp, found.tp))
                assert 0.75 <= found.confidence < 0.95
    assert len(inferred) >= 3
    assert set(inferred) == {(2, 2, 4)}
    assert sum(record.dp is not None for record in published) == 1
    rail_of = {r.endpoint_id: r.rail for r in JOB.rnics}
    for _, ping_list in core.lists_due():
        assert ping_list is not None
        assert all(rail_of[t.src] == rail_of[t.dst] for t in ping_list.targets)


def _tables(*, across: bool) -> Iterator[tuple[str, FlowTable]]:
    """Yield the flow tables of the lab's hosts; `across`: with entries between rails."""
    for host in range(HOSTS):
        own = [r for r in JOB.rnics if r.host == f"h{host}"]
        entries = [
            FlowEntry(node=node, dst=dst.endpoint_id, next_hop="v")
            for dst in JOB.rnics
            for node in ("v", *(r.endpoint_id for r in own if across or r.rail == dst.rail))
            if node != dst.endpoint_id
        ]
        yield (
            f"h{host}",
            FlowTable(cluster=CLUSTER, host_id=f"h{host}", captured_at=1, entries=tuple(entries)),
        )


def _inference_across_rails() -> Inference:
    """Return what was once inferred from these counters: a third of the pairs changes rails."""
    ids = [[f"job1-w{h}/r{r}" for r in range(RAILS)] for h in range(HOSTS)]
    on_rails = {(ids[a][r], ids[b][r]) for a, b in ((0, 2), (1, 3), (0, 1), (2, 3))
                for r in range(RAILS)}  # fmt: skip
    across = {(ids[a][r], ids[a + 2][(r + 2) % RAILS]) for a in range(2) for r in range(RAILS)}
    return Inference(
        confidence=0.914, reason=None, period_ns=2 * SECOND_NS, dp=4, pp=2, tp=2,
        pairs=frozenset(on_rails | across),
    )  # fmt: skip


def _core(skeletons: Callable[[SkeletonCore], Skeleton | None]) -> tuple[SkeletonCore, Skeleton]:
    """Return a core with the job and its endpoints, and the skeleton that it publishes."""
    core = SkeletonCore(CLUSTER, ListConfig(explore_peers=0), INFERENCE)
    core.apply_task(JOB.task_id, task_record(JOB))
    for r in JOB.rnics:
        core.apply_endpoint(
            r.endpoint_id,
            Endpoint(
                cluster=CLUSTER, endpoint_id=r.endpoint_id, agent_id=agent_of(r.host),
                container_id=r.container_id, host_id=r.host, rail=r.rail,
                transport=Transport.UDP, address="127.0.0.1", port=1, incarnation=1,
                registered_at=SUBMITTED_AT,
            ),
        )  # fmt: skip
    batches = [b for b in _batches() if b.started_at < SUBMITTED_AT + 25 * 10**6]
    for batch in batches:
        core.observe_counters(batch)
    record = skeletons(core)
    assert record is not None
    return core, record


def _apply_inference(core: SkeletonCore) -> Skeleton | None:
    inputs = next(filter(None, map(core.inference_input, core.inferences_due())))
    return core.apply_inference(inputs, _inference_across_rails())


def _targets_across(core: SkeletonCore) -> list[int]:
    """Return for each list that is due how many of its targets are on another rail."""
    rail_of = {r.endpoint_id: r.rail for r in JOB.rnics}
    return [
        sum(rail_of[t.src] != rail_of[t.dst] for t in ping_list.targets)
        for _, ping_list in core.lists_due()
        if ping_list is not None
    ]


def test_pairs_across_rails_that_flow_tables_lack_are_withdrawn() -> None:
    """Where the tables come late, the lists change; the others stay."""
    core, record = _core(_apply_inference)
    assert (record.dp, record.confidence) == (4, 0.914)
    assert _targets_across(core) == [RAILS] * HOSTS
    for host, table in _tables(across=True):
        core.apply_flow_table(host, table)
    assert _targets_across(core) == []
    core, _ = _core(_apply_inference)
    for host, table in _tables(across=False):
        core.apply_flow_table(host, table)
    assert _targets_across(core) == [0] * HOSTS


def test_an_inference_that_flow_tables_refute_is_less_sure() -> None:
    """By the share of its pairs that are refuted; those are left out."""

    def refuted(core: SkeletonCore) -> Skeleton | None:
        for host, table in _tables(across=False):
            core.apply_flow_table(host, table)
        return _apply_inference(core)

    core, record = _core(refuted)
    assert record.confidence == pytest.approx(0.914 * 2 / 3)
    assert len(record.pairs) == 4 * RAILS
    assert record.reason == "8 of 24 pairs have no flow-table entry"
    assert core.counts["pairs_refuted"] == 8
    assert _targets_across(core) == [0] * HOSTS
