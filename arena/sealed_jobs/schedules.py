"""Pipeline schedules: which device computes what in which order, and when.

A *chain* is the path of a microbatch through the parts of the model, as the devices that hold
them. Plain 1F1B has one chain with a part for each device; interleaved schedules go around the
devices several times; ZB-V goes forth and back; DualPipe has two chains in opposite directions.

Sources: Narayanan et al. 2021 (1F1B, interleaved), Qi et al. 2023 and 2024 (zero bubble, ZB-V),
DeepSeek-V3 (DualPipe), from their descriptions.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from arena.sealed_jobs.fleet import FloatArray

FORWARD: Final = "F"
BACKWARD: Final = "B"
WEIGHTS: Final = "W"

Chains = tuple[tuple[int, ...], ...]


class Step(NamedTuple):
    """One computation: forward, backward or weight gradient of a microbatch in a part."""

    kind: str
    chain: int
    part: int
    micro: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Order of the steps on each device.

    Attributes
    ----------
    chains
        Device of each part, for each chain.
    orders
        Steps of each device in the order in which it takes them.
    split
        Whether weight gradients are steps of their own.
    """

    chains: Chains
    orders: tuple[tuple[Step, ...], ...]
    split: bool = False

    def forward_only(self) -> "Schedule":
        """Return the schedule of an evaluation."""
        orders = tuple(tuple(s for s in order if s.kind == FORWARD) for order in self.orders)
        return Schedule(chains=self.chains, orders=orders, split=self.split)


def all_forward_first(stages: int, micros: int) -> Schedule:
    """GPipe: all forwards, then all backwards."""
    orders = tuple(
        (
            *(Step(FORWARD, 0, stage, micro) for micro in range(micros)),
            *(Step(BACKWARD, 0, stage, micro) for micro in range(micros)),
        )
        for stage in range(stages)
    )
    return Schedule(chains=(tuple(range(stages)),), orders=orders)


def one_forward_one_backward(stages: int, micros: int) -> Schedule:
    """1F1B: as many forwards as there are stages behind, then in turn."""
    orders = []
    for stage in range(stages):
        forwards = [Step(FORWARD, 0, stage, micro) for micro in range(micros)]
        backwards = [Step(BACKWARD, 0, stage, micro) for micro in range(micros)]
        orders.append(_in_turn(forwards, backwards, min(stages - stage - 1, micros)))
    return Schedule(chains=(tuple(range(stages)),), orders=tuple(orders))


def interleaved(stages: int, micros: int, rounds: int) -> Schedule:
    """Interleaved 1F1B: `rounds` parts of the model on each device; micros % stages = 0."""
    if micros % stages:
        raise ValueError(f"{micros} microbatches are no multiple of {stages} stages")
    orders = []
    for stage in range(stages):
        forwards, backwards = [], []
        for first in range(0, micros, stages):
            for turn in range(rounds):
                for micro in range(first, first + stages):
                    forwards.append(Step(FORWARD, 0, turn * stages + stage, micro))
                    back = rounds - 1 - turn
                    backwards.append(Step(BACKWARD, 0, back * stages + stage, micro))
        lead = (stages - stage - 1) * 2 + (rounds - 1) * stages
        orders.append(_in_turn(forwards, backwards, min(lead, len(forwards))))
    chain = tuple(turn for _ in range(rounds) for turn in range(stages))
    return Schedule(chains=(chain,), orders=tuple(orders))


def _in_turn(forwards: list[Step], backwards: list[Step], lead: int) -> tuple[Step, ...]:
    """Return `lead` forwards, then one of each in turn, then the remaining backwards."""
    order = forwards[:lead]
    for forward, backward in zip(forwards[lead:], backwards, strict=False):
        order += [forward, backward]
    return (*order, *backwards[len(forwards) - lead :])


def zero_bubble(stages: int, micros: int, in_flight: int) -> Schedule:
    """ZB-H1 and ZB-H2: weight gradients fill the bubbles."""
    return _greedy((tuple(range(stages)),), (micros,), in_flight, split=True)


def zero_bubble_v(stages: int, micros: int) -> Schedule:
    """ZB-V: each microbatch goes through all devices and back."""
    chain = (*range(stages), *reversed(range(stages)))
    return _greedy((chain,), (micros,), stages, split=True)


def dual_pipe(stages: int, micros: int) -> Schedule:
    """DualPipe: half of the microbatches enter at either end."""
    there = tuple(range(stages))
    first = micros // 2
    limit = stages // 2 + 1
    return _greedy((there, there[::-1]), (first, micros - first), limit, split=True)


def _greedy(chains: Chains, micros: Sequence[int], in_flight: int, *, split: bool) -> Schedule:
    """Let each device take what can start first: backward before forward before weights."""
    devices = max(device for chain in chains for device in chain) + 1
    ready: list[dict[Step, float]] = [{} for _ in range(devices)]
    orders: list[list[Step]] = [[] for _ in range(devices)]
    free = [0.0] * devices
    open_micros = [0] * len(chains)
    rank = {BACKWARD: 0, FORWARD: 1, WEIGHTS: 2}
    for chain, count in enumerate(micros):
        for micro in range(count):
            ready[chains[chain][0]][Step(FORWARD, chain, 0, micro)] = 0.0

    def may_start(step: Step) -> bool:
        entering = step.kind == FORWARD and step.part == 0
        return not entering or open_micros[step.chain] < in_flight

    def choice(device: int) -> tuple[float, int, int, int, Step] | None:
        steps = {s: max(at, free[device]) for s, at in ready[device].items() if may_start(s)}
        if not steps:
            return None
        start = min(steps.values())
        now = [s for s, at in steps.items() if at <= start + 1e-9]
        step = min(now, key=lambda s: (rank[s.kind], -s.part, s.micro, s.chain))
        return start, rank[step.kind], step.micro, device, step

    choices = [choice(device) for device in range(devices)]
    while options := [c for c in choices if c is not None]:
        start, _, _, device, step = min(options)
        touched = {device, *(chain[0] for chain in chains)}
        path = chains[step.chain]
        last = step.part == len(path) - 1
        del ready[device][step]
        orders[device].append(step)
        free[device] = done = start + 1.0
        if step.kind == FORWARD:
            open_micros[step.chain] += step.part == 0
            after = step._replace(kind=BACKWARD) if last else step._replace(part=step.part + 1)
            ready[path[after.part]][after] = done + 0.05
            touched.add(path[after.part])
        elif step.kind == BACKWARD:
            open_micros[step.chain] -= step.part == 0
            if split:
                ready[device][step._replace(kind=WEIGHTS)] = done
            if step.part:
                after = step._replace(part=step.part - 1)
                ready[path[after.part]][after] = done + 0.05
                touched.add(path[after.part])
        for each in touched:
            choices[each] = choice(each)
    return Schedule(chains=chains, orders=tuple(tuple(o) for o in orders), split=split)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Start and end of each step in seconds since the start of the iteration.

    Each value has the shape (iterations, units): a unit is a set of replicas in lockstep.
    """

    start: Mapping[Step, FloatArray]
    end: Mapping[Step, FloatArray]


def run(
    schedule: Schedule,
    *,
    seconds: Callable[[Step], FloatArray],
    hop_s: FloatArray,
    begin: FloatArray,
) -> Times:
    """Compute when each step starts and ends.

    Parameters
    ----------
    seconds
        How long a step takes, shape (iterations, units).
    hop_s
        How long activations or gradients travel to another device, same shape.
    begin
        When the units start, same shape.

    Raises
    ------
    ValueError
        If the orders of the devices wait for each other for ever.
    """
    start: dict[Step, FloatArray] = {}
    end: dict[Step, FloatArray] = {}
    free: dict[int, FloatArray] = defaultdict(lambda: begin)
    places = [0] * len(schedule.orders)
    remaining = sum(map(len, schedule.orders))
    while remaining:
        before = remaining
        for device, order in enumerate(schedule.orders):
            while places[device] < len(order):
                step = order[places[device]]
                cause = _cause(schedule.chains, step)
                if cause is not None and cause not in end:
                    break
                at = free[device]
                if cause is not None:
                    far = schedule.chains[cause.chain][cause.part] != device
                    at = np.maximum(at, end[cause] + hop_s if far else end[cause])
                start[step] = at
                free[device] = end[step] = at + seconds(step)
                places[device] += 1
                remaining -= 1
        if remaining == before:
            raise ValueError("the orders of the devices wait for each other")
    return Times(start=start, end=end)


def _cause(chains: Chains, step: Step) -> Step | None:
    """Return the step whose result a step needs, None for the first of a microbatch."""
    if step.kind == WEIGHTS:
        return step._replace(kind=BACKWARD)
    if step.kind == FORWARD:
        return step._replace(part=step.part - 1) if step.part else None
    if step.part == len(chains[step.chain]) - 1:
        return step._replace(kind=FORWARD)
    return step._replace(part=step.part + 1)
