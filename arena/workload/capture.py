"""Several jobs on a platform, and the counters that its hosts read."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from arena.workload.counters import Curve, Reading, counter, curves, readings
from arena.workload.layout import Layout
from arena.workload.spec import CLEAN, Dirt, JobSpec
from arena.workload.transfers import transfers_of
from arena.workload.truth import CaptureTruth, JobTruth, job_truth

START_NS = 1_760_000_000 * 10**9


@dataclass(frozen=True, kw_only=True)
class CaptureSpec:
    """Jobs, the platform around them, and the reading of counters.

    Attributes
    ----------
    jobs : in the order in which they get their hosts
    idle_hosts : hosts without a job
    share_hosts : two jobs of four NICs a host stand on the same hosts of eight
    seconds, hz : length of the capture, and readings per second
    index : what the platform's index says of the hosts: "true", "lies", or "none"
    tasks_known : whether the meta data names the jobs' RNICs and GPUs
    """

    jobs: tuple[JobSpec, ...]
    idle_hosts: int = 0
    share_hosts: bool = False
    seconds: float = 120.0
    hz: float = 10.0
    dirt: Dirt = CLEAN
    index: str = "true"
    tasks_known: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Capture:
    """What an inference gets (table, meta), and the truth."""

    spec: CaptureSpec
    table: pl.DataFrame
    meta: dict[str, Any]
    truth: CaptureTruth


def capture(spec: CaptureSpec) -> Capture:
    """Simulate a capture; the same spec gives the same bytes."""
    rng = np.random.default_rng([spec.seed, 1])
    shared = max((j.hosts for j in spec.jobs), default=0) if spec.share_hosts else 0
    total = (shared or sum(j.hosts for j in spec.jobs)) + spec.idle_hosts
    # Names say nothing of the order: hosts come from a pool.
    names = [f"node-{n:05d}" for n in rng.permutation(10 * total + 10)[:total]]
    placed: list[tuple[JobSpec, list[str], int]] = []
    begin = rail0 = 0
    for job in spec.jobs:
        placed.append((job, names[begin : begin + job.hosts], rail0))
        if shared:
            rail0 += job.nics_per_host
        else:
            begin += job.hosts
    nics = rail0 or max((j.nics_per_host for j in spec.jobs), default=8)
    rows = readings(total, spec.seconds, 1 / spec.hz, spec.dirt, start_ns=START_NS, rng=rng)
    when = dict(zip(names, rows, strict=True))
    table = _Table()
    truths: list[JobTruth] = []
    busy: set[tuple[str, int]] = set()
    for number, (job, hosts, rail) in enumerate(placed):
        job_rng = np.random.default_rng([spec.seed, 2, number])
        sent = transfers_of(job, spec.seconds, job_rng)
        truth = job_truth(job, sent, hosts, rail)
        src, dst, begin_s, end_s, size = sent.rows()
        lanes = Layout(job).lanes
        up, down = (curves(x, begin_s, end_s, size, lanes) for x in (src, dst))
        rate = float(size.sum()) / max(1, lanes) / spec.seconds
        for lane in range(lanes):
            host, slot = divmod(lane, job.slots)
            for k in range(job.width):
                place = (hosts[host], rail + slot * job.width + k)
                busy.add(place)
                table.add(
                    place,
                    when[hosts[host]],
                    (up[lane], down[lane]),
                    rate=rate,
                    dirt=spec.dirt,
                    rng=job_rng,
                )
        truths.append(truth)
    idle = [(h, r) for h in names for r in range(nics) if (h, r) not in busy]
    nothing = Curve(np.zeros(0), np.zeros(0))
    for place in idle:
        table.add(place, when[place[0]], (nothing, nothing), rate=1e5, dirt=spec.dirt, rng=rng)
    return Capture(spec, table.frame(), _meta(spec, names, truths, rng),
                   CaptureTruth(truths, frozenset(idle)))  # fmt: skip


def _meta(
    spec: CaptureSpec, names: list[str], truths: list[JobTruth], rng: np.random.Generator
) -> dict[str, Any]:
    meta: dict[str, Any] = {"counter": {"bits": spec.dirt.bits}, "link_gbps": 400}
    order = rng.permutation(len(names)) if spec.index == "lies" else np.arange(len(names))
    if spec.index != "none":
        meta["pod_index"] = {name: int(i) for name, i in zip(names, order, strict=True)}
    if len({t.spec.gpus_per_host for t in truths}) == 1 and not spec.share_hosts:
        meta["gpus_per_host"] = truths[0].spec.gpus_per_host
    if spec.tasks_known:
        meta["tasks"] = [
            {"task": t.spec.name, "gpus": t.spec.gpus, "rnics": [list(p) for p in t.rnics]}
            for t in truths
        ]
    return meta


class _Table:
    """Rows of the long table, NIC by NIC."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {
            k: [] for k in ("time_ns", "rail", "tx_bytes", "rx_bytes")
        }
        self.hosts: list[str] = []
        self.counts: list[int] = []

    def add(
        self,
        place: tuple[str, int],
        reading: Reading,
        curves: tuple[Curve, Curve],
        *,
        rate: float,
        dirt: Dirt,
        rng: np.random.Generator,
    ) -> None:
        there = reading.there
        self.columns["time_ns"].append(reading.stamp_ns[there])
        self.columns["rail"].append(np.full(int(there.sum()), place[1], np.int32))
        for name, curve in zip(("tx_bytes", "rx_bytes"), curves, strict=True):
            self.columns[name].append(counter(curve, reading, dirt, rate, rng)[there])
        self.hosts.append(place[0])
        self.counts.append(int(there.sum()))

    def frame(self) -> pl.DataFrame:
        """Return the table as `skeleton infer` reads it."""
        if not self.hosts:
            return pl.DataFrame()
        columns = {name: np.concatenate(parts) for name, parts in self.columns.items()}
        kinds = pl.Enum(sorted(set(self.hosts)))
        host = pl.concat([pl.Series([h], dtype=kinds).new_from_index(0, n)
                          for h, n in zip(self.hosts, self.counts, strict=True)])  # fmt: skip
        return (
            pl.DataFrame(columns)
            .with_columns(host=host.cast(pl.String))
            .select("time_ns", "host", "rail", "tx_bytes", "rx_bytes")
        )
