"""A cluster's counters in one skeleton job, measured in a process of its own.

`python -m ops.bench.scale.skeleton_cluster TASKS` prints JSON: what a first run over all tasks
takes, what a second one without anything new, and one after new readings of one task.
"""

import copy
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from functools import cache
from multiprocessing import active_children
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from arena.workload.capture import CaptureSpec, capture
from arena.workload.spec import JobSpec
from ops.bench.rig.process_cost import cpu_s, memory
from schemas.records import CounterBatch, CounterSample, Task, TaskEndpoint
from schemas.units import SECOND_NS
from skeleton_job.config import SkeletonConfig
from skeleton_job.core import SkeletonCore
from skeleton_job.edge.inferring import Inferring
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.series.columns import CounterColumns
from skeleton_job.tasks.inference import InferenceConfig

CLUSTER: Final = "bench"
HZ: Final = 10
TICK_NS: Final = SECOND_NS // HZ
# 80 hosts of 8 RNICs: 64 tasks are 40,960.
HOSTS: Final = 80
RAILS: Final = 8
SPECS: Final = (
    JobSpec(name="a", dp=10, pp=8, period_s=8.0, microbatches=16),
    JobSpec(name="b", dp=80, pp=1, period_s=4.0),
    JobSpec(name="c", dp=20, pp=4, period_s=15.0, microbatches=16),
    JobSpec(name="d", dp=80, pp=2, tp=4, period_s=8.0, microbatches=16),
)
INFERENCE: Final = InferenceConfig()
# What the store keeps at most, and one interval more for the run after new readings.
SECONDS: Final = (INFERENCE.window_ns + 2 * INFERENCE.interval_ns) // SECOND_NS + 12
# The first run sees windows that end before those readings.
FIRST_SECONDS: Final = SECONDS - INFERENCE.interval_ns // SECOND_NS
# As often as the service looks for answers.
POLL_S: Final = 0.05


def task(number: int, spec: JobSpec) -> Task:
    """Return a task on hosts of its own."""
    name = f"job-{number:04d}"
    return Task(
        cluster=CLUSTER,
        task_id=name,
        submitted_at=1_750_000_000_000_000,
        gpus_per_host=spec.gpus_per_host,
        endpoints=tuple(
            TaskEndpoint(
                endpoint_id=f"{name}-w{host}/r{rail}",
                container_id=f"{name}-w{host}",
                host_id=f"host-{number:04d}-{host:03d}",
                agent_id=f"agent-{number:04d}-{host:03d}",
                rail=rail,
            )
            for host in range(HOSTS)
            for rail in range(RAILS)
        ),
    )


@cache
def counters(number: int) -> tuple[Any, ...]:
    """Return time, tx and rx of each host's RNICs, (hosts, seconds * HZ, rails) each."""
    made = capture(CaptureSpec(jobs=(SPECS[number],), seconds=SECONDS + 1, hz=HZ, seed=number))
    order = {host: i for i, (host, _) in enumerate(made.truth.jobs[0].rnics[::RAILS])}
    table = made.table.with_columns(at=pl.col("host").replace_strict(order)).sort(
        "at", "rail", "time_ns"
    )
    shape = (HOSTS, RAILS, -1)
    columns = (
        table[name].to_numpy().reshape(shape) for name in ("time_ns", "tx_bytes", "rx_bytes")
    )
    return tuple(np.swapaxes(column, 1, 2) for column in columns)


def columns(of: Task, number: int, seconds: range) -> Iterator[CounterColumns]:
    """Yield a task's readings as the job reads them from its agents' messages, host by host."""
    time_ns, tx, rx = counters(number)
    for host in range(HOSTS):
        endpoints = of.endpoints[host * RAILS : (host + 1) * RAILS]
        ids = "".join(e.endpoint_id for e in endpoints) * HZ
        names = np.frombuffer(ids.encode("ascii"), np.uint8).reshape(HZ * RAILS, -1)
        for second in seconds:
            rows = slice(second * HZ, (second + 1) * HZ)
            yield CounterColumns(
                cluster=CLUSTER,
                agent_id=endpoints[0].agent_id,
                started_at=int(time_ns[host, rows].min()) // SECOND_NS * 10**6,
                names=names,
                time_ns=time_ns[host, rows].ravel(),
                tx_bytes=tx[host, rows].ravel(),
                rx_bytes=rx[host, rows].ravel(),
                bits=np.full(HZ * RAILS, 64, dtype=np.uint8),
            )


def as_batch(of: CounterColumns) -> CounterBatch:
    """Return the record that an agent sends of such readings."""
    offsets = of.time_ns - of.started_at * 1000
    return CounterBatch(
        cluster=of.cluster,
        agent_id=of.agent_id,
        host_id=of.agent_id.replace("agent", "host"),
        started_at=of.started_at,
        tick_ns=TICK_NS,
        samples=tuple(
            CounterSample(
                endpoint_id=endpoint,
                rail=number % RAILS,
                tick_offset_ns=offset // TICK_NS * TICK_NS,
                read_delay_ns=offset % TICK_NS,
                tx_bytes=tx,
                rx_bytes=rx,
                counter_bits=64,
            )
            for number, (endpoint, offset, tx, rx) in enumerate(
                zip(of.endpoints(), offsets.tolist(), of.tx_bytes.tolist(), of.rx_bytes.tolist(),
                    strict=True)
            )
        ),
    )  # fmt: skip


def filled(tasks: int) -> tuple[SkeletonCore, list[CounterColumns]]:
    """Return a core that has the readings of that many tasks, and what one's agents send later.

    Those of one task of a kind are taken in as they come; of its likes the store gets copies,
    which are as large.
    """
    core = SkeletonCore(CLUSTER, ListConfig(), INFERENCE)
    store = core._store
    firsts: list[Task] = []
    later: list[CounterColumns] = []
    for number in range(tasks):
        kind = number % len(SPECS)
        made = task(number, SPECS[kind])
        core.apply_task(made.task_id, made)
        if number < len(SPECS):
            firsts.append(made)
            later = later or list(columns(made, kind, range(FIRST_SECONDS, SECONDS)))
            for batch in columns(made, kind, range(FIRST_SECONDS)):
                core.observe_counters(batch)
            continue
        for old, new in zip(firsts[kind].endpoints[::RAILS], made.endpoints[::RAILS], strict=True):
            agent = copy.deepcopy(store._agents[old.agent_id])
            # Pages share their names, as those of one agent do.
            codes = {
                (name.replace(firsts[kind].task_id, made.task_id), bits): code
                for (name, bits), code in agent.pages[0].codes.items()
            }
            for page in agent.pages:
                page.codes = codes
            store._agents[new.agent_id] = agent
        core._maybe_due.add(made.task_id)
    counters.cache_clear()
    return core, later


def run(core: SkeletonCore, inferring: Inferring) -> dict[str, float]:
    """Infer whatever is due, publish skeletons and lists; return what that took.

    With as many inferences at a time as the service has by default; CPU is that of all processes.
    """
    wall, cpu = time.perf_counter(), _cpu_s()
    inferences = skeletons = sure = lists = 0
    waiting = deque(core.inferences_due())
    while waiting or inferring.busy:
        while waiting and inferring.has_room:
            due = waiting.popleft()
            inputs = core.inference_input(due)
            if inputs is not None:
                inferring.submit(due, inputs)
        for running in inferring.finished(POLL_S):
            record = core.apply_inference(running.inputs, running.future.result())
            inferences += 1
            skeletons += record is not None
            sure += record is not None and record.dp is not None
    due_s = time.perf_counter() - wall
    lists = sum(1 for _ in core.lists_due())
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": _cpu_s() - cpu,
        "inferences_s": due_s,
        "inferences": inferences,
        "skeletons": skeletons,
        "sure": sure,
        "lists": lists,
    }


def _cpu_s() -> float:
    return time.process_time() + sum(cpu_s(child.pid or 0) for child in active_children())


def measure(tasks: int) -> dict[str, Any]:
    """Return all figures of a cluster of that many tasks."""
    core, later = filled(tasks)
    # What made the traffic is gone, but stays the process's peak unless told otherwise.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    filled_mib = memory(os.getpid()).rss_bytes / 2**20
    inferring = Inferring(SkeletonConfig().workers)
    first = run(core, inferring)
    # Lists and skeletons are as they are; nobody sent a reading.
    nothing = run(core, inferring)
    for batch in later:
        core.observe_counters(batch)
    one = run(core, inferring)
    processes = [os.getpid(), *(child.pid or 0 for child in active_children())]
    peak_mib = sum(memory(pid).peak_bytes for pid in processes) / 2**20
    inferring.close()
    return {
        "filled_mib": filled_mib,
        "tasks": tasks,
        "rnics": tasks * HOSTS * RAILS,
        "first": first,
        "nothing": nothing,
        "one": one,
        "peak_mib": peak_mib,
    }


if __name__ == "__main__":
    json.dump(measure(int(sys.argv[1])), sys.stdout)
