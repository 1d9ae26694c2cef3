"""The tables of a report: scores, and the cases worth a look. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from arena.faults.truth import TrueFault, Verdict
from arena.scoring import Case, Score, delays_ns, match, place_of, scores
from schemas.units import SECOND_NS

# Score, heading, whether it is a share.
COLUMNS: Final = (
    ("precision", "precision", True),
    ("recall_hard", "recall, hard", True),
    ("recall_gray", "recall, gray", True),
    ("top1", "place, top 1", True),
    ("top3", "place, top 3", True),
    ("kind", "kind", True),
    ("set_f1", "set F1", True),
    ("false_pages", "false pages a month", False),
)
DELAYS: Final = (("delay, hard", True), ("delay, gray", False))
UNDEFINED: Final = "–"
MISSED, FALSE = "missed", "false"
# Components named in a line before it says "and so many more".
NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure and below it its interval, empty where there is none; `best` of its column."""

    text: str
    interval: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that went wrong in a scenario; `grade` 0 is worst."""

    grade: int
    what: str
    scenario: str
    detail: str


GRADES: Final = (
    "missed, hard fault",
    "false page",
    "missed, gray fault",
    "wrong place",
    "false, no page",
)


def headings() -> list[str]:
    """Return the headings of the table's columns."""
    return [heading for _, heading, _ in COLUMNS] + [heading for heading, _ in DELAYS]


def rows(cases: Mapping[str, Sequence[Case]]) -> dict[str, list[Cell]]:
    """Return, by diagnoser, the cells of the table of scores.

    The best value of a column is marked, all of them if several are best.
    """
    found = {name: scores(some) for name, some in cases.items()}
    table: dict[str, list[Cell]] = {name: [] for name in cases}
    for score, _, is_share in COLUMNS:
        values = {name: some[score].value for name, some in found.items()}
        top = _best(list(values.values()), most=is_share)
        for name, some in found.items():
            best = top is not None and values[name] == top
            table[name].append(_cell(some[score], is_share, best=best))
    for _, hard in DELAYS:
        delays = {name: _delay_s(some, hard=hard) for name, some in cases.items()}
        top = _best(list(delays.values()), most=False)
        for name, delay_s in delays.items():
            text = UNDEFINED if delay_s is None else f"{delay_s:.1f} s"
            table[name].append(Cell(text, best=delay_s is not None and delay_s == top))
    return table


def _best(values: list[float | None], *, most: bool) -> float | None:
    known = [v for v in values if v is not None]
    return (max if most else min)(known) if known else None


def _cell(score: Score, is_share: bool, *, best: bool) -> Cell:
    if score.value is None:
        return Cell(UNDEFINED)
    interval = ""
    if score.low is not None and score.high is not None:
        interval = f"{_figure(score.low, is_share)} to {_figure(score.high, is_share)}"
    unit = " %" if is_share else ""
    return Cell(_figure(score.value, is_share) + unit, interval, best)


def _figure(value: float, is_share: bool) -> str:
    if is_share:
        return f"{100 * value:.1f}"
    return f"{value:.1f}" if 0 < value < 10 else f"{value:,.0f}"


def _delay_s(cases: Sequence[Case], *, hard: bool) -> float | None:
    delays = delays_ns(cases, hard=hard)
    return median(delays) / SECOND_NS if delays else None


def failures(cases: Sequence[Case]) -> list[Failure]:
    """Return what went wrong, worst first, then in the scenarios' order."""
    found: list[Failure] = []

    def add(grade: int, case: Case, detail: str) -> None:
        found.append(Failure(grade=grade, what=GRADES[grade], scenario=case.name, detail=detail))

    for case in cases:
        matched = match(case.faults, case.verdicts)
        for fault in matched.missed:
            add(0 if fault.hard else 2, case, f"{fault.kind} at {_names(sorted(fault.components))}")
        for verdict in matched.false:
            add(1 if verdict.pages else 4, case, _said(verdict))
        for fault, verdict in matched.pairs:
            if place_of(fault, verdict) != 0:
                right = _names(sorted(fault.components))
                add(3, case, f"{fault.kind} at {right}; said: {_said(verdict)}")
    return sorted(found, key=lambda t: t.grade)


def _said(verdict: Verdict) -> str:
    doubt = "" if verdict.decided else " (undecided)"
    return f"{verdict.kind} at {_names(verdict.candidates)}{doubt}"


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def confusion(cases: Sequence[Case]) -> tuple[list[str], list[str], Counter[tuple[str, str]]]:
    """Return which kinds were said for which.

    Returns
    -------
    True kinds, said kinds and counts by both. A kind that is as right as the true one counts as
    that. `MISSED` among the said are faults without a verdict, `FALSE` among
    the true verdicts without a fault. Both lists begin with the kinds that they share.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases:
        matched = match(case.faults, case.verdicts)
        counts.update((f.kind, _kind(f, v)) for f, v in matched.pairs)
        counts.update((f.kind, MISSED) for f in matched.missed)
        counts.update((FALSE, v.kind) for v in matched.false)
    true = {t for t, _ in counts} - {FALSE}
    said = {s for _, s in counts} - {MISSED}
    shared = sorted(true & said)
    tops = shared + sorted(true - said), shared + sorted(said - true)
    last = [FALSE] if any(t == FALSE for t, _ in counts) else []
    gone = [MISSED] if any(s == MISSED for _, s in counts) else []
    return tops[0] + last, tops[1] + gone, counts


def _kind(fault: TrueFault, verdict: Verdict) -> str:
    return fault.kind if verdict.kind in fault.also_kinds else verdict.kind
