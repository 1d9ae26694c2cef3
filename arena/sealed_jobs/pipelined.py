"""Iterations of a job with pipeline, replicas, and expert or context groups.

Steps of computation follow the schedule. Activations and their gradients go between stages when a
step ends. Tokens and keys go around inside steps. Gradients are summed when the last microbatch
has been through a part, or when the stage has ended. All replicas start an iteration together,
since each step of the optimizer waits for the norm of all gradients.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from arena.sealed_jobs.collectives import (
    Pattern,
    all_to_all,
    gather,
    pass_around,
    pattern,
    ring,
    send,
    sum_gradients,
)
from arena.sealed_jobs.fleet import FloatArray, IntArray, Layout
from arena.sealed_jobs.schedules import FORWARD, WEIGHTS, Schedule, Step, Times, run
from arena.sealed_jobs.traffic import Bundle, Traffic, bundle
from arena.sealed_jobs.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a job communicates and how evenly it computes.

    Attributes
    ----------
    algorithm
        Of gradient sums: `ring`, `tree`, `hierarchical`, `switch`.
    gathering
        Of all-gather and reduce-scatter: `ring`, `power_steps`.
    sharded_optimizer
        Gradients are reduce-scattered and parameters gathered (ZeRO-1) instead of all-reduced.
    overlapped
        Gradients of a part are summed as soon as its last backward goes on.
    buckets
        Sums for each part.
    pxn
        Messages between stages change rails inside the sender's host.
    exchange_way
        Of all-to-all: `direct`, `pxn`, `rail`.
    context_way
        Of keys and values: `ring`, or `all_to_all` over attention heads.
    hidden
        Share of the exchanges inside a step that computation hides.
    mirrored
        Devices d and pp - 1 - d hold the same parameters (DualPipe).
    step_noise, stage_noise, unit_noise, iteration_noise
        Standard deviations of the logarithm of durations.
    micro_noise
        The same of microbatches, whose sequences differ in length; all stages see it.
    popularity
        The same of the tokens that each member of an expert group receives.
    """

    algorithm: str = "ring"
    gathering: str = "ring"
    sharded_optimizer: bool = False
    overlapped: bool = False
    buckets: int = 1
    pxn: bool = False
    exchange_way: str = "pxn"
    context_way: str = "ring"
    hidden: float = 0.3
    mirrored: bool = False
    step_noise: float = 0.02
    stage_noise: float = 0.02
    unit_noise: float = 0.01
    iteration_noise: float = 0.01
    micro_noise: float = 0.0
    popularity: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinedJob:
    """A job whose iterations can be simulated.

    Attributes
    ----------
    stage_speed, unit_speed
        Lasting factors of durations; shapes (stages,) and (units,).
    popularity
        How many tokens each member of an expert group receives; shape (ep,).
    """

    layout: Layout
    schedule: Schedule
    workload: Workload
    habits: Habits
    stage_speed: FloatArray
    unit_speed: FloatArray
    popularity: FloatArray

    @property
    def units(self) -> int:
        """Number of sets of replicas that compute in lockstep."""
        return self.layout.degrees.dp // self.layout.degrees.ep

    @property
    def slow_shape(self) -> tuple[int, int]:
        """Number of units and of stages."""
        return self.units, self.layout.degrees.pp

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
            Factors of the durations of stragglers; shape (count, units, stages).
        evaluating
            Forward passes only, without gradients.
        """
        return _Iterations(self, rng, count, slow=slow, evaluating=evaluating).simulate()


def create_job(
    rng: np.random.Generator,
    layout: Layout,
    schedule: Schedule,
    workload: Workload,
    habits: Habits,
) -> PipelinedJob:
    """Draw what lasts as long as the job: speeds of stages and units, popular experts."""
    degrees = layout.degrees
    return PipelinedJob(
        layout=layout,
        schedule=schedule,
        workload=workload,
        habits=habits,
        stage_speed=np.exp(rng.normal(0, habits.stage_noise, degrees.pp)),
        unit_speed=np.exp(rng.normal(0, habits.unit_noise, degrees.dp // degrees.ep)),
        popularity=np.exp(rng.normal(0, habits.popularity, degrees.ep)),
    )


class _Iterations:
    """Simulation of some iterations of a job."""

    def __init__(
        self,
        job: PipelinedJob,
        rng: np.random.Generator,
        count: int,
        *,
        slow: FloatArray | None,
        evaluating: bool,
    ) -> None:
        self.job, self.rng, self.count = job, rng, count
        self.layout, self.work, self.habits = job.layout, job.workload, job.habits
        self.degrees = job.layout.degrees
        self.shape = (count, job.units)
        self.schedule = job.schedule.forward_only() if evaluating else job.schedule
        self.evaluating = evaluating
        self.slow = np.ones((*self.shape, self.degrees.pp)) if slow is None else slow
        self.traffic = Traffic()
        self.tokens = [self._token_ways(s) for s in range(self.degrees.pp)]
        self.keys = [self._key_ways(s) for s in range(self.degrees.pp)]

    def simulate(self) -> Traffic:
        """Return the traffic of the iterations."""
        noise = np.exp(self.rng.normal(0, self.habits.iteration_noise, self.shape))
        self.pace = self.job.unit_speed * noise
        self.lengths: dict[tuple[int, int], FloatArray] = {}
        begin = self.rng.exponential(0.004, self.shape)
        if self.habits.sharded_optimizer and self.habits.overlapped and not self.evaluating:
            begin = begin + self._gather_parameters(np.zeros(self.count))[:, None] * 0.3
        hops = {pair: self._hop(*pair) for pair in self._neighbours()}
        peak = max((hop.peak for hop in hops.values()), default=0.0)
        hop_s = np.full(self.shape, 2e-4 + self.work.hop_bytes * peak / self.work.bytes_per_s)
        hop_s = hop_s * np.exp(self.rng.normal(0, 0.05, self.shape))
        times = run(self.schedule, seconds=self._seconds, hop_s=hop_s, begin=begin)
        self._send_between_stages(times, hops, hop_s)
        self._exchange_inside_steps(times)
        ends = np.stack([times.end[order[-1]] for order in self.schedule.orders if order])
        done = ends.max(axis=(0, 2))
        if self.evaluating:
            self.traffic.seconds = done + 0.01
            return self.traffic
        if self.degrees.dp * self.degrees.cp > 1 or self.habits.mirrored:
            done = np.maximum(done, self._sum_gradients(times))
        done = self._sum_embeddings(done)
        done = done + self.work.optimizer_s * np.exp(self.rng.normal(0, 0.05, self.count))
        if self.habits.sharded_optimizer and not self.habits.overlapped:
            done = self._gather_parameters(done)
        self.traffic.seconds = done + self.rng.exponential(0.003, self.count)
        return self.traffic

    def _stage(self, step: Step) -> int:
        return self.schedule.chains[step.chain][step.part]

    def _seconds(self, step: Step) -> FloatArray:
        """Return how long a step takes, exchanges inside included."""
        stage = self._stage(step)
        base = float(self.work.forward_s[step.part])
        if step.kind not in {FORWARD, WEIGHTS}:
            base *= self.work.backward_ratio - self.schedule.split
        if step.kind != WEIGHTS:
            base += (1 - self.habits.hidden) * self._inside_s(stage)
        noise = np.exp(self.rng.normal(0, self.habits.step_noise, self.shape))
        pace = self.pace * self.job.stage_speed[stage] * self.slow[:, :, stage]
        return np.asarray(base * noise * pace * self._length(step))

    def _length(self, step: Step) -> FloatArray:
        """Return the length of a microbatch's sequences relative to the mean."""
        key = step.chain, step.micro
        if key not in self.lengths:
            spread = self.rng.normal(0, self.habits.micro_noise, self.shape)
            self.lengths[key] = np.exp(spread - self.habits.micro_noise**2 / 2)
        return self.lengths[key]

    def _inside_s(self, stage: int) -> float:
        """Return how long the exchanges inside a step of a stage take."""
        tokens = self.tokens[stage].peak * self.work.token_bytes
        keys = self.keys[stage].peak * self.work.sequence_bytes
        return (tokens + keys) / self.work.bytes_per_s

    def _replicas(self, unit: int) -> slice:
        return slice(unit * self.degrees.ep, (unit + 1) * self.degrees.ep)

    def _neighbours(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of stages between which activations or their gradients go."""
        seen = set()
        for chain in self.schedule.chains:
            for here, there in pairwise(chain):
                for pair in ((here, there), (there, here)):
                    if here != there and pair not in seen:
                        seen.add(pair)
                        yield pair

    def _hop(self, here: int, there: int) -> Bundle:
        """Return for each unit what goes from one stage to another."""
        grid, pxn = self.layout.grid, self.habits.pxn
        units = [self._replicas(unit) for unit in range(self.job.units)]
        return bundle(
            [pattern([send(self.layout, grid[here, u], grid[there, u], pxn=pxn)]) for u in units]
        )

    def _token_ways(self, stage: int) -> Bundle:
        if self.degrees.ep == 1:
            return bundle([pattern(())])
        groups = self.layout.expert_groups(stage)
        each = len(groups) // self.job.units
        patterns = [
            pattern(
                all_to_all(
                    self.layout, g, way=self.habits.exchange_way, popularity=self.job.popularity
                )
                for g in groups[unit * each : (unit + 1) * each]
            )
            for unit in range(self.job.units)
        ]
        return bundle(patterns, bursts=self.work.segments)

    def _key_ways(self, stage: int) -> Bundle:
        if self.degrees.cp == 1:
            return bundle([pattern(())])
        everyone = range(self.degrees.dp)
        patterns = [
            pattern(
                (
                    all_to_all(self.layout, group, way="direct")
                    if self.habits.context_way == "all_to_all"
                    else pass_around(self.layout, group)
                )
                for replica in everyone[self._replicas(unit)]
                for group in self.layout.context_groups(stage, replica)
            )
            for unit in range(self.job.units)
        ]
        return bundle(patterns, bursts=self.work.segments)

    def _send_between_stages(
        self, times: Times, hops: dict[tuple[int, int], Bundle], hop_s: FloatArray
    ) -> None:
        for step, end in times.end.items():
            chain = self.schedule.chains[step.chain]
            if step.kind == WEIGHTS:
                continue
            after = step.part + 1 if step.kind == FORWARD else step.part - 1
            if not 0 <= after < len(chain) or chain[after] == chain[step.part]:
                continue
            self.traffic.add_transfer(
                "pp",
                hops[chain[step.part], chain[after]],
                start=end,
                seconds=hop_s,
                payload=self.work.hop_bytes,
            )

    def _exchange_inside_steps(self, times: Times) -> None:
        """Add all-to-all exchanges of tokens, and keys and values on their way around."""
        kinds = (
            ("ep", self.tokens, self.work.token_bytes, 0.12),
            ("cp", self.keys, self.work.sequence_bytes, 0.0),
        )
        count = self.work.segments
        turns = np.repeat(np.arange(count), self.job.units)
        for kind, ways, payload, spread in kinds:
            if not payload:
                continue
            for step, start in times.start.items():
                if step.kind == WEIGHTS:
                    continue
                there = ways[self._stage(step)]
                piece_s = (times.end[step] - start) / count
                burst_s = payload * there.peak / self.work.bytes_per_s / count
                burst = np.minimum(np.maximum(burst_s, 0.3 * piece_s), 0.95 * piece_s)
                first = np.tile(start + 0.5 * (piece_s - burst), count)
                load = np.exp(self.rng.normal(0, spread, first.shape)) if spread else 1.0
                self.traffic.add_transfer(
                    kind,
                    there,
                    start=first + np.tile(piece_s, count) * turns,
                    seconds=np.tile(burst, count),
                    payload=load * payload / count,
                )

    def _held_by(self, of_stage: Callable[[int], list[IntArray]], stage: int) -> list[IntArray]:
        """Return the groups of a stage, joined with those of its mirror if there is one."""
        groups = of_stage(stage)
        if not self.habits.mirrored:
            return groups
        mirror = of_stage(self.degrees.pp - 1 - stage)
        return [np.concatenate(pair) for pair in zip(groups, mirror, strict=True)]

    def _held(self, sizes: FloatArray, stage: int) -> float:
        """Return bytes of what a device holds: of a mirrored pipeline, two parts."""
        mirror = self.degrees.pp - 1 - stage
        return float(sizes[stage] + (sizes[mirror] if self.habits.mirrored else 0.0))

    def _sum(self, groups: list[IntArray]) -> Pattern:
        if self.habits.sharded_optimizer:
            return gather(self.layout, groups, self.habits.gathering)
        return sum_gradients(self.layout, groups, self.habits.algorithm)

    def _sum_gradients(self, times: Times) -> FloatArray:
        """Sum the gradients of all stages; return when the last sum has ended."""
        done = np.zeros(self.count)
        stages = self.degrees.pp // 2 if self.habits.mirrored else self.degrees.pp
        split = self.degrees.ep > 1 and (
            self.job.units * self.degrees.cp > 1 or self.habits.mirrored
        )
        for stage in range(stages):
            sums = self._sum(self._held_by(self.layout.gradient_groups, stage))
            ready = self._ready(times, stage)
            free = np.zeros(self.count)
            payload = self._held(self.work.gradient_bytes, stage) / len(ready)
            for at in ready:
                free = self._collective("dp", sums, np.maximum(free, at), payload)
            if split:
                experts = self._sum(self._held_by(self.layout.expert_gradient_groups, stage))
                free = self._collective("dp", experts, free, self.work.expert_gradient_bytes)
            done = np.maximum(done, free)
        return done

    def _ready(self, times: Times, stage: int) -> list[FloatArray]:
        """Return when each bucket of a stage's gradients can be summed by all replicas."""
        devices = [stage, self.degrees.pp - 1 - stage] if self.habits.mirrored else [stage]
        buckets = self.habits.buckets
        if not self.habits.overlapped:
            ends = [times.end[self.schedule.orders[device][-1]] for device in devices]
            return [np.stack(ends).max(axis=(0, 2))] * buckets
        ready = []
        for device in devices:
            last = {(s.chain, s.part): s for s in self.schedule.orders[device] if s.kind != FORWARD}
            for step in last.values():
                start = times.start[step].max(axis=1)
                span = times.end[step].max(axis=1) - start
                ready += [start + span * k / buckets for k in range(1, buckets + 1)]
        return sorted(ready, key=lambda at: float(at.mean()))

    def _collective(self, kind: str, sums: Pattern, at: FloatArray, payload: float) -> FloatArray:
        """Add a collective that all units start together; return when it ends."""
        seconds = 1e-3 + payload * sums.peak / self.work.bytes_per_s
        took = seconds * np.exp(self.rng.normal(0, 0.04, self.count))
        if sums.peak:
            self.traffic.add_transfer(
                kind, bundle([sums]), start=at[:, None], seconds=took[:, None], payload=payload
            )
        return np.asarray(at + took)

    def _gather_parameters(self, at: FloatArray) -> FloatArray:
        """Gather the parameters of all stages; return when the last has ended."""
        done = at
        stages = self.degrees.pp // 2 if self.habits.mirrored else self.degrees.pp
        for stage in range(stages):
            groups = self._held_by(self.layout.gradient_groups, stage)
            sums = gather(self.layout, groups, self.habits.gathering)
            payload = self._held(self.work.parameter_bytes, stage)
            done = np.maximum(done, self._collective("dp", sums, at, payload))
        return done

    def _sum_embeddings(self, at: FloatArray) -> FloatArray:
        """Sum the gradients of an embedding that first and last stage share."""
        if not self.work.embedding_bytes or self.habits.mirrored or self.degrees.pp == 1:
            return at
        chain = self.schedule.chains[0]
        ends = self.layout.grid[[chain[0], chain[-1]]]
        if chain[0] == chain[-1]:
            return at
        groups = ends.reshape(2, -1).T
        sums = pattern(ring(self.layout, group, passes=2) for group in groups)
        return self._collective("pp", sums, at, self.work.embedding_bytes)
