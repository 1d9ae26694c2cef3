"""When each operation of an iteration runs: 1F1B, interleaved and zero-bubble pipelines.

The order of operations on a stage is fixed; when they run follows from what they wait for.
All iterations and units (replicas in lock step) are timed at once, as arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from arena.workload.spec import JobSpec
from schemas.columns.arrays import Floats

FORWARD: Final = "F"
BACKWARD: Final = "B"
WEIGHTS: Final = "W"
# Backward passes cost twice a forward pass; zero-bubble schedules split them in two.
COST: Final = {FORWARD: 1.0, BACKWARD: 2.0, WEIGHTS: 1.0}


class Op(NamedTuple):
    """One operation: what, on which stage, of which model chunk and microbatch."""

    kind: str
    stage: int
    chunk: int
    batch: int


def order_of(spec: JobSpec, stage: int) -> list[Op]:
    """Return the operations of a stage in the order in which it runs them."""
    if spec.stage_chunks > 1:
        return _interleaved(spec, stage)
    m = spec.microbatches
    warm = min(spec.pp - stage, m)
    ops = [Op(FORWARD, stage, 0, b) for b in range(warm)]
    split = spec.schedule == "zero-bubble"
    pending: list[int] = []
    for b in range(m):
        ops.append(Op(BACKWARD, stage, 0, b))
        if split:
            pending.append(b)
            # Weight gradients wait while the pipeline has better to do: on stage s for s batches.
            if len(pending) > stage:
                ops.append(Op(WEIGHTS, stage, 0, pending.pop(0)))
        if warm + b < m:
            ops.append(Op(FORWARD, stage, 0, warm + b))
    return ops + [Op(WEIGHTS, stage, 0, b) for b in pending]


def _interleaved(spec: JobSpec, stage: int) -> list[Op]:
    """Return an interleaved order: batches in rounds of pp, chunk after chunk in each round."""
    pp, v, total = spec.pp, spec.chunks, spec.microbatches * spec.chunks
    warm = min(total, 2 * (pp - stage - 1) + (v - 1) * pp)

    def at(k: int, kind: str) -> Op:
        turn, rest = divmod(k, pp * v)
        chunk = rest // pp
        return Op(kind, stage, chunk if kind == FORWARD else v - 1 - chunk, turn * pp + rest % pp)

    ops = [at(k, FORWARD) for k in range(warm)]
    for k in range(total - warm):
        ops += [at(warm + k, FORWARD), at(k, BACKWARD)]
    return ops + [at(k, BACKWARD) for k in range(total - warm, total)]


def needs(spec: JobSpec, op: Op) -> Op | None:
    """Return the operation whose result must arrive first, None where there is none."""
    last, v = spec.pp - 1, spec.stage_chunks
    kind, stage, chunk, batch = op
    if kind == WEIGHTS:
        return Op(BACKWARD, stage, chunk, batch)
    if kind == FORWARD:
        if stage:
            return Op(FORWARD, stage - 1, chunk, batch)
        return Op(FORWARD, last, chunk - 1, batch) if chunk else None
    if stage < last:
        return Op(BACKWARD, stage + 1, chunk, batch)
    if chunk < v - 1:
        return Op(BACKWARD, 0, chunk + 1, batch)
    return Op(FORWARD, stage, chunk, batch)


@dataclass(frozen=True)
class Timing:
    """Begin and end of each operation from the iteration's begin, each (iterations, units), s."""

    begin_s: dict[Op, Floats]
    end_s: dict[Op, Floats]

    def last_s(self, stage: int) -> Floats:
        """Return when a stage has run all its operations, (iterations, units)."""
        ends = np.array([end for op, end in self.end_s.items() if op.stage == stage])
        out: Floats = ends.max(axis=0)
        return out


def run(
    spec: JobSpec,
    cost_s: Callable[[Op], Floats],
    move_s: float,
    *,
    forward_only: bool = False,
) -> Timing:
    """Time an iteration.

    Parameters
    ----------
    cost_s : durations of an operation, (iterations, units)
    move_s : how long an activation travels between stages
    forward_only : an evaluation: no backward passes
    """
    queues = [order_of(spec, s) for s in range(spec.pp)]
    if forward_only:
        queues = [[op for op in q if op.kind == FORWARD] for q in queues]
    begin: dict[Op, Floats] = {}
    end: dict[Op, Floats] = {}
    clock: list[Floats] = [np.zeros(1)] * spec.pp
    at = [0] * spec.pp
    moved = True
    while moved:
        moved = False
        for stage, queue in enumerate(queues):
            while at[stage] < len(queue):
                op = queue[at[stage]]
                first = needs(spec, op)
                if first is not None and first not in end:
                    break
                ready = clock[stage]
                if first is not None:
                    ready = np.maximum(ready, end[first] + (move_s if first.stage != stage else 0))
                cost = cost_s(op)
                begin[op] = np.broadcast_to(ready, cost.shape)
                end[op] = clock[stage] = begin[op] + cost
                at[stage] += 1
                moved = True
    stuck = [q[i] for q, i in zip(queues, at, strict=True) if i < len(q)]
    if stuck:
        raise AssertionError(f"the schedule waits for itself at {stuck[0]}")
    return Timing(begin, end)
