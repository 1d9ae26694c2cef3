"""A training job with known truth: who talks to whom, and the counters that this leaves.

Iterations are scheduled as 1F1B: each stage forwards and backs its microbatches
as soon as what they need has arrived, then all-reduces its gradients over the
replicas. Every transfer moves its bytes evenly over its time, on the tx side of
the sender and the rx side of the receiver.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.columns.arrays import Floats
from schemas.units import SECOND_NS
from skeleton_job.job import Job, Rnic


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A job and how badly its counters behave."""

    dp: int = 2
    pp: int = 2
    rails: int = 4
    # RNICs of one tensor-parallel group; None: all of a host
    tp_rnics: int | None = None
    idle_hosts: int = 0
    microbatches: int = 4
    period_s: float = 2.0
    seconds: float = 50.0
    tick_ns: int = 100_000_000
    pipeline_bytes: float = 60e6
    gradient_bytes: float = 1.5e9
    jitter: float = 0.01
    missing: float = 0.0
    clock_ms: float = 5.0
    noise: float = 0.01
    bits: int = 64
    resets: int = 0
    # replicas' positions in the order of the hosts: "stage" fills a stage first
    order: str = "stage"
    seed: int = 0

    @property
    def width(self) -> int:
        """RNICs of one tensor-parallel group."""
        return self.tp_rnics or self.rails

    @property
    def blocks_per_host(self) -> int:
        """Pipeline positions in one host."""
        return self.rails // self.width

    @property
    def hosts(self) -> int:
        """Hosts that work."""
        return self.dp * self.pp // self.blocks_per_host

    def __str__(self) -> str:
        return (
            f"dp{self.dp} pp{self.pp} rails{self.rails}/{self.width} hosts{self.hosts}"
            f"+{self.idle_hosts} miss{self.missing:g} noise{self.noise:g} bits{self.bits} "
            f"{self.order} {self.seconds:g}s@{self.period_s:g}s"
        )


@dataclass(frozen=True)
class Truth:
    """What the inference should find."""

    pairs: frozenset[tuple[str, str]]
    position: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class _Lane:
    """Transfers of one replica's stage in one direction: start, end, bytes."""

    rows: list[tuple[float, float, float]] = field(default_factory=list)

    def cumulated(self, times_s: Floats) -> Floats:
        if not self.rows:
            return np.zeros_like(times_s)
        start, end, size = np.array(self.rows).T
        edges = np.unique(np.concatenate([start, end]))
        total = np.zeros_like(edges)
        for a, b, s in zip(start, end, size, strict=True):
            total += np.clip((edges - a) / (b - a), 0, 1) * s
        out: Floats = np.interp(times_s, edges, total)
        return out


def _schedule(layout: Layout, rng: np.random.Generator) -> Iterator[tuple[str, int, float, float]]:
    """Yield (kind, stage, start, length) of one replica's iteration, in units of the period."""
    stages, batches = layout.pp, layout.microbatches
    share = 0.7 / (3 * (batches + stages - 1))
    forward, backward, move = share, 2 * share, share * 0.6
    done: dict[tuple[str, int, int], float] = {}
    queues = []
    for stage in range(stages):
        warm = min(stages - stage, batches)
        order = [("F", m) for m in range(warm)]
        nxt = warm
        for m in range(batches):
            order.append(("B", m))
            if nxt < batches:
                order.append(("F", nxt))
                nxt += 1
        queues.append(order)
    clock = [0.0] * stages
    while any(queues):
        for stage in range(stages):
            while queues[stage]:
                kind, m = queues[stage][0]
                first = (kind, stage) in {("F", 0), ("B", stages - 1)}
                needed = (kind, stage - 1 if kind == "F" else stage + 1, m)
                if not first and needed not in done:
                    break
                begin = max(clock[stage], 0.0 if first else done[needed] + move)
                cost = (forward if kind == "F" else backward) * (1 + 0.03 * rng.standard_normal())
                clock[stage] = begin + abs(cost)
                done[(kind, stage, m)] = clock[stage]
                queues[stage].pop(0)
                if kind == "F" and stage < stages - 1:
                    yield "F", stage, clock[stage], move
                if kind == "B" and stage > 0:
                    yield "B", stage, clock[stage], move
    for stage in range(stages):
        yield "end", stage, clock[stage], 0.0


class Workload:
    """The job of a layout: `job`, `truth` and `frame()`."""

    def __init__(self, layout: Layout, start_ns: int = 1_760_000_000 * SECOND_NS) -> None:
        self.layout = layout
        self._rng = np.random.default_rng(layout.seed)
        self.start_ns = start_ns

    @cached_property
    def job(self) -> Job:
        """The job as the platform knows it."""
        hosts = range(self.layout.hosts + self.layout.idle_hosts)
        return Job(
            task_id="job1",
            rnics=tuple(
                Rnic(endpoint_id=f"job1-w{h}/r{r}", container_id=f"job1-w{h}", host=f"h{h}", rail=r)
                for h in hosts
                for r in range(self.layout.rails)
            ),
        )

    def _place(self, block: int) -> tuple[int, int]:
        """Return (stage, replica) of a block; blocks are numbered along the hosts."""
        if self.layout.order == "stage":
            return divmod(block, self.layout.dp)
        replica, stage = divmod(block, self.layout.pp)
        return stage, replica

    @cached_property
    def positions(self) -> dict[tuple[int, int], tuple[int, int]]:
        """(stage, replica) → (host, first rail)."""
        per_host = self.layout.blocks_per_host
        return {
            self._place(b): (b // per_host, (b % per_host) * self.layout.width)
            for b in range(self.layout.dp * self.layout.pp)
        }

    @cached_property
    def truth(self) -> Truth:
        """Pairs between hosts that exchange bytes: rings in replica order, pipeline chains."""
        dp, pp = self.layout.dp, self.layout.pp
        pairs: set[tuple[str, str]] = set()
        position: dict[str, tuple[int, int]] = {}
        for (stage, replica), (host, rail) in self.positions.items():
            for k in range(self.layout.width):
                me = f"job1-w{host}/r{rail + k}"
                position[me] = (stage, k)
                others = []
                if dp > 1:
                    others.append(self.positions[stage, (replica + 1) % dp])
                if stage + 1 < pp:
                    others.append(self.positions[stage + 1, replica])
                for h, r in others:
                    if h != host:
                        a, b = sorted((me, f"job1-w{h}/r{r + k}"))
                        pairs.add((a, b))
        return Truth(frozenset(pairs), position)

    def _lanes(self) -> dict[tuple[int, int], tuple[_Lane, _Lane]]:
        layout, rng = self.layout, self._rng
        lanes = {key: (_Lane(), _Lane()) for key in self.positions}
        t = -layout.period_s * rng.random()
        while t < layout.seconds:
            period = layout.period_s * (1 + layout.jitter * rng.standard_normal())
            ends: dict[int, float] = {}
            for replica in range(layout.dp):
                for kind, stage, begin, length in _schedule(layout, rng):
                    a, b = t + begin * period, t + (begin + length) * period
                    if kind == "end":
                        ends[stage] = max(ends.get(stage, 0.0), a)
                        continue
                    row = (a, b, layout.pipeline_bytes)
                    peer = stage + 1 if kind == "F" else stage - 1
                    lanes[stage, replica][0].rows.append(row)
                    lanes[peer, replica][1].rows.append(row)
            if layout.dp > 1:
                for stage, end in ends.items():
                    size = layout.gradient_bytes * 2 * (layout.dp - 1) / layout.dp
                    row = (end, end + 0.12 * period, size)
                    for replica in range(layout.dp):
                        lanes[stage, replica][0].rows.append(row)
                        lanes[stage, replica][1].rows.append(row)
            t += period
        return lanes

    def frame(self) -> pl.DataFrame:
        """Return the long table of counters: time_ns, endpoint_id, tx_bytes, rx_bytes, bits."""
        layout, rng = self.layout, self._rng
        lanes = self._lanes()
        ticks = np.arange(0, layout.seconds, layout.tick_ns / SECOND_NS)
        by_block = {where: lanes[key] for key, where in self.positions.items()}
        parts = []
        for host in range(layout.hosts + layout.idle_hosts):
            offset = rng.uniform(-1, 1) * layout.clock_ms / 1e3
            for rail in range(layout.rails):
                read = ticks + rng.uniform(0, 0.004, ticks.size)
                pair = by_block.get((host, rail - rail % layout.width))
                columns = [
                    self._counter(lane.cumulated(read) if pair else np.zeros_like(read))
                    for lane in (pair or (_Lane(), _Lane()))
                ]
                keep = rng.random(ticks.size) >= layout.missing
                stamps = self.start_ns + np.round((read + offset) * SECOND_NS).astype(np.int64)
                parts.append(
                    pl.DataFrame(
                        {
                            "time_ns": stamps[keep],
                            "endpoint_id": [f"job1-w{host}/r{rail}"] * int(keep.sum()),
                            "tx_bytes": columns[0][keep],
                            "rx_bytes": columns[1][keep],
                            "bits": np.full(int(keep.sum()), layout.bits, dtype=np.int64),
                        }
                    )
                )
        return pl.concat(parts)

    def _counter(self, cumulated: Floats) -> NDArray[np.uint64]:
        """Return the counter: background traffic added, started anywhere, wrapped, reset."""
        layout, rng = self.layout, self._rng
        scale = (
            layout.gradient_bytes + layout.pipeline_bytes * layout.microbatches
        ) / layout.period_s
        extra = rng.exponential(layout.noise * scale * layout.tick_ns / SECOND_NS, cumulated.size)
        value = (cumulated + np.cumsum(extra)).astype(np.uint64)
        for at in rng.integers(1, value.size, layout.resets):
            value[at:] -= value[at]
        start = np.uint64(rng.integers(0, 2 ** min(layout.bits, 62)))
        return (value + start) & np.uint64(2**layout.bits - 1)
