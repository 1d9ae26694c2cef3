"""Laws of the sealed captures on random jobs: nothing is lost, nothing waits for ever."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.sealed_jobs import collectives, schedules
from arena.sealed_jobs.families import BUILDERS
from arena.sealed_jobs.fleet import Degrees, Fleet, FloatArray, Host, Layout, Seat
from arena.sealed_jobs.ports import Ports
from arena.sealed_jobs.runs import Interruptions, run_job, typical_iteration_s
from arena.sealed_jobs.schedules import BACKWARD, FORWARD, WEIGHTS, Schedule, Step
from arena.sealed_jobs.traffic import bytes_each_way

SMALL = sorted(set(BUILDERS) - {"large"})


def build(name: str, stages: int, micros: int, rounds: int) -> Schedule:
    """Return a schedule by name."""
    if name == "gpipe":
        return schedules.all_forward_first(stages, micros)
    if name == "interleaved":
        return schedules.interleaved(stages, micros * stages, rounds)
    if name == "zero_bubble":
        return schedules.zero_bubble(stages, micros, rounds * stages)
    if name == "v":
        return schedules.zero_bubble_v(stages, micros)
    if name == "dual":
        return schedules.dual_pipe(stages, micros)
    return schedules.one_forward_one_backward(stages, micros)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["gpipe", "1f1b", "interleaved", "zero_bubble", "v", "dual"]),
    st.integers(1, 6),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
def test_every_schedule_ends_and_keeps_its_order(
    name: str, stages: int, micros: int, rounds: int, seed: int
) -> None:
    """With any durations: each step once, after its cause, and one at a time on each device."""
    schedule = build(name, stages, micros, rounds)
    rng = np.random.default_rng(seed)
    taken: dict[Step, FloatArray] = {}

    def seconds(step: Step) -> FloatArray:
        taken[step] = rng.uniform(0.1, 2.0, (1, 1))
        return taken[step]

    times = schedules.run(
        schedule, seconds=seconds, hop_s=np.full((1, 1), 0.3), begin=np.zeros((1, 1))
    )
    steps = [step for order in schedule.orders for step in order]
    assert len(steps) == len(set(steps)) == len(times.end)
    kinds = {FORWARD, BACKWARD, WEIGHTS} if schedule.split else {FORWARD, BACKWARD}
    assert {step.kind for step in steps} == kinds
    for chain, path in enumerate(schedule.chains):
        passed = {s.micro for s in steps if s.chain == chain and s.part == len(path) - 1}
        for part in range(len(path)):
            for kind in kinds:
                of_part = {(kind, chain, part, micro) for micro in passed}
                assert of_part <= set(steps)
    for step, start in times.start.items():
        if step.kind == FORWARD and step.part:
            assert times.end[step._replace(part=step.part - 1)] <= start
        if step.kind == BACKWARD:
            assert times.end[step._replace(kind=FORWARD)] <= start
        if step.kind == WEIGHTS:
            assert times.end[step._replace(kind=BACKWARD)] <= start
    for order in schedule.orders:
        for before, after in pairwise(order):
            assert times.end[before] <= times.start[after]
        busy = sum(float(taken[step][0, 0]) for step in order)
        assert not order or float(times.end[order[-1]][0, 0]) >= busy - 1e-9


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["ring", "hierarchical", "double_tree", "power_steps", "all_to_all"]),
    st.sampled_from(["direct", "pxn", "rail"]),
)
def test_collectives_lose_nothing(hosts: int, each: int, name: str, way: str) -> None:
    """Pairs join different hosts; the busiest port carries no more than twice the payload."""
    fleet = Fleet([Host(name=f"h{i}", gpus=each, rails=tuple(range(each))) for i in range(hosts)])
    seats = [Seat(host=h, gpu=g) for h in range(hosts) for g in range(each)]
    layout = Layout(fleet, Degrees(dp=len(seats)), seats)
    members = np.arange(len(seats))
    shares = {
        "ring": lambda: collectives.ring(layout, members, passes=2),
        "hierarchical": lambda: collectives.hierarchical(layout, members),
        "double_tree": lambda: collectives.double_tree(layout, members),
        "power_steps": lambda: collectives.power_steps(layout, members, passes=2),
        "all_to_all": lambda: collectives.all_to_all(layout, members, way=way),
    }[name]()
    exchange = collectives.pattern([shares])
    assert np.isclose(exchange.tx.sum(), exchange.rx.sum())
    assert bool(shares) == (hosts > 1)
    for source, destination in shares:
        assert fleet.rnic_host[source] != fleet.rnic_host[destination]
    assert exchange.peak <= 2 * (1.5 if name == "double_tree" else 1.0) + 1e-9


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(SMALL), st.integers(0, 2**20))
def test_jobs_send_what_they_receive(family: str, seed: int) -> None:
    """In their iterations and on their ports; RNICs without pairs move nothing."""
    world = BUILDERS[family](np.random.default_rng(seed))
    for placed in world.jobs:
        traffic = placed.job.iterations(np.random.default_rng(seed), 2)
        tx, rx = bytes_each_way(traffic, len(world.fleet))
        assert np.isclose(tx.sum(), rx.sum())
        active = {int(rnic) for rnic in np.flatnonzero(tx + rx)}
        assert active <= placed.layout.rnics
        paired = {rnic for pair in traffic.kinds for rnic in pair}
        assert paired == active or placed.habits.algorithm == "switch"
    placed = world.jobs[0]
    typical_s = typical_iteration_s(np.random.default_rng(seed), placed.job)
    seconds = 4.0 * typical_s
    run = run_job(
        np.random.default_rng(seed),
        placed.job,
        seconds=seconds,
        typical_s=typical_s,
        interruptions=Interruptions(),
    )
    ports = Ports(len(world.fleet), seconds, 0.02)
    ports.add_run(run)
    sent, received = ports.carried(world.pace.link_gbps * 1e9 / 8)
    assert np.isclose(sent[:, -1].sum(), received[:, -1].sum(), rtol=0.05)
