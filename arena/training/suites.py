"""Jobs with one fault each, and healthy ones; a seed decides what a kind leaves open.

Seeds below `MEASURED_FROM` are to develop with, those from it on to report, never to tune.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from arena.faults.kinds import KINDS
from arena.scenarios.scenario import ScenarioEvent
from arena.training.run import JobScenario
from arena.training.shape import GLOO, NCCL, RDMA, TCP, JobShape
from arena.training.troubles import Pauses, RankTrouble, Trouble
from arena.world.topology import host_id
from schemas.units import US_PER_S

MEASURED_FROM: Final = 10_080
# Faults of ranks; of the last but one the network's agents tell as well, the last is none.
RANK_KINDS: Final = (
    Trouble.STOPPED, Trouble.EXITED, Trouble.LOADER, Trouble.DEADLOCK, Trouble.GPU, Trouble.SIZE,
    Trouble.OPERATION, Trouble.ORDER, Trouble.SKIPPED, Trouble.SLOW, Trouble.SLOW_SENDER,
    Trouble.SLOW_RECEIVER, Trouble.HOST, Trouble.COLLECTOR,
)  # fmt: skip
SLOW_KINDS: Final = frozenset({Trouble.SLOW, Trouble.SLOW_SENDER, Trouble.SLOW_RECEIVER})
# Of the network those that stop somebody's traffic for good: a job hangs.
HARD_KINDS: Final = tuple(k.name for k in KINDS.values() if k.hard)
GRAY_KINDS: Final = tuple(k.name for k in KINDS.values() if not k.hard)
# What is usual is known by then; slow jobs are held against a minute and more.
WARM_S: Final = (28.0, 34.0)
SLOW_WARM_S: Final = (95.0, 100.0)
LASTS_S: Final = 28
SLOW_LASTS_S: Final = 60
NETWORK_LASTS_S: Final = 40
GRAY_LASTS_S: Final = 110
# An hour of a healthy job has a checkpoint every few minutes and an evaluation as often.
HOUR_S: Final = 3_600
LARGE: Final = JobShape(tp=8, pp=4, dp=32, ep=8, rails=8, forward_us=120_000)


def shape_of(random: Random, library: str) -> JobShape:
    """Return a job of 16 to 64 ranks."""
    tp, pp, dp, ep, rails = random.choice(
        [(2, 2, 8, 4, 2), (4, 2, 4, 2, 4), (2, 4, 4, 2, 2), (1, 2, 8, 2, 2), (4, 2, 8, 4, 4)]
    )
    transport = RDMA if library == NCCL and random.random() < 0.5 else TCP
    return JobShape(
        tp=tp, pp=pp, dp=dp, ep=ep, rails=rails, library=library, transport=transport,
        microbatches=random.choice([2, 4, 8]), forward_us=random.choice([40_000, 80_000, 150_000]),
    )  # fmt: skip


def pauses_of(random: Random, ranks: int) -> Pauses:
    """Return what a healthy job does beside training: a rank is late each few iterations."""
    return Pauses(
        compile_s=random.uniform(2.0, 8.0),
        checkpoint_every=random.choice([0, 7, 12]),
        checkpoint_s=random.uniform(2.0, 8.0),
        one_saves=random.random() < 0.5,
        evaluation_every=random.choice([0, 9, 15]),
        load_share=0.3 / ranks, load_s=0.4,
        hiccup_share=0.02 / ranks, hiccup_s=0.3,
        jitter=random.uniform(0.01, 0.05),
    )  # fmt: skip


def trouble_of(kind: Trouble, random: Random, ranks: int, begin_s: float) -> RankTrouble:
    """Return a fault of a rank."""
    factor = 1.0
    if kind is Trouble.SLOW:
        factor = random.uniform(2.0, 4.0)
    elif kind in SLOW_KINDS:
        factor = random.uniform(50.0, 150.0)
    elif kind is Trouble.SIZE:
        factor = random.choice([0.5, 0.75, 1.5, 2.0])
    return RankTrouble(
        trouble=kind, rank=random.randrange(ranks), begin_us=round(begin_s * US_PER_S),
        factor=factor,
    )  # fmt: skip


def rank_scenario(kind: Trouble, seed: int) -> JobScenario:
    """Return a small job with a fault of a rank."""
    random = Random(f"{seed}/{kind.name}")  # noqa: S311 - a seed decides
    library = NCCL if kind is Trouble.GPU else random.choice([GLOO, NCCL])
    if kind is Trouble.SLOW:
        # NCCL's host runs ahead, and its launches do not tell who computes.
        library = GLOO
    shape = shape_of(random, library)
    slow = kind in SLOW_KINDS
    if slow:
        shape = replace(shape, transport=TCP)
    begin_s = random.uniform(*(SLOW_WARM_S if slow else WARM_S))
    trouble = trouble_of(kind, random, shape.ranks, begin_s)
    faults: tuple[ScenarioEvent, ...] = ()
    if kind is Trouble.HOST:
        place = host_id(shape.host(trouble.rank))
        faults = (ScenarioEvent(kind="host_down", begin_s=begin_s, place=place),)
    return JobScenario(
        name=f"{kind.name.lower()}-{seed}", seed=seed,
        seconds=round(begin_s) + (SLOW_LASTS_S if slow else LASTS_S), shape=shape,
        pauses=pauses_of(random, shape.ranks), troubles=(trouble,), faults=faults,
    )  # fmt: skip


def network_scenario(kind: str, seed: int) -> JobScenario:
    """Return a small job beside a fault of the network."""
    random = Random(f"{seed}/{kind}")  # noqa: S311 - a seed decides
    shape = shape_of(random, random.choice([GLOO, NCCL]))
    hard = KINDS[kind].hard
    begin_s = random.uniform(*(WARM_S if hard else SLOW_WARM_S))
    troubles: tuple[RankTrouble, ...] = ()
    place = None
    if kind == "host_down":
        trouble = trouble_of(Trouble.HOST, random, shape.ranks, begin_s)
        troubles, place = (trouble,), host_id(shape.host(trouble.rank))
    return JobScenario(
        name=f"{kind}-{seed}", seed=seed,
        seconds=round(begin_s) + (NETWORK_LASTS_S if hard else GRAY_LASTS_S), shape=shape,
        pauses=pauses_of(random, shape.ranks), troubles=troubles,
        faults=(ScenarioEvent(kind=kind, begin_s=begin_s, place=place),),
    )  # fmt: skip


def large_scenario(library: str, seed: int, seconds: int) -> JobScenario:
    """Return a job of 1,024 ranks in which nothing is wrong yet."""
    random = Random(f"{seed}/large")  # noqa: S311 - a seed decides
    return JobScenario(
        name=f"large-{library}-{seed}", seed=seed, seconds=seconds,
        shape=replace(LARGE, library=library),
        pauses=replace(pauses_of(random, LARGE.ranks), checkpoint_every=0, evaluation_every=0),
    )  # fmt: skip


def healthy_scenarios(seed: int, jobs: int, seconds: int = HOUR_S) -> Iterator[JobScenario]:
    """Yield so many jobs of so long each, with checkpoints, evaluations, restarts and an end."""
    for number in range(jobs):
        random = Random(f"{seed}/healthy/{number}")  # noqa: S311 - a seed decides
        shape = replace(
            shape_of(random, GLOO if number % 2 else NCCL),
            tp=2, pp=2, dp=4, ep=2, rails=2, forward_us=random.choice([150_000, 300_000]),
        )  # fmt: skip
        pauses = replace(
            pauses_of(random, shape.ranks),
            checkpoint_every=random.randrange(40, 90), checkpoint_s=random.uniform(4.0, 30.0),
            evaluation_every=random.randrange(30, 70),
        )  # fmt: skip
        # Within the middle third.
        restarts = (seconds * random.uniform(1 / 3, 2 / 3),) if random.random() < 0.5 else ()
        if random.random() < 0.5:
            pauses = replace(pauses, last_iteration=seconds // 6)
        yield JobScenario(
            name=f"healthy-{seed}-{number}", seed=seed + number, seconds=seconds, shape=shape,
            pauses=pauses, restarts_s=restarts, probed=False,
        )  # fmt: skip
