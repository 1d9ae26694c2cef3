"""Iterations of a fully sharded job (FSDP, ZeRO-3): parameters are gathered layer by layer.

Each rank has a stream of computation and a stream of communication. In the forward pass the
parameters of a unit of the model are gathered while the one before computes; in the backward pass
they are gathered again, and gradients are reduce-scattered. With hybrid sharding, shards stay
within some hosts, and the sums of shards are all-reduced between such sets of hosts. Where
communication takes as long as computation, bytes flow evenly.
"""

from dataclasses import dataclass, replace

import numpy as np

from arena.sealed_jobs.collectives import Pattern, gather, pattern, ring
from arena.sealed_jobs.fleet import FloatArray, IntArray, Layout
from arena.sealed_jobs.traffic import Bundle, Traffic, bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedJob:
    """A fully sharded job.

    Attributes
    ----------
    shard_ranks
        Successive ranks of the data axis that share one copy of the parameters.
    units
        Parts of the model that are gathered as one.
    micros
        Microbatches of an iteration.
    forward_s
        Forward of a microbatch through each unit; shape (units,).
    unit_bytes
        Parameters of each unit; shape (units,).
    gathered_again
        Whether backward passes gather the parameters again.
    sums_each_micro
        Whether each microbatch's gradients are summed, or only the last one's.
    ahead
        Units whose parameters may be gathered before they are needed.
    bytes_per_s
        What a port carries.
    """

    layout: Layout
    shard_ranks: int
    units: int
    micros: int
    forward_s: FloatArray
    backward_ratio: float
    unit_bytes: FloatArray
    gathered_again: bool
    sums_each_micro: bool
    ahead: int
    bytes_per_s: float
    optimizer_s: float
    gathering: str
    step_noise: float
    group_speed: FloatArray

    @property
    def groups(self) -> int:
        """Number of copies of the parameters."""
        return self.layout.degrees.dp // self.shard_ranks

    @property
    def slow_shape(self) -> tuple[int, int]:
        """Number of copies; there is one stage."""
        return self.groups, 1

    def iterations(
        self,
        rng: np.random.Generator,
        count: int,
        *,
        slow: FloatArray | None = None,
        evaluating: bool = False,
    ) -> Traffic:
        """Simulate iterations.

        Parameters
        ----------
        count
            Number of iterations.
        slow
            Factors of the durations of stragglers; shape (count, groups, 1).
        evaluating
            Forward passes only.
        """
        return _Streams(self, rng, count, slow=slow).simulate(evaluating=evaluating)

    def scaled(self, factor: float) -> "ShardedJob":
        """Return a job with all durations and messages longer by a factor."""
        return replace(
            self,
            forward_s=self.forward_s * factor,
            unit_bytes=self.unit_bytes * factor,
            optimizer_s=self.optimizer_s * factor,
        )

    def shard_patterns(self) -> list[Pattern]:
        """Return for each copy which RNICs gather it."""
        grid = self.layout.grid[0, :, 0]
        each = self.shard_ranks
        return [
            gather(self.layout, self._by_tensor(grid[i * each : (i + 1) * each]), self.gathering)
            for i in range(self.groups)
        ]

    def copy_pattern(self) -> Pattern:
        """Return which RNICs sum the shards of all copies; the payload is the whole unit."""
        grid = self.layout.grid[0, :, 0]
        if self.groups == 1:
            return pattern(())
        shares = []
        for shard in range(self.shard_ranks):
            for members in self._by_tensor(grid[shard :: self.shard_ranks]):
                one = ring(self.layout, members, passes=2)
                shares.append({pair: share / self.shard_ranks for pair, share in one.items()})
        return pattern(shares)

    @staticmethod
    def _by_tensor(ranks: IntArray) -> list[IntArray]:
        return [ranks[:, tensor] for tensor in range(ranks.shape[1])]


class _Streams:
    """The two streams of each copy over some iterations."""

    def __init__(
        self, job: ShardedJob, rng: np.random.Generator, count: int, *, slow: FloatArray | None
    ) -> None:
        self.job, self.rng = job, rng
        self.shape = (count, job.groups)
        slow = np.ones((*self.shape, 1)) if slow is None else slow
        self.pace = job.group_speed * slow[:, :, 0] * np.exp(rng.normal(0, 0.01, self.shape))
        self.shards = bundle(job.shard_patterns())
        self.copies = bundle([job.copy_pattern()])
        self.traffic = Traffic()
        self.compute_free = rng.exponential(0.004, self.shape)
        self.wire_free = self.compute_free
        self.begun: list[FloatArray] = []

    def simulate(self, *, evaluating: bool) -> Traffic:
        """Return the traffic of the iterations."""
        job = self.job
        for micro in range(job.micros):
            for unit in range(job.units):
                self._compute(unit, job.forward_s[unit], gathered=True)
            if evaluating:
                continue
            for unit in reversed(range(job.units)):
                gathered = job.gathered_again and unit != job.units - 1
                self._compute(unit, job.forward_s[unit] * job.backward_ratio, gathered=gathered)
                if job.sums_each_micro or micro == job.micros - 1:
                    self._scatter(unit)
        done = np.maximum(self.compute_free, self.wire_free).max(axis=1)
        pause = self.job.optimizer_s * np.exp(self.rng.normal(0, 0.05, len(done)))
        self.traffic.seconds = done + (0.0 if evaluating else pause) + 0.002
        return self.traffic

    def _compute(self, unit: int, seconds: float, *, gathered: bool) -> None:
        """Compute a unit, once its parameters are there."""
        ready = self.compute_free
        if gathered:
            late = len(self.begun) >= self.job.ahead
            asked = self.begun[-self.job.ahead] if late else np.zeros(self.shape)
            ready = self._transfer(self.shards, unit, np.maximum(asked, self.wire_free))
        noise = np.exp(self.rng.normal(0, self.job.step_noise, self.shape))
        start = np.maximum(self.compute_free, ready)
        self.begun.append(start)
        self.compute_free = np.asarray(start + seconds * noise * self.pace)

    def _scatter(self, unit: int) -> None:
        """Sum a unit's gradients: over the shards, then over the copies."""
        at = np.maximum(self.compute_free, self.wire_free)
        done = self._transfer(self.shards, unit, at)
        if self.copies.peak:
            payload = float(self.job.unit_bytes[unit])
            start = done.max(axis=1, keepdims=True)
            took = 1e-3 + payload * self.copies.peak / self.job.bytes_per_s
            seconds = took * np.exp(self.rng.normal(0, 0.04, start.shape))
            self.traffic.add_transfer(
                "dp", self.copies, start=start, seconds=seconds, payload=payload
            )
            self.wire_free = np.broadcast_to(start + seconds, self.shape)

    def _transfer(self, ways: Bundle, unit: int, at: FloatArray) -> FloatArray:
        """Add an all-gather or reduce-scatter of a unit; return when it ends."""
        payload = float(self.job.unit_bytes[unit])
        took = 5e-4 + payload * ways.peak / self.job.bytes_per_s
        seconds = took * np.exp(self.rng.normal(0, 0.04, self.shape))
        if ways.peak:
            self.traffic.add_transfer("dp", ways, start=at, seconds=seconds, payload=payload)
        self.wire_free = np.asarray(at + seconds)
        return self.wire_free


def create_sharded_job(
    rng: np.random.Generator,
    layout: Layout,
    *,
    shard_ranks: int,
    seconds: tuple[float, float],
    link_gbps: float,
    gathering: str = "ring",
) -> ShardedJob:
    """Draw a fully sharded job whose iterations last between the given seconds.

    The ratio of communication to computation is drawn; around 1, bytes flow evenly.
    """
    units, micros = int(rng.integers(4, 33)), int(rng.choice([1, 1, 2, 4, 8]))
    while units * micros > 100:
        units = max(4, units // 2)
        micros = max(1, micros // 2)
    ratio = float(rng.choice([2.0, 3.0]))
    again, each = bool(rng.random() < 0.75), bool(rng.random() < 0.6)
    rate = link_gbps * 1e9 / 8 * rng.uniform(0.6, 0.92)
    target_s = float(np.exp(rng.uniform(*np.log(seconds))))
    overlap = float(rng.choice([rng.uniform(0.15, 0.6), rng.uniform(0.6, 1.15)]))
    work_s = target_s / max(1.0, overlap) * 0.95
    draft = ShardedJob(
        layout=layout,
        shard_ranks=shard_ranks,
        units=units,
        micros=micros,
        forward_s=np.full(units, work_s / (micros * units * (1 + ratio))),
        backward_ratio=ratio,
        unit_bytes=np.ones(units),
        gathered_again=again,
        sums_each_micro=each,
        ahead=int(rng.choice([1, 2])),
        bytes_per_s=rate,
        optimizer_s=float(min(0.06 * target_s, rng.uniform(0.02, 0.5))),
        gathering=gathering,
        step_noise=float(rng.uniform(0.005, 0.03)),
        group_speed=np.exp(rng.normal(0, 0.01, layout.degrees.dp // shard_ranks)),
    )
    sums = micros if each else 1
    shards, copies = max(p.peak for p in draft.shard_patterns()), draft.copy_pattern().peak
    moved = units * (shards * (micros * (2 if again else 1) + sums) + copies * sums)
    sizes = np.ones(units)
    sizes[[0, -1]] *= rng.uniform(0.5, 3.0)  # embedding and output layer
    unit_bytes = overlap * work_s * rate / moved * sizes / sizes.mean()
    return replace(draft, unit_bytes=unit_bytes)
