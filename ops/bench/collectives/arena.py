"""`python -m ops.bench collectives --only arena`: simulated jobs, their causes, and who is right.

The job's collectors, the hang watcher, agents, workers and the localizer with its join, by event
time and without a broker. Small jobs have each fault once a run; a job of 1,024 ranks is simulated
until it is warm, and then goes on in a process of its own for each fault of a rank.
"""

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from random import Random
from typing import Final

from arena.training.judging import JobJudged, judge, judged, truth_of_trouble
from arena.training.run import JobRun, feed, opened, run
from arena.training.shape import GLOO, NCCL
from arena.training.suites import (
    HARD_KINDS,
    LARGE,
    MEASURED_FROM,
    RANK_KINDS,
    SLOW_KINDS,
    healthy_scenarios,
    large_scenario,
    network_scenario,
    rank_scenario,
    trouble_of,
)
from arena.training.troubles import RankTrouble, Trouble
from ops.bench.rig.report import Figure, Say, figure
from schemas.units import US_PER_S

NAME: Final = "arena"
RIGHT_SHARE: Final = 0.99
# A job of 1,024 ranks is warm after so long, and a fault of a rank is told within the rest.
WARM_S: Final = 26
LARGE_S: Final = 46
# Kinds of which a large job says nothing in that time, or of which a part of the cluster is down.
NOT_LARGE: Final = frozenset({*SLOW_KINDS, Trouble.HOST})
JOBS: Final = 6
HOURS: Final = 6.0
LARGE_HEALTHY_S: Final = 90
# Wilson's interval of 95 %.
Z: Final = 1.96
COLLECT_AFTER: Final = 100_000


def measure(runs: int, say: Say, hours: float = HOURS) -> list[Figure]:
    """Measure so many runs of small jobs, and one of large and of healthy ones.

    Parameters
    ----------
    hours
        How long healthy jobs go on together, simulated.

    Returns
    -------
    list of Figure
        `low` and `high` of a share are Wilson's interval.
    """
    gc.set_threshold(COLLECT_AFTER)
    ranks: list[JobJudged] = []
    network: list[JobJudged] = []
    for turn in range(runs):
        seed = MEASURED_FROM + turn
        for kind in RANK_KINDS:
            ranks.append(judge(run(rank_scenario(kind, seed))))
            say(sentence(ranks[-1]))
        for name in HARD_KINDS:
            network.append(judge(run(network_scenario(name, seed))))
            say(sentence(network[-1]))
    large = [one for library in (GLOO, NCCL) for one in large_jobs(library, MEASURED_FROM, say)]
    false, seconds = healthy(say, hours)
    cost_s, calm = cost(say)
    every = [*ranks, *network, *large]
    hangs = [one for one in every if one.pages or not one.root_first]
    delays_s = sorted(o.delay_s for o in every if o.delay_s is not None)
    p90_s = delays_s[min(len(delays_s) - 1, len(delays_s) * 9 // 10)] if delays_s else None
    whole = (seconds + calm[1]) / 3_600
    rows = [
        share("root first", [o.root_first for o in every], RIGHT_SHARE),
        share("1,024 ranks: root first", [o.root_first for o in large], RIGHT_SHARE),
        share("ranks' faults: root first", [o.root_first for o in (*ranks, *large)]),
        share("network's hard faults: root first", [o.root_first for o in network]),
        share("kind right", [o.kind_right for o in every]),
        share("one page", [o.pages == 1 for o in hangs], 1.0),
        figure(f"{NAME}: fault → first page, median", delays_s, "s"),
        replace(figure(f"{NAME}: fault → first page, p90", delays_s, "s"), value=p90_s),
        replace(
            figure(f"{NAME}: hangs told in {whole:.1f} h without one", [], "", 0),
            value=float(false + calm[0]), runs=JOBS + 1,
        ),
        figure(f"{NAME}: watcher of 1,024 ranks, CPU for a second of event time", cost_s, "s"),
    ]  # fmt: skip
    for name in dict.fromkeys(o.name for o in every):
        mine = [o.root_first and o.kind_right for o in every if o.name == name]
        rows.append(share(f"{name}, root and kind right", mine))
    return rows


def share(what: str, right: Sequence[bool], bar: float | None = None) -> Figure:
    """Return a share with its interval."""
    row = figure(f"{NAME}: {what}", [float(one) for one in right], "of jobs", bar, ">=")
    if not right:
        return row
    low, high = interval(sum(right), len(right))
    return replace(row, value=sum(right) / len(right), low=low, high=high)


def interval(right: int, count: int) -> tuple[float, float]:
    """Return Wilson's interval of a share.

    >>> [round(end, 2) for end in interval(50, 50)]
    [0.93, 1.0]
    """
    p, z = right / count, Z
    middle = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z * ((p * (1 - p) + z * z / (4 * count)) / count) ** 0.5 / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def large_jobs(library: str, seed: int, say: Say) -> list[JobJudged]:
    """Let a job of 1,024 ranks become warm, and then go wrong in each way in a child process."""
    warm = JobRun(large_scenario(library, seed, LARGE_S))
    warm.run(WARM_S)
    random = Random(f"{seed}/large/{library}")  # noqa: S311 - a seed decides
    found = []
    for kind in RANK_KINDS:
        if kind in NOT_LARGE or (kind is Trouble.GPU and library == GLOO):
            continue
        begin_s = WARM_S + random.uniform(2.0, 4.0)
        trouble = trouble_of(kind, random, LARGE.ranks, begin_s)

        found.append(in_child(partial(_gone_wrong, warm, trouble)))
        say(f"1,024 ranks, {library}: {sentence(found[-1])}")
    return found


def _gone_wrong(warm: JobRun, trouble: RankTrouble) -> JobJudged:
    warm.feed.engine.add_troubles([trouble])
    warm.run()
    return judged(warm, truth_of_trouble(warm.scenario, trouble))


def in_child(work: Callable[[], JobJudged]) -> JobJudged:
    """Return what a forked process returns; what it changes stays there.

    Raises
    ------
    RuntimeError
        If the process ends without a word.
    """
    fork = get_context("fork")
    reader, writer = fork.Pipe(duplex=False)
    child = fork.Process(target=_tell, args=(writer, work))
    child.start()
    writer.close()
    try:
        found: JobJudged = reader.recv()
    except EOFError as error:
        raise RuntimeError("a simulated job ended without a verdict") from error
    finally:
        child.join()
    return found


def _tell(writer: Connection, work: Callable[[], JobJudged]) -> None:
    writer.send(work())
    writer.close()
    # Nothing of the parent's is to be ended twice.
    os._exit(0)


def healthy(say: Say, hours: float = HOURS) -> tuple[int, int]:
    """Return how many hangs were told of healthy jobs, and how long these went on, in seconds."""
    false = seconds = 0
    each_s = round(hours * 3_600 / JOBS)
    for scenario in healthy_scenarios(MEASURED_FROM, JOBS, each_s):
        found = opened(run(scenario).hangs)
        false += len(found)
        seconds += scenario.seconds
        said = ", ".join(hang.summary for hang in found) or "nothing"
        say(f"{scenario.name}, {scenario.shape.library}: {said}")
    return false, seconds


def cost(say: Say) -> tuple[list[float], tuple[int, int]]:
    """Return the watcher's CPU time for each second of 1,024 healthy ranks, and what it told."""
    scenario = replace(
        large_scenario(NCCL, MEASURED_FROM + 1, LARGE_HEALTHY_S), probed=False
    )  # fmt: skip
    job = JobRun(scenario)
    taken, hangs = [], 0
    for second in range(1, scenario.seconds + 1):
        reads = list(job.feed.records(second * US_PER_S))
        begin = time.process_time()
        for read in reads:
            feed(job.feed.watch, read)
        hangs += len(opened(job.feed.decide(second * US_PER_S)))
        taken.append(time.process_time() - begin)
    say(f"{scenario.name}: {hangs} hangs, {sum(taken) / len(taken):.2f} s of CPU for a second")
    return taken, (hangs, scenario.seconds)


def sentence(one: JobJudged) -> str:
    """Return what came of a job, for a line of progress."""
    right = "right" if one.root_first and one.kind_right else "WRONG"
    after = "never" if one.delay_s is None else f"{one.delay_s:.1f} s"
    return f"{one.scenario} {one.name}: {right}, {after}, {'; '.join(one.said) or 'nothing'}"
