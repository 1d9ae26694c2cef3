"""Records of the contract from a generated job."""

from collections.abc import Iterator

import polars as pl

from schemas.records import CounterBatch, CounterSample, Task, TaskEndpoint
from skeleton_job.job import Job
from tests.unit.skeleton_job.traffic import Workload

SUBMITTED_AT = 1_750_000_000_000_000
CLUSTER = "lab"


def agent_of(host: str) -> str:
    """Return the agent of a host."""
    return f"agent-{host}"


def task_record(job: Job, *, cluster: str = CLUSTER) -> Task:
    """Return the task.v1 record of a job."""
    return Task(
        cluster=cluster,
        task_id=job.task_id,
        submitted_at=SUBMITTED_AT,
        endpoints=tuple(
            TaskEndpoint(
                endpoint_id=r.endpoint_id,
                container_id=r.container_id,
                host_id=r.host,
                agent_id=agent_of(r.host),
                rail=r.rail,
            )
            for r in job.rnics
        ),
    )


def counter_batches(workload: Workload, *, cluster: str = CLUSTER) -> Iterator[CounterBatch]:
    """Yield the readings of a job as the agents send them: second by second."""
    job = workload.job
    host_of = {r.endpoint_id: r.host for r in job.rnics}
    rail_of = {r.endpoint_id: r.rail for r in job.rnics}
    tick_ns = workload.layout.tick_ns
    frame = workload.frame().with_columns(
        pl.col("endpoint_id").replace_strict(host_of).alias("host"),
        (pl.col("time_ns") // 10**9).alias("second"),
    )
    for (second, host), part in frame.sort("second", "host", "time_ns").group_by(
        ["second", "host"], maintain_order=True
    ):
        start_ns = int(str(second)) * 10**9
        samples = []
        for row in part.iter_rows(named=True):
            offset_ns = row["time_ns"] - start_ns
            tick = offset_ns // tick_ns * tick_ns
            samples.append(
                CounterSample(
                    endpoint_id=row["endpoint_id"],
                    rail=rail_of[row["endpoint_id"]],
                    tick_offset_ns=tick,
                    read_delay_ns=offset_ns - tick,
                    tx_bytes=row["tx_bytes"],
                    rx_bytes=row["rx_bytes"],
                    counter_bits=row["bits"],
                )
            )
        yield CounterBatch(
            cluster=cluster,
            agent_id=agent_of(str(host)),
            host_id=str(host),
            started_at=start_ns // 1000,
            tick_ns=tick_ns,
            samples=tuple(samples),
        )
