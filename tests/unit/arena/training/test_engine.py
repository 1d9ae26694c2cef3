"""A job in simulated time: nothing is through before all have begun it."""

import itertools
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.training.engine import Engine, Op
from arena.training.program import Does, training
from arena.training.run import JobScenario, staged
from arena.training.shape import GLOO, NCCL, JobShape, ShapeError
from arena.training.troubles import Pauses, RankTrouble, Trouble
from arena.training.wires import Wires
from schemas.enums import CommunicatorRole

END_US = 8_000_000
SHAPE = JobShape(tp=2, pp=2, dp=2, ep=2, rails=2, microbatches=2)
QUICK = Pauses(compile_s=0.5)


def engine(
    shape: JobShape = SHAPE, *, troubles: tuple[RankTrouble, ...] = (), seed: int = 1
) -> Engine:
    """Return a job that has not begun, on a network without faults."""
    scenario = JobScenario(name="x", seed=seed, seconds=20, shape=shape, probed=False)
    wires = Wires(shape, staged(scenario).world.cluster, (), {}, 0)
    return Engine(shape, wires, QUICK, troubles, seed=seed)


def launched(job: Engine, to_us: int = END_US, step_us: int = 1_000_000) -> list[list[Op]]:
    """Return what each rank launched up to a time."""
    for at_us in range(step_us, to_us + 1, step_us):
        job.advance(at_us)
    return [run.fresh for run in job.ranks]


def meetings(ops: list[list[Op]]) -> dict[tuple[int, int], list[Op]]:
    """Return the operations of each group at each sequence, without transfers."""
    found: dict[tuple[int, int], list[Op]] = defaultdict(list)
    for held in ops:
        for op in held:
            if op.peer is None:
                found[op.group.number, op.seq].append(op)
    return found


shapes = st.builds(
    JobShape, tp=st.sampled_from([1, 2]), pp=st.sampled_from([1, 2, 3]), dp=st.just(4),
    ep=st.sampled_from([1, 2]), rails=st.just(2), library=st.sampled_from([GLOO, NCCL]),
    microbatches=st.integers(1, 4),
)  # fmt: skip
troubled = st.builds(
    RankTrouble, trouble=st.sampled_from(sorted(Trouble, key=lambda t: t.name)),
    rank=st.integers(0, 3), begin_us=st.integers(1_000_000, END_US), factor=st.just(2.0),
)  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(shapes, st.lists(troubled, max_size=2), st.integers(1, 2**32))
def test_nothing_is_through_before_all_have_launched_it(
    shape: JobShape, troubles: list[RankTrouble], seed: int
) -> None:
    """Whatever goes wrong; all members are through at one moment, and none before it began."""
    ops = launched(engine(shape, troubles=tuple(troubles), seed=seed))
    for held in meetings(ops).values():
        ends = {op.ended for op in held}
        assert len(ends) == 1
        (end,) = ends
        if end is not None:
            assert len(held) == len(held[0].group.ranks)
            assert end > max(op.launched for op in held)
            assert end > max(op.started or 0 for op in held)
    for rank, mine in enumerate(ops):
        assert [op.number for op in mine] == list(range(len(mine)))
        assert all(b.launched >= a.launched for a, b in itertools.pairwise(mine))
        sent = [op for op in mine if op.step.does is Does.SEND and op.ended is not None]
        for number, op in enumerate(sent):
            assert op.peer is not None
            back = [o for o in ops[op.peer] if o.step.does is Does.RECEIVE and o.peer == rank]
            same = [o for o in sent[:number] if o.peer == op.peer]
            assert back[len(same)].ended == op.ended


@pytest.mark.parametrize("library", [GLOO, NCCL])
def test_times_do_not_depend_on_how_often_one_looks(library: str) -> None:
    """They follow from dependencies and the seed alone."""
    shape = replace(SHAPE, library=library)
    whole = launched(engine(shape, seed=3), step_us=END_US)
    for step_us in (100_000, 700_000, 3_000_000):
        parts = launched(engine(shape, seed=3), step_us=step_us)
        for all_ops, first_ops in zip(whole, parts, strict=True):
            assert len(first_ops) <= len(all_ops)
            for one, other in zip(all_ops, first_ops, strict=False):
                assert one.launched == other.launched
                assert other.ended in {None, one.ended}


def test_a_healthy_job_goes_on_and_all_ranks_alike() -> None:
    """Each iteration has as many operations of each rank as its program."""
    for library in (GLOO, NCCL):
        job = engine(replace(SHAPE, library=library))
        launched(job)
        done = {run.iteration for run in job.ranks}
        assert max(done) - min(done) <= 1
        assert min(done) > 2
        each = sum(bool(s.operation) for s in training(SHAPE, 0))
        assert job.ranks[0].count >= each * min(done)


def test_a_program_sends_what_the_next_stage_receives() -> None:
    """As many transfers in each direction at both ends, in any shape."""
    shape = replace(SHAPE, pp=4, dp=2, microbatches=3)
    for stage in range(3):
        mine, after = training(shape, stage), training(shape, stage + 1)
        for does, other, towards in (
            (Does.SEND, Does.RECEIVE, 1),
            (Does.RECEIVE, Does.SEND, 1),
        ):
            here = sum(s.does is does and s.towards == towards for s in mine)
            there = sum(s.does is other and s.towards == -towards for s in after)
            assert here == there == 3


def test_a_stopped_process_moves_nothing_and_goes_on_when_it_may() -> None:
    """What it was to launch is as much later as it was stopped."""
    stop = RankTrouble(trouble=Trouble.STOPPED, rank=3, begin_us=3_000_000, end_us=6_000_000)
    ops = launched(engine(troubles=(stop,)))
    mine = [op.launched for op in ops[3]]
    assert not [at for at in mine if 3_100_000 < at < 6_000_000]
    assert max(mine) > 7_000_000
    forever = launched(engine(troubles=(replace(stop, end_us=None),)))
    assert max(op.launched for op in forever[3]) < 3_100_000
    assert all(
        op.ended is None or op.ended < 5_000_000 for held in forever for op in held
    )  # fmt: skip


def test_a_gpu_that_hangs_begins_nothing_and_its_host_goes_on() -> None:
    """Until the program waits: the others have begun what it has not."""
    hang = RankTrouble(trouble=Trouble.GPU, rank=2, begin_us=4_000_000)
    ops = launched(engine(replace(SHAPE, library=NCCL), troubles=(hang,)))
    late = [op for op in ops[2] if op.ended is None and op.peer is None]
    assert late
    assert all(op.started is None for op in late)
    first = late[0]
    others = [o for o in meetings(ops)[first.group.number, first.seq] if o is not first]
    assert all(o.started is not None and o.ended is None for o in others)


def test_each_rank_is_once_in_a_communicator_of_each_kind() -> None:
    """And all of them together are the job."""
    shape = JobShape(tp=4, pp=2, dp=4, ep=2, rails=4)
    for role, size in (
        (CommunicatorRole.TP, 4), (CommunicatorRole.PP, 2), (CommunicatorRole.DP, 4),
        (CommunicatorRole.EP, 2), (CommunicatorRole.WORLD, 32),
    ):  # fmt: skip
        groups = [g for g in shape.groups if g.role is role]
        assert {len(g.ranks) for g in groups} == {size}
        assert sorted(r for g in groups for r in g.ranks) == list(range(32))
        assert all(shape.groups_of[r][role] is g for g in groups for r in g.ranks)
    # A tensor-parallel group has a host of its own.
    assert not any(g.spans for g in shape.groups if g.role is CommunicatorRole.TP)


def test_degrees_that_do_not_fit_are_refused() -> None:
    """With a sentence that says why."""
    with pytest.raises(ShapeError, match="ep divides dp"):
        JobShape(dp=4, ep=3)
