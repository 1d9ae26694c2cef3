"""The slow twin of `localizer.inference.search`: every set of faults, every severity."""

from itertools import combinations, product
from math import log

from localizer.inference.search import (
    FLOW_SEVERITIES,
    HOP_SEVERITIES,
    LOG_SEVERITY,
    Problem,
)
from localizer.inference.tables import Block

Faults = dict[int, tuple[float, float]]


def score(problem: Problem, faults: Faults, chance: float, log_weight: float) -> float:
    """Return the log-posterior of faults (column → severities), up to a constant."""
    total = log_weight
    for column in faults:
        total += float(problem.log_prior[column]) + 2 * LOG_SEVERITY
    for block, base, place in ((problem.flows, chance, 0), (problem.hops, problem.hop_chance, 1)):
        assert isinstance(block, Block)
        for row in range(len(block.bad)):
            good = 1.0 - base
            for column in crossed(block, row) & faults.keys():
                good *= 1.0 - faults[column][place]
            for column, odds in maybes(block, row).items():
                if column in faults:
                    good *= 1.0 - odds * faults[column][place]
            spoilt = 1.0 - good
            likelihood = spoilt if block.bad[row] else 1.0 - float(block.lag[row]) * spoilt
            total += float(block.weight[row]) * log(max(likelihood, 1e-300))
    return total


def crossed(block: Block, row: int) -> set[int]:
    """Return the columns of a row."""
    return {int(c) for r, c in zip(block.rows, block.columns, strict=True) if r == row}


def maybes(block: Block, row: int) -> dict[int, float]:
    """Return the columns that a row crosses with a chance only, and the chance."""
    entries = zip(block.possible.rows, block.possible.columns, block.possible.chance, strict=True)
    return {int(c): float(odds) for r, c, odds in entries if r == row}


def best(problem: Problem, most: int) -> tuple[frozenset[int], float]:
    """Return the best set of at most so many faults, and its score."""
    top: tuple[frozenset[int], float] = (frozenset(), float("-inf"))
    usable = [c for c in range(len(problem.names)) if problem.blamable[c]]
    severities = list(product(FLOW_SEVERITIES, HOP_SEVERITIES))
    if not len(problem.hops.bad):
        severities = [(s, HOP_SEVERITIES[0]) for s in FLOW_SEVERITIES]
    for chance, log_weight in problem.chance:
        for size in range(most + 1):
            for columns in combinations(usable, size):
                for chosen in product(severities, repeat=size):
                    faults = dict(zip(columns, chosen, strict=True))
                    value = score(problem, faults, chance, log_weight)
                    if value > top[1] + 1e-9:
                        top = (frozenset(columns), value)
    return top
