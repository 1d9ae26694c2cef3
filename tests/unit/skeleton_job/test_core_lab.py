"""The core over counters of a live lab.

`tests/data/skeleton/netns_lab.npz` is what the agents of `lab up --kind netns` read in its first
100 seconds, on a machine with other work: 4 hosts of 4 rails, two replicas of two stages, tensor
groups of a whole host. Rows are host after host, rail after rail; columns are differences from one
reading to the next, the first from 0 (times from the begin of the lab).

From these windows an earlier version inferred replicas inside the hosts (DP 4, PP 2, TP 2), and
listed pairs across rails.
"""

from collections.abc import Iterator

import numpy as np

from schemas.records import CounterBatch, CounterSample, Skeleton
from schemas.units import SECOND_NS
from skeleton_job.core import SkeletonCore
from skeleton_job.job import Job, Rnic
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
                assert 0.5 < found.confidence < 0.95
    assert len(inferred) >= 3
    assert set(inferred) == {(2, 2, 4)}
    assert sum(record.dp is not None for record in published) == 1
    rail_of = {r.endpoint_id: r.rail for r in JOB.rnics}
    for _, ping_list in core.lists_due():
        assert ping_list is not None
        assert all(rail_of[t.src] == rail_of[t.dst] for t in ping_list.targets)
