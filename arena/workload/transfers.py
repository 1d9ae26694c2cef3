"""Everything that a job sends: one row for each transfer between two lanes."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from arena.workload.collectives import Edge, all_to_all, ring, tree
from arena.workload.layout import Layout
from arena.workload.schedule import BACKWARD, COST, FORWARD, WEIGHTS, Op, Timing, run
from arena.workload.spec import JobSpec
from schemas.columns.arrays import Floats, Int64s

# Of an iteration: what computing takes; the rest is gradients, optimizer and pause.
COMPUTE_SHARE: Final = 0.7
OPTIMIZER_SHARE: Final = 0.06
# Parts in which a sharded model's parameters and gradients travel beside the computing.
SHARD_PARTS: Final = 4
OUTSIDE: Final = -1


@dataclass
class Transfers:
    """Rows of transfers; `kinds` holds the kinds of traffic between two lanes.

    Every NIC of a lane moves `size` bytes; OUTSIDE as a lane is a host that is no part of the job.
    """

    src: list[Int64s] = field(default_factory=list)
    dst: list[Int64s] = field(default_factory=list)
    begin_s: list[Floats] = field(default_factory=list)
    end_s: list[Floats] = field(default_factory=list)
    size: list[Int64s] = field(default_factory=list)
    kinds: dict[tuple[int, int], set[str]] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        edge: tuple[int, int],
        *,
        begin_s: Floats,
        end_s: Floats,
        size: Int64s | int,
    ) -> None:
        """Add one transfer per iteration between two lanes; sizes in bytes per NIC."""
        src, dst = edge
        n = begin_s.size
        self.src.append(np.full(n, src, np.int64))
        self.dst.append(np.full(n, dst, np.int64))
        self.begin_s.append(begin_s)
        self.end_s.append(np.maximum(end_s, begin_s + 1e-4))
        self.size.append(np.broadcast_to(np.asarray(size, np.int64), (n,)))
        if OUTSIDE not in {src, dst}:
            self.kinds.setdefault((min(src, dst), max(src, dst)), set()).add(kind)

    def rows(self) -> tuple[Int64s, Int64s, Floats, Floats, Int64s]:
        """Return src, dst, begin, end and size of all rows."""
        if not self.src:
            none = np.zeros(0, np.int64)
            return none, none, np.zeros(0), np.zeros(0), none
        return (
            np.concatenate(self.src),
            np.concatenate(self.dst),
            np.concatenate(self.begin_s),
            np.concatenate(self.end_s),
            np.concatenate(self.size),
        )


def transfers_of(spec: JobSpec, until_s: float, rng: np.random.Generator) -> Transfers:
    """Return what a job sends from its begin until a time, whole iterations only."""
    return _Run(spec, until_s, rng).transfers()


class _Run:
    """One job's iterations, timed and turned into transfers."""

    def __init__(self, spec: JobSpec, until_s: float, rng: np.random.Generator) -> None:
        self.spec, self.rng = spec, rng
        self.layout = Layout(spec)
        self.units = spec.dp // spec.ep
        stop = until_s if spec.ends_s is None else min(until_s, spec.ends_s)
        self.n = max(1, int((stop - spec.begins_s) / (0.8 * spec.period_s)) + 2)
        self.out = Transfers()
        chunks = spec.stage_chunks
        slots = (spec.microbatches + (spec.pp - 1) / chunks) * chunks * 3
        self.unit_s = COMPUTE_SHARE * spec.period_s / slots
        self.stop_s = stop
        slow = np.ones((spec.pp, self.units))
        if spec.straggler:
            slow[rng.integers(spec.pp), rng.integers(self.units)] += spec.straggler
        self.slow = slow * (1 + 0.01 * rng.standard_normal((spec.pp, 1)))
        self.wander = 1 + spec.wander * rng.standard_normal((self.n, 1))
        self.pause = np.zeros(self.n)
        index = np.arange(self.n)
        self.saves = (
            (index % spec.checkpoint_every == spec.checkpoint_every - 1)
            if spec.checkpoint_every
            else np.zeros(self.n, bool)
        )
        self.evaluates = (
            (index % spec.evaluation_every == spec.evaluation_every - 1)
            if spec.evaluation_every
            else np.zeros(self.n, bool)
        )

    def _cost(self, op: Op) -> Floats:
        shape = (self.n, self.units)
        cost = COST[op.kind] * self.unit_s
        if op.kind == BACKWARD and self.spec.schedule == "zero-bubble":
            cost -= self.unit_s
        noise = 1 + self.spec.jitter * self.rng.standard_normal(shape)
        out: Floats = cost * self.slow[op.stage] * np.maximum(noise, 0.3) * self.wander
        return out

    def _wire_s(self, size: float) -> float:
        return size / self.spec.rate_bytes_per_s

    def transfers(self) -> Transfers:
        s = self.spec
        timing = run(s, self._cost, self._wire_s(s.pipeline_bytes))
        ends = np.array([timing.last_s(p).max(axis=1) for p in range(s.pp)])
        sums = self._gradient_s(timing, ends)
        length = (
            np.max([e for _, e in sums], axis=0) + OPTIMIZER_SHARE * s.period_s * self.wander[:, 0]
        )
        length += s.checkpoint_s * self.saves + s.evaluation_s * self.evaluates
        starts = s.begins_s + np.concatenate([[0.0], np.cumsum(length)[:-1]])
        self.begins = starts
        # An iteration is whole or not at all: bytes sent are bytes received.
        self.kept = starts + length <= self.stop_s + s.period_s
        self._pipeline(timing)
        self._beside(timing)
        self._gradients(sums)
        self._outside(length)
        return self.out

    def _gradient_s(self, timing: Timing, ends: Floats) -> list[tuple[Floats, Floats]]:
        s = self.spec
        spans = []
        for stage in range(s.pp):
            took = self._wire_s(s.gradient_bytes) * (1 + 0.02 * self.rng.standard_normal(self.n))
            if s.dp * s.cp == 1 or s.sharding == "fsdp":
                took = np.zeros(self.n)
            begin = ends[stage]
            if s.overlap:
                last = max(
                    (b.max(axis=1) for op, b in timing.begin_s.items()
                     if op.stage == stage and op.kind in (BACKWARD, WEIGHTS)),
                    key=lambda b: float(b.mean()),
                )  # fmt: skip
                begin = begin - s.overlap * (begin - last)
            spans.append((begin, np.maximum(begin + took, ends[stage])))
        return spans

    def _put(
        self, kind: str, edge: tuple[int, int], begin: Floats, end: Floats, size: Int64s | int
    ) -> None:
        k = self.kept
        whole = np.broadcast_to(np.asarray(size, np.int64), (self.n,))
        self.out.add(
            kind,
            edge,
            begin_s=(self.begins + begin)[k],
            end_s=(self.begins + end)[k],
            size=whole[k],
        )

    def _edges(
        self, kind: str, edges: list[Edge], begin: Floats, end: Floats, size: Int64s
    ) -> None:
        for a, b, share in edges:
            self._put(kind, (a, b), begin, end, (size * share).astype(np.int64))

    def _pipeline(self, timing: Timing) -> None:
        s, v = self.spec, self.spec.stage_chunks
        wire = self._wire_s(s.pipeline_bytes)
        for op, end in timing.end_s.items():
            kind, stage, chunk, _ = op
            if kind == FORWARD:
                to = stage + 1 if stage < s.pp - 1 else (0 if chunk < v - 1 else None)
            elif kind == BACKWARD:
                to = stage - 1 if stage else (s.pp - 1 if chunk else None)
            else:
                to = None
            if to is None or to == stage:
                continue
            for d in range(s.dp):
                done = end[:, d // s.ep]
                for c in range(s.cp):
                    lanes = self.layout.lane_of
                    way = self.layout.across(int(lanes[stage, d, c]), int(lanes[to, d, c]))
                    if way is not None:
                        self._put("pp", way, done, done + wire, s.pipeline_bytes)

    def _beside(self, timing: Timing) -> None:
        """Context rings and all-to-alls, which run while a stage computes."""
        s = self.spec
        for kind, groups, size in (
            ("cp", self.layout.context_groups(), s.cp_bytes),
            ("ep", self.layout.expert_groups(), s.ep_bytes),
        ):
            for stage, unit, lanes in groups:
                edges = ring(self.layout, lanes) if kind == "cp" else all_to_all(self.layout, lanes)
                busy = self._wire_s(size)
                for op, begin in timing.begin_s.items():
                    if op.stage != stage or op.kind == WEIGHTS:
                        continue
                    at, until = begin[:, unit], timing.end_s[op][:, unit]
                    end = np.minimum(at + busy, until)
                    for a, b, share in edges:
                        total = np.full(self.n, size * share * (2 if op.kind == BACKWARD else 1))
                        if kind == "ep":
                            # Routing decides how many tokens go where, each time anew.
                            total *= np.exp(0.2 * self.rng.standard_normal(self.n))
                        self._put(kind, (a, b), at, end, total.astype(np.int64))

    def _gradients(self, sums: list[tuple[Floats, Floats]]) -> None:
        s = self.spec
        if s.dp * s.cp == 1:
            return
        for stage, members in self.layout.gradient_groups():
            lanes = members
            if s.shuffled_ring:
                hosts = self.rng.permutation(max(lanes) // s.slots + 1)
                lanes = sorted(lanes, key=lambda x: int(hosts[x // s.slots]))
            edges = (
                ring(self.layout, lanes)
                if s.collective == "ring" or s.sharding != "none"
                else tree(self.layout, lanes, double=s.collective == "double-tree")
            )
            begin, end = sums[stage]
            size = np.full(self.n, s.gradient_bytes)
            if s.sharding == "fsdp":
                self._sharded(edges, end, size)
            elif s.sharding == "zero1":
                self._edges("dp", edges, begin, end, size // 2)
                gather = self._wire_s(s.gradient_bytes / 2)
                last = np.max([e for _, e in sums], axis=0)
                self._edges("dp", edges, last, last + gather, size // 2)
            else:
                self._edges("dp", edges, begin, end, size)

    def _sharded(self, edges: list[Edge], end: Floats, size: Int64s) -> None:
        """Fully sharded: parameters gathered twice, gradients scattered once, all along."""
        part = size // SHARD_PARTS
        for i in range(3 * SHARD_PARTS):
            at = end * (i / (3 * SHARD_PARTS))
            self._edges("dp", edges, at, at + 0.7 * end / (3 * SHARD_PARTS), part)

    def _outside(self, length: Floats) -> None:
        """Load data, whenever, into every lane; send checkpoints out of it."""
        s = self.spec
        if s.storage_bytes_per_s <= 0:
            return
        for lane in range(self.layout.lanes):
            at = np.sort(self.rng.uniform(0, length))
            size = (self.rng.exponential(1.0, self.n) * s.storage_bytes_per_s * length).astype(
                np.int64
            )
            end = at + np.maximum(self._wire_s(1.0) * size * 4, 0.05)
            self._put("storage", (OUTSIDE, lane), at, end, size)
            if self.saves.any():
                saved = np.where(self.saves, int(s.storage_bytes_per_s * s.checkpoint_s * 20), 0)
                self._put("storage", (lane, OUTSIDE), length - s.checkpoint_s * 0.95,
                          length - s.checkpoint_s * 0.05, saved)  # fmt: skip
