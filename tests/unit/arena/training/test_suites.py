"""Small jobs with a fault each: what is said first is what is wrong, once."""

from dataclasses import replace

import pytest

from arena.scenarios.scenario import ScenarioEvent
from arena.training.judging import judge, truth_of_trouble
from arena.training.run import EPOCH_US, JobRun, JobScenario, opened, run
from arena.training.shape import GLOO, NCCL, RDMA, TCP, JobShape
from arena.training.suites import (
    GRAY_KINDS,
    HARD_KINDS,
    RANK_KINDS,
    healthy_scenarios,
    network_scenario,
    rank_scenario,
)
from arena.training.troubles import Pauses, RankTrouble, Trouble
from schemas.enums import FaultLifecycle, HangClass
from schemas.units import US_PER_S

SHAPE = JobShape(tp=2, pp=2, dp=4, ep=2, rails=2, forward_us=80_000)
CALM = Pauses(compile_s=2.0)
BEGIN_S = 20.0
CLASSES = {
    Trouble.STOPPED: HangClass.PROCESS_STOPPED, Trouble.EXITED: HangClass.RANK_MISSING,
    Trouble.LOADER: HangClass.NEVER_LAUNCHED, Trouble.DEADLOCK: HangClass.NEVER_LAUNCHED,
    Trouble.GPU: HangClass.GPU_STOPPED, Trouble.SIZE: HangClass.DESYNCHRONISED,
    Trouble.OPERATION: HangClass.DESYNCHRONISED, Trouble.ORDER: HangClass.DESYNCHRONISED,
    Trouble.SKIPPED: HangClass.DESYNCHRONISED,
}  # fmt: skip


def scenario(shape: JobShape, *troubles: RankTrouble, seconds: int = 34) -> JobScenario:
    """Return a job beside which nobody probes."""
    return JobScenario(
        name="x", seed=11, seconds=seconds, shape=shape, pauses=CALM, troubles=troubles,
        probed=False,
    )  # fmt: skip


def test_a_job_that_goes_on_slowly_does_not_hang() -> None:
    """Its ranks wait longer than they ever did, and their GPUs go on all the while."""
    shape = replace(SHAPE, library=NCCL, dp=8, ep=4, microbatches=8)
    trouble = RankTrouble(
        trouble=Trouble.SLOW_SENDER, rank=19, begin_us=30 * US_PER_S, factor=140.0
    )
    assert run(scenario(shape, trouble, seconds=62)).hangs == []


def test_a_pipeline_that_goes_on_slowly_has_a_slow_rank_and_does_not_hang() -> None:
    """Its stages wait for each other longer than ever: it is slow once, until the end."""
    shape = JobShape(tp=2, pp=4, dp=4, ep=2, rails=2, library=GLOO, microbatches=8)
    trouble = RankTrouble(trouble=Trouble.SLOW, rank=24, begin_us=80 * US_PER_S, factor=2.7)
    (hang,) = run(scenario(replace(shape, forward_us=150_000), trouble, seconds=125)).hangs
    assert (hang.state, hang.hang_class) == (FaultLifecycle.OPEN, HangClass.SLOW_COMPUTE)
    assert hang.ranks == (24,)


def test_a_rank_that_reads_slowly_what_only_one_peer_sends_it_is_told_in_half_a_minute() -> None:
    """Most reaches it from its own host: its sockets and that peer's show it now and then."""
    shape = JobShape(tp=1, pp=2, dp=8, ep=2, rails=2, library=NCCL, microbatches=8)
    trouble = RankTrouble(
        trouble=Trouble.SLOW_RECEIVER, rank=3, begin_us=80 * US_PER_S, factor=95.0
    )
    (hang,) = run(scenario(shape, trouble, seconds=125)).hangs
    assert (hang.hang_class, hang.ranks) == (HangClass.SLOW_RECEIVER, (3,))
    assert hang.event_at - EPOCH_US < 110 * US_PER_S


def test_a_pipeline_whose_rank_reads_slowly_does_not_hang() -> None:
    """Others wait for longer than its pace explains, while bytes move all the time."""
    shape = JobShape(tp=2, pp=4, dp=4, ep=2, rails=2, library=GLOO, microbatches=8)
    trouble = RankTrouble(
        trouble=Trouble.SLOW_RECEIVER, rank=25, begin_us=80 * US_PER_S, factor=127.0
    )
    (hang,) = run(scenario(replace(shape, forward_us=150_000), trouble, seconds=140)).hangs
    assert (hang.hang_class, hang.ranks) == (HangClass.SLOW_RECEIVER, (25,))


@pytest.mark.parametrize("kind", [Trouble.STOPPED, Trouble.DEADLOCK])
def test_a_slow_job_that_stops_hangs(kind: Trouble) -> None:
    """It is slow no longer, and what it hangs at is told."""
    shape = JobShape(tp=2, pp=2, dp=4, ep=2, rails=2, library=GLOO, forward_us=150_000)
    slow = RankTrouble(trouble=Trouble.SLOW, rank=12, begin_us=80 * US_PER_S, factor=2.7)
    stop = RankTrouble(trouble=kind, rank=5, begin_us=115 * US_PER_S)
    first, over, then = run(scenario(shape, slow, stop, seconds=145)).hangs[:3]
    assert (first.hang_class, over.state) == (HangClass.SLOW_COMPUTE, FaultLifecycle.RESOLVED)
    assert (then.state, then.hang_class) == (FaultLifecycle.OPEN, CLASSES[kind])
    assert then.ranks == (5,)


@pytest.mark.parametrize("transport", [TCP, RDMA])
@pytest.mark.parametrize("kind", list(CLASSES), ids=lambda kind: kind.name.lower())
def test_a_fault_of_a_rank_is_one_hang_of_its_class(kind: Trouble, transport: str) -> None:
    """Of a job over NCCL, which launches far ahead; within ten seconds."""
    shape = replace(SHAPE, library=NCCL, transport=transport)
    trouble = RankTrouble(trouble=kind, rank=5, begin_us=round(BEGIN_S * US_PER_S), factor=0.5)
    (hang,) = opened(run(scenario(shape, trouble)).hangs)
    assert (hang.hang_class, hang.ranks) == (CLASSES[kind], (5,))


@pytest.mark.parametrize(
    "kind", [Trouble.STOPPED, Trouble.EXITED, Trouble.LOADER, Trouble.OPERATION]
)
def test_so_it_is_of_a_job_over_gloo(kind: Trouble) -> None:
    """Whose recorder has neither times of an end nor the members of groups."""
    shape = replace(SHAPE, library=GLOO)
    trouble = RankTrouble(trouble=kind, rank=5, begin_us=round(BEGIN_S * US_PER_S))
    (hang,) = opened(run(scenario(shape, trouble)).hangs)
    assert (hang.hang_class, hang.ranks) == (CLASSES[kind], (5,))


@pytest.mark.parametrize("begin_s", [22.09, 22.2])
def test_a_process_that_is_stopped_is_no_gpu_that_does_not_go_on(begin_s: float) -> None:
    """Of an operation that it had launched, and its GPU had not begun: the others' had."""
    shape = replace(SHAPE, library=NCCL, ep=4, microbatches=8)
    trouble = RankTrouble(trouble=Trouble.STOPPED, rank=5, begin_us=round(begin_s * US_PER_S))
    (hang,) = opened(run(scenario(shape, trouble)).hangs)
    assert (hang.hang_class, hang.ranks) == (HangClass.PROCESS_STOPPED, (5,))


def test_a_job_that_was_held_up_goes_on_and_the_hang_is_over() -> None:
    """A process that goes on after ten seconds."""
    stop = RankTrouble(
        trouble=Trouble.STOPPED, rank=3, begin_us=20 * US_PER_S, end_us=32 * US_PER_S
    )
    found = run(scenario(SHAPE, stop, seconds=46))
    assert [h.state for h in found.hangs] == [FaultLifecycle.OPEN, FaultLifecycle.RESOLVED]


@pytest.mark.parametrize("library", [GLOO, NCCL])
def test_healthy_pauses_are_no_hangs(library: str) -> None:
    """Checkpoints that one rank writes alone, evaluations, late loaders, and the end."""
    found = run(
        replace(
            scenario(replace(SHAPE, library=library), seconds=120),
            pauses=Pauses(
                compile_s=4.0, checkpoint_every=9, checkpoint_s=12.0, one_saves=True,
                evaluation_every=7, load_share=0.01, last_iteration=30,
            ),
        )
    )  # fmt: skip
    assert opened(found.hangs) == []
    assert found.feed.engine.ranks[0].ended_us is not None


@pytest.mark.parametrize("library", [GLOO, NCCL])
def test_a_restart_while_all_wait_for_one_that_saves_is_no_hang(library: str) -> None:
    """For two seconds ranks of both attempts are known: those before wait for what has begun."""
    found = run(
        replace(
            scenario(replace(SHAPE, library=library), seconds=36),
            seed=1, restarts_s=(27.0,),
            pauses=Pauses(
                compile_s=3.0, checkpoint_every=8, checkpoint_s=9.0, one_saves=True,
                evaluation_every=5,
            ),
        )
    )  # fmt: skip
    assert opened(found.hangs) == []


def test_a_cut_and_the_hang_that_it_makes_are_one_page() -> None:
    """Agents say where, the watcher whom it stops."""
    plan = JobScenario(
        name="cut", seed=11, seconds=46, shape=SHAPE, pauses=CALM,
        faults=(ScenarioEvent(kind="rnic_port_down", begin_s=BEGIN_S, place="rnic:h3/r1"),),
    )  # fmt: skip
    found = run(plan)
    one = judge(found)
    assert (one.root_first, one.kind_right, one.pages) == (True, True, 1)
    assert opened(found.hangs)[0].hang_class is HangClass.NETWORK
    assert {rank for event in found.events for rank in event.ranks} == {
        f"job-a|{rank}" for rank in range(SHAPE.ranks)
    }


def test_a_large_job_goes_on_with_another_fault_than_it_began_with() -> None:
    """A fault that is added while it runs is like one that was there from the beginning."""
    trouble = RankTrouble(trouble=Trouble.STOPPED, rank=6, begin_us=round(BEGIN_S * US_PER_S))
    before = run(scenario(SHAPE, trouble))
    added = JobRun(scenario(SHAPE))
    added.run(17)
    added.feed.engine.add_troubles([trouble])
    added.run()
    assert added.hangs == before.hangs
    assert truth_of_trouble(added.scenario, trouble).components == {"job-a|6"}


def test_suites_follow_from_their_seeds() -> None:
    """Each kind has a scenario, which is the same for the same seed."""
    for kind in RANK_KINDS:
        assert rank_scenario(kind, 3) == rank_scenario(kind, 3)
        assert rank_scenario(kind, 3).troubles[0].trouble is kind
    for name in (*HARD_KINDS, *GRAY_KINDS):
        assert network_scenario(name, 3) == network_scenario(name, 3)
        assert network_scenario(name, 3).faults[0].kind == name
    assert len({one.name for one in healthy_scenarios(3, 6)}) == 6
