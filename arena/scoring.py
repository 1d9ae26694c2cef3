"""Scores of a diagnosis: pure functions of true faults and verdicts.

A verdict answers a fault if it was opened while the fault lasted, or shortly after.
Verdicts and faults are matched one to one, so that as many faults as possible are
answered, and among such matchings, with as many right components, candidates and
layers as possible. Whatever verdict is left over was false, a second verdict of one
fault included; whatever fault is left over was missed.

Scores are ratios of sums over scenarios. A ratio whose denominator is zero is not
defined and None: precision where nothing was said, recall where nothing happened,
all scores of localization where nothing was found.

Intervals: scenarios are drawn again with replacement (percentile bootstrap; Efron
and Tibshirani 1993, chapter 13). Where every scenario scores alike the interval is
one point, and says less than it seems: with n scenarios without a miss, the rate of
misses is below 3/n at 95 %.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from arena.faults.truth import TrueFault, Verdict
from schemas.columns.arrays import Floats
from schemas.enums import Layer
from schemas.units import SECOND_NS

MONTH_NS: Final = 30 * 24 * 3600 * SECOND_NS
# A window that began during a fault closes this much after it at the latest (30 s and
# 5 s of lateness), and then a verdict must be settled.
GRACE_NS: Final = 60 * SECOND_NS
TOP: Final = 3
RESAMPLES: Final = 2000
LEVEL: Final = 0.95
# Worth of a match, of a right first answer, of one among the candidates, of the layer:
# each outweighs all that follow.
MATCHED, FIRST, NAMED, SAME_LAYER = 1000, 100, 10, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One scenario with its outcome.

    `duration_ns` of event time; `probes` sent.
    """

    name: str
    faults: tuple[TrueFault, ...]
    verdicts: tuple[Verdict, ...]
    duration_ns: int
    probes: int = 0


@dataclass(frozen=True, slots=True)
class Matching:
    """Pairs of fault and verdict, the missed faults and the false verdicts."""

    pairs: tuple[tuple[TrueFault, Verdict], ...]
    missed: tuple[TrueFault, ...]
    false: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A ratio with its bootstrap interval; `value` None where it is not defined.

    `low` and `high` are None as well where most draws leave it undefined.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    numerator: float
    denominator: float


def match(faults: Sequence[TrueFault], verdicts: Sequence[Verdict]) -> Matching:
    """Return the best one-to-one matching of faults and verdicts."""
    worth = np.array([[_worth(f, v) for v in verdicts] for f in faults], np.int64)
    worth = worth.reshape(len(faults), len(verdicts))
    rows, columns = linear_sum_assignment(worth, maximize=True)
    chosen = [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if worth[r, c] > 0]
    answered, used = {r for r, _ in chosen}, {c for _, c in chosen}
    return Matching(
        pairs=tuple((faults[r], verdicts[c]) for r, c in chosen),
        missed=tuple(f for r, f in enumerate(faults) if r not in answered),
        false=tuple(v for c, v in enumerate(verdicts) if c not in used),
    )


def answers(fault: TrueFault, verdict: Verdict) -> bool:
    """Say whether a verdict was opened in the time of a fault."""
    if verdict.opened_ns < fault.begin_ns:
        return False
    return fault.end_ns is None or verdict.opened_ns <= fault.end_ns + GRACE_NS


def place_of(fault: TrueFault, verdict: Verdict) -> int | None:
    """Return the place of the first right answer among the candidates, from 0; None: none is."""
    for place, candidate in enumerate(verdict.candidates):
        if candidate in fault.components:
            return place
    return None


def _worth(fault: TrueFault, verdict: Verdict) -> int:
    if not answers(fault, verdict):
        return 0
    place = place_of(fault, verdict)
    return (
        MATCHED
        + FIRST * (place == 0)
        + NAMED * (place is not None)
        + SAME_LAYER * (fault.layer is verdict.layer)
    )


def scores(cases: Sequence[Case], *, seed: int = 0) -> dict[str, Score]:
    """Return every ratio over all cases, by name.

    `precision`, `recall`, `recall_hard`, `recall_gray`: of detection. `top1`, `top3`,
    `layer`, `kind`: of the faults that were found. `set_precision`, `set_recall`,
    `set_f1`: of the named components, where right answers that cannot be told apart
    count once; an undecided verdict names all its candidates. `false_pages`: per
    cluster-month. `probes`: per second.
    """
    matched = [match(case.faults, case.verdicts) for case in cases]
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, max(1, len(cases)), (RESAMPLES, len(cases)))

    def score(name: str, above: list[float], below: list[float]) -> Score:
        return _score(name, np.array(above), np.array(below), draws)

    def of_pairs(name: str, good: Callable[[TrueFault, Verdict], bool]) -> Score:
        return score(
            name,
            [sum(good(f, v) for f, v in m.pairs) for m in matched],
            [len(m.pairs) for m in matched],
        )

    def recall(name: str, wanted: Callable[[TrueFault], bool]) -> Score:
        found = [sum(wanted(f) for f, _ in m.pairs) for m in matched]
        missed = [sum(wanted(f) for f in m.missed) for m in matched]
        return score(name, list(found), [f + m for f, m in zip(found, missed, strict=True)])

    sets = [_sets(case) for case in cases]
    found = [
        score(
            "precision",
            [len(m.pairs) for m in matched],
            [len(m.pairs) + len(m.false) for m in matched],
        ),
        recall("recall", lambda _: True),
        recall("recall_hard", lambda fault: fault.hard),
        recall("recall_gray", lambda fault: not fault.hard),
        of_pairs("top1", lambda f, v: place_of(f, v) == 0),
        of_pairs("top3", lambda f, v: (p := place_of(f, v)) is not None and p < TOP),
        of_pairs("layer", lambda f, v: f.layer is v.layer),
        of_pairs("kind", lambda f, v: v.kind == f.kind or v.kind in f.also_kinds),
        score("set_precision", [s[0] for s in sets], [s[1] for s in sets]),
        score("set_recall", [s[0] for s in sets], [s[2] for s in sets]),
        # Dice: 2 |A and B| / (|A| + |B|) is the harmonic mean of the two.
        score("set_f1", [2 * s[0] for s in sets], [s[1] + s[2] for s in sets]),
        score(
            "false_pages",
            [sum(v.pages for v in m.false) for m in matched],
            [case.duration_ns / MONTH_NS for case in cases],
        ),
        score(
            "probes",
            [case.probes for case in cases],
            [case.duration_ns / SECOND_NS for case in cases],
        ),
    ]
    return {s.name: s for s in found}


def delays_ns(cases: Sequence[Case], *, hard: bool | None = None) -> list[int]:
    """Return the time from begin to verdict of each fault that was found, in the cases' order.

    `hard` True or False: of hard or of gray faults alone.
    """
    return [
        verdict.opened_ns - fault.begin_ns
        for case in cases
        for fault, verdict in match(case.faults, case.verdicts).pairs
        if hard is None or fault.hard is hard
    ]


def _sets(case: Case) -> tuple[float, float, float]:
    """Return how many components were named rightly, named, and sick.

    Host-layer verdicts and faults (dead agents) are no components of the network.
    A name answers one fault and a fault takes one name, as many as possible; two
    faults with the same right answers are one sick component.
    """
    sick = sorted({f.components for f in case.faults if f.layer is not Layer.HOST}, key=sorted)
    named = sorted(
        {
            component
            for v in case.verdicts
            if v.layer is not Layer.HOST
            for component in (v.candidates[:1] if v.decided else v.candidates)
        }
    )
    right = np.array([[name in components for name in named] for components in sick], np.int64)
    rows, columns = linear_sum_assignment(right.reshape(len(sick), len(named)), maximize=True)
    hit = sum(named[c] in sick[r] for r, c in zip(rows, columns, strict=True))
    # Equivalent answers beside the one that counts are not wrong.
    wrong = sum(not any(name in components for components in sick) for name in named)
    return float(hit), float(hit + wrong), float(len(sick))


def _score(name: str, above: Floats, below: Floats, draws: NDArray[np.int64]) -> Score:
    top, bottom = float(above.sum()), float(below.sum())
    low = high = None
    if len(above):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = above[draws].sum(axis=1) / below[draws].sum(axis=1)
        defined = ratios[np.isfinite(ratios)]
        if 2 * len(defined) > len(ratios):
            tail = (1 - LEVEL) / 2
            low, high = (float(q) for q in np.quantile(defined, [tail, 1 - tail]))
    return Score(
        name=name,
        value=top / bottom if bottom else None,
        low=low,
        high=high,
        numerator=top,
        denominator=bottom,
    )
