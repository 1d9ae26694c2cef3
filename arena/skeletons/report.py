"""Runs a suite and prints its figures by axis, beside those of the baselines."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Final

from arena.skeletons.baselines import BASELINES
from arena.skeletons.scoring import FIGURES, JobScore, mean, score_capture
from arena.skeletons.suites import Case
from arena.workload.capture import capture

AXES: Final = ("family", "schedule", "size", "rate", "dirt", "index")
# Confidence is honest if, of what is said with at least so much, as much is right.
LEVELS: Final = (0.5, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Outcome:
    """One capture's scores by method; `claims`: tasks seen where there is none."""

    case: Case
    scores: dict[str, list[JobScore]]
    claims: dict[str, int]
    seconds: dict[str, float]


def measure(case: Case, methods: Sequence[str]) -> Outcome:
    """Simulate a capture and score the methods on it."""
    made = capture(case.spec)
    scores: dict[str, list[JobScore]] = {}
    claims: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for method in methods:
        begin = perf_counter()
        document = BASELINES[method](made)
        seconds[method] = perf_counter() - begin
        scores[method], claims[method] = score_capture(
            document, made.truth, index_true=case.spec.index == "true"
        )
    return Outcome(case, scores, claims, seconds)


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return all figures: axis → value → method → figure → mean with interval."""
    split: dict[str, dict[str, list[Outcome]]] = {"all": {"all": list(outcomes)}}
    hard = [o for o in outcomes if o.case.axes["rate"] == "10 Hz same"]
    split["all"]["10 Hz, same tick"] = hard
    for axis in AXES:
        for o in outcomes:
            split.setdefault(axis, {}).setdefault(o.case.axes[axis], []).append(o)
    return {
        axis: {
            value: {m: _figures(chosen, m) for m in (chosen[0].scores if chosen else {})}
            for value, chosen in sorted(values.items())
        }
        for axis, values in split.items()
    } | {"calibration": calibration(outcomes)}


def _figures(outcomes: Sequence[Outcome], method: str) -> dict[str, Any]:
    out: dict[str, Any] = {
        figure: asdict(
            mean([[s.figures[figure] for s in o.scores[method] if figure in s.figures]
                  for o in outcomes])
        )
        for figure in FIGURES
    }  # fmt: skip
    out["claims"] = sum(o.claims[method] for o in outcomes)
    return out


def calibration(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return, for levels of confidence, how many jobs are said so surely and how many are right.

    Right: data- and pipeline-parallel degree.
    """
    said = [s for o in outcomes for s in o.scores.get("ours", [])]
    rows = []
    for level in LEVELS:
        sure = [s for s in said if s.confidence >= level]
        right = sum(s.figures["dp+pp"] for s in sure)
        rows.append(
            {"confidence": level, "jobs": len(sure), "of": len(said),
             "right": right / len(sure) if sure else None}
        )  # fmt: skip
    return rows


def table(found: dict[str, Any]) -> str:
    """Return the figures as text."""
    width = 22
    lines = [f"{'':{width}}{'method':>10}{'jobs':>6}" + "".join(f"{f:>9}" for f in FIGURES)]
    for axis, values in found.items():
        if axis == "calibration":
            continue
        lines.append(f"-- {axis}")
        for value, methods in values.items():
            for method, figures in methods.items():
                count = figures["pairs"]["count"]
                cells = "".join(_cell(f, figures[f]["value"]) for f in FIGURES)
                lines.append(f"{value:{width}}{method:>10}{count:>6}{cells}")
                if axis == "all" and count:
                    spans = "".join(_span(f, figures[f]) for f in FIGURES)
                    lines.append(f"{'':{width + 16}}{spans}  claims {figures['claims']}")
    lines.append("-- confidence: share of jobs said so surely that have DP and PP right")
    for row in found["calibration"]:
        right = "–" if row["right"] is None else f"{row['right']:.1%}"
        lines.append(
            f"at least {row['confidence']:.2f}: {row['jobs']} of {row['of']} jobs, {right}"
        )
    return "\n".join(lines)


def _cell(figure: str, value: float | None) -> str:
    if value is None:
        return f"{'–':>9}"
    return f"{value:>9.2f}" if figure == "length" else f"{100 * value:>9.1f}"


def _span(figure: str, got: dict[str, Any]) -> str:
    if got["value"] is None:
        return f"{'':>9}"
    low, high = got["low"], got["high"]
    text = f"{low:.1f}–{high:.1f}" if figure == "length" else f"{100 * low:.0f}–{100 * high:.0f}"
    return f"{text:>9}"
