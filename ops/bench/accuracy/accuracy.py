"""The arena's bars: detection, localization, kinds, false pages, skeletons, baselines.

Seeds of the suites that are measured here are never used while developing. Intervals are
bootstrap intervals over scenarios (`arena.scoring`); `runs` is the number of scenarios.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arena.compare import EVERYONE, OURS, compare
from arena.least_delay import least_delays_ns
from arena.likeness import telling
from arena.reporting.page import write_report
from arena.reporting.results import Result, by_diagnoser, write_results
from arena.run import run_world
from arena.scenarios.scenario import Scenario, stage
from arena.scenarios.suites import scenarios
from arena.scoring import Case, Score, delays_ns, match, scores
from arena.sealed.draw import draw as draw_world
from arena.sealed_worlds import cases as sealed_cases
from arena.sealed_worlds import draws as sealed_draws
from arena.skeletons import sealed as sealed_jobs
from arena.skeletons.bench import bench
from arena.skeletons.report import measure, summary
from arena.skeletons.scoring import mean
from arena.skeletons.suites import cases
from arena.world.cluster import JobPlan
from arena.world.fabric import FabricShape
from ops.bench.accuracy.diagnose_speed import diagnose_speed
from ops.bench.accuracy.likeness import compare as compare_shapes
from ops.bench.accuracy.likeness import recorded
from ops.bench.rig.report import (
    BUILD_DIR,
    Figure,
    Parts,
    Say,
    Sense,
    figure,
    kept_rows,
    scratch_folder,
)
from ops.running.pipeline import Pipeline, PipelineConfig
from schemas.units import SECOND_NS

COMMAND: Final = "make bench-accuracy"
# Scenarios of every kind and of pairs, drawn so often anew. `runs` on the command line.
RUNS: Final = 8
DEFAULT_RUNS: Final = {
    "likeness": 1, "speed": 1, "diagnose": 3, "baselines": 1, "healthy-month": 26, "skeleton": 240,
    "skeleton-speed": 1, "sealed": 40, "sealed-skeletons": 60, "gap": 1,
}  # fmt: skip
WORKERS: Final = 2
RESULTS: Final = BUILD_DIR / "accuracy-results.jsonl"
AGAINST: Final = BUILD_DIR / "accuracy-baselines.jsonl"
PAGE: Final = Path("docs/figures") / "accuracy.md"
PICTURE: Final = Path("docs/figures") / "accuracy.png"
LIKENESS: Final = Path("docs/figures") / "likeness.png"
# 10 5-tuples of each RNIC: five targets by two source ports.
HOUR: Final = Scenario(
    name="hour", seed=1, seconds=3_600,
    fabric=FabricShape(hosts=256, rails=8, segment_hosts=16, spines=8, tiers=3),
    jobs=(JobPlan(task_id="job-a", first_host=0, hosts=256),), targets=5, flows=2,
)  # fmt: skip
# What the comparison is about: higher is better.
COMPARED: Final = ("precision", "recall", "top1", "set_f1")


def _ratio(name: str, found: Score, bar: float, sense: Sense = ">=", *, runs: int) -> Figure:
    return Figure(
        figure=name, value=found.value, bar=bar, sense=sense, low=found.low, high=found.high,
        runs=runs,
    )  # fmt: skip


def _run(suite: str, seeds: int, diagnosers: Sequence[str], say: Say) -> list[Result]:
    wanted = list(scenarios(suite, seeds))
    found: list[Result] = []
    for number, results in enumerate(compare(wanted, diagnosers, workers=WORKERS), 1):
        found += results
        if number % 20 == 0 or number == len(wanted):
            say(f"{suite}: {number} of {len(wanted)} scenarios")
    return found


def _hard(case: Case) -> bool:
    return all(fault.hard for fault in case.faults)


def _double(case: Case) -> bool:
    return "-two-" in case.name


def likeness(runs: int, say: Say) -> list[Figure]:
    """Lay simulated healthy round trips beside those of the loopback lab."""
    found: list[float] = []
    for _ in range(runs):
        with scratch_folder() as folder, Pipeline(PipelineConfig(folder=folder)) as pipeline:
            pipeline.wait_ready()
            lab = recorded(pipeline, folder, say)
        ours, theirs = compare_shapes(lab, LIKENESS)
        for one in (ours, theirs):
            say(f"{one.name}: {one.paths} 5-tuples, median {one.median_ns / 1e3:.3g} µs, "
                f"sigma {one.sigma:.3g}")  # fmt: skip
            for what, share in one.telltales.items():
                say(f"  {what}: {share:.2%}")
        found.append(float(len(telling(ours, theirs))))
    what = "what tells simulated round trips from recorded ones"
    return [figure(what, found, "telltales", 0.0)]


def speed(runs: int, say: Say) -> list[Figure]:
    """Time an hour of 2,048 RNICs with 10 5-tuples each, simulator and cores."""
    took: list[float] = []
    for _ in range(runs):
        begin = time.perf_counter()
        outcome = run_world(stage(HOUR).world, processes=WORKERS)
        took.append(time.perf_counter() - begin)
        say(f"{outcome.probes:,} results in {took[-1]:.0f} s, {len(outcome.events)} transitions")
    return [figure("an hour of 2,048 RNICs, 74 M results, on 2 cores", took, "s", 120.0)]


def detection(runs: int, say: Say) -> list[Figure]:
    """Faults of every kind, alone and two at once, on the test suite."""
    results = _run("test", runs, (OURS,), say)
    BUILD_DIR.mkdir(parents=True, exist_ok=True)
    write_results(RESULTS, results)
    found = [r.case for r in results]
    hard, gray = [c for c in found if _hard(c)], [c for c in found if not _hard(c)]
    one, two = [c for c in found if not _double(c)], [c for c in found if _double(c)]
    every, on_hard, on_gray = scores(found), scores(hard), scores(gray)
    delays = [d / SECOND_NS for d in delays_ns(found, hard=True)]
    return [
        _ratio("precision, hard faults", on_hard["precision"], 0.999, runs=len(hard)),
        _ratio("recall, hard faults", every["recall_hard"], 0.999, runs=len(found)),
        _ratio("precision, with a gray fault", on_gray["precision"], 0.99, runs=len(gray)),
        _ratio("recall, gray faults", every["recall_gray"], 0.98, runs=len(found)),
        _ratio("right component first, one fault", scores(one)["top1"], 0.99, runs=len(one)),
        _ratio("right component first, two at once", scores(two)["top1"], 0.95, runs=len(two)),
        _ratio("right kind", every["kind"], 0.95, runs=len(found)),
        figure("delay of hard faults", delays, "s", 3.0),
    ]


def sealed(runs: int, say: Say) -> list[Figure]:
    """Worlds by an author who has not read the detectors."""
    found: list[Case] = []
    least_s: list[float] = []
    wanted = sealed_draws(runs)
    for drawn, case in zip(wanted, sealed_cases(wanted, workers=WORKERS), strict=True):
        found.append(case)
        least_s += _least_delays_s(drawn, case, say)
        matched = match(case.faults, case.verdicts)
        missed = ", ".join(fault.kind for fault in matched.missed)
        false = ", ".join(f"{v.kind} of {v.candidates[0]}" for v in matched.false)
        say(f"{case.name}: {len(matched.pairs)} of {len(case.faults)} found; "
            f"missed: {missed or 'none'}; false: {false or 'none'}")  # fmt: skip
    hard, gray = [c for c in found if _hard(c)], [c for c in found if not _hard(c)]
    every = scores(found)
    rows = [
        _ratio("sealed: precision, hard faults", scores(hard)["precision"], 0.999, runs=len(hard)),
        _ratio("sealed: recall, hard faults", every["recall_hard"], 0.999, runs=len(found)),
        _ratio("sealed: precision, with a gray fault", scores(gray)["precision"], 0.99,
               runs=len(gray)),
        _ratio("sealed: recall, gray faults", every["recall_gray"], 0.95, runs=len(found)),
        _ratio("sealed: right component first", every["top1"], 0.98, runs=len(found)),
        _ratio("sealed: right kind", every["kind"], 0.92, runs=len(found)),
    ]  # fmt: skip
    for what, is_hard, median_s, p90_s in (("hard", True, 2.0, 5.0), ("gray", False, 40.0, 90.0)):
        delays_s = [d / SECOND_NS for d in delays_ns(found, hard=is_hard)]
        p90 = [statistics.quantiles(delays_s, n=10)[-1]] if len(delays_s) > 1 else []
        rows += [
            figure(f"sealed: delay of {what} faults, median", delays_s, "s", median_s),
            figure(f"sealed: delay of {what} faults, p90", p90, "s", p90_s),
        ]
    least = statistics.quantiles(least_s, n=10)[-1] if len(least_s) > 1 else None
    rows.append(
        Figure(figure="sealed: the same, of a test that knows where and how much is lost",
               value=least, unit="s", runs=len(least_s))
    )  # fmt: skip
    days = sum(c.duration_ns for c in found) / SECOND_NS / 86_400
    pages = every["false_pages"].numerator / days
    return [*rows, figure("sealed: false pages a cluster and day", [pages], "", 0.1)]


def _least_delays_s(drawn: tuple[int, str], case: Case, say: Say) -> list[float]:
    """Return the least delay of any test for the gray faults that were found.

    0 for those that lose nothing: what is late tells more with each probe.
    """
    least_ns = least_delays_ns(draw_world(*drawn))
    opened_ns = {
        f.fault_id: v.opened_ns - f.begin_ns for f, v in match(case.faults, case.verdicts).pairs
    }
    found = []
    for fault in case.faults:
        if fault.hard:
            continue
        ours_ns, known = opened_ns.get(fault.fault_id), fault.fault_id in least_ns
        least = least_ns.get(fault.fault_id, 0.0)
        if known:
            needed = "more than it lasts" if least is None else f"{least / SECOND_NS:.0f} s"
            took = "missed" if ours_ns is None else f"{ours_ns / SECOND_NS:.0f} s"
            say(f"{case.name}: {fault.kind}: {took}; any test needs {needed} on average")
        if ours_ns is not None:
            lasts_ns = (fault.end_ns or fault.begin_ns + case.duration_ns) - fault.begin_ns
            found.append((lasts_ns if least is None else least) / SECOND_NS)
    return found


def gap(runs: int, say: Say) -> list[Figure]:
    """Subtract the sealed worlds' figures from those of the tuned suite."""
    del runs
    rows = {row.figure: row for row in kept_rows("accuracy", PAGE, COMMAND)}
    found = []
    for what in ("recall, hard faults", "recall, gray faults", "right kind"):
        tuned, foreign = rows.get(what), rows.get(f"sealed: {what}")
        if tuned is None or foreign is None or tuned.value is None or foreign.value is None:
            say(f"{what}: measure `detection` and `sealed` first")
            points = []
        else:
            points = [100 * (tuned.value - foreign.value)]
        found.append(figure(f"gap, {what}: tuned less sealed", points, "points", 2.0))
    return found


def healthy(runs: int, say: Say) -> list[Figure]:
    """Nothing but confounders: pages that nobody should have got."""
    found = [r.case for r in _run("healthy-month", runs, (OURS,), say)]
    pages = scores(found)["false_pages"]
    count = pages.numerator
    hours = sum(c.duration_ns for c in found) / SECOND_NS / 3600
    say(f"{count:g} false pages in {hours:.0f} hours of clusters full of confounders")
    what = f"false pages, {hours:.0f} hours with 20 confounders each"
    return [Figure(figure=what, value=count, bar=1.0, runs=len(found))]


def baselines(runs: int, say: Say) -> list[Figure]:
    """Ours less the best baseline, on the same records."""
    results = _run("test", runs, EVERYONE, say)
    BUILD_DIR.mkdir(parents=True, exist_ok=True)
    write_results(AGAINST, results)
    write_report(results, BUILD_DIR / "accuracy.html", PICTURE, title="Arena, test suite")
    found = {name: scores(cases) for name, cases in by_diagnoser(results).items()}
    rows = []
    for name in COMPARED:
        best = max(by[name].value or 0.0 for other, by in found.items() if other != OURS)
        mine = found[OURS][name].value or 0.0
        what = f"{name.replace('_', ' ')}: ours less the best baseline's"
        rows.append(figure(what, [mine - best], "", 0.0, ">="))
    return rows


def skeleton(runs: int, say: Say) -> list[Figure]:
    """Skeletons of simulated jobs, captures at 10 Hz on one tick apart."""
    outcomes = []
    for number, case in enumerate(cases("test", runs), 1):
        outcomes.append(measure(case, ("ours",)))
        if number % 20 == 0:
            say(f"skeletons: {number} of {runs} captures")
    found = summary(outcomes)
    every = found["all"]["all"]["ours"]
    tick = found["all"]["10 Hz, same tick"]["ours"]
    bars: tuple[tuple[str, Mapping[str, Any], str, float, Sense], ...] = (
        ("skeleton: pairs or peers found", every, "found", 0.99, ">="),
        ("skeleton: list length against the truth", every, "length", 3.0, "<="),
        ("skeleton: DP and PP exact, 10 Hz, same tick", tick, "dp+pp", 0.98, ">="),
        ("skeleton: order of stages exact, 10 Hz, same tick", tick, "order", 0.95, ">="),
    )
    return [
        Figure(
            figure=name, value=by[key]["value"], bar=bar, sense=sense, low=by[key]["low"],
            high=by[key]["high"], runs=by[key]["count"],
        )
        for name, by, key, bar, sense in bars
    ]  # fmt: skip


def sealed_skeletons(runs: int, say: Say) -> list[Figure]:
    """Skeletons of captures by an author who has not read the inference."""
    found: list[sealed_jobs.SealedScore] = []
    for seed, family in sealed_jobs.draws(runs):
        found.append(sealed_jobs.measure(seed, family))
        jobs = "; ".join(
            " ".join(f"{name} {value:.3g}" for name, value in job.figures.items())
            + f" confidence {job.confidence:.2f}"
            for job in found[-1].jobs
        )
        say(f"{found[-1].name}: {jobs}")
    bars: tuple[tuple[str, str, float], ...] = (
        ("(endpoint, kind) covered", "coverage", 0.99),
        ("DP and PP exact", "dp+pp", 0.9),
        ("order of stages exact", "order", 0.9),
    )
    rows = []
    for what, name, bar in bars:
        values = [[j.figures[name] for j in one.jobs if name in j.figures] for one in found]
        ratio = mean(values)
        rows.append(
            Figure(figure=f"sealed skeletons: {what}", value=ratio.value, bar=bar, sense=">=",
                   low=ratio.low, high=ratio.high, runs=len(found))
        )  # fmt: skip
    lengths = [job.figures["length"] for one in found for job in one.jobs]
    long = sum(length > sealed_jobs.LONG_LIST for length in lengths)
    said, base = sealed_jobs.brier(found)
    return [
        *rows,
        figure("sealed skeletons: list length against the truth", lengths, "", 3.0),
        figure("sealed skeletons: lists above ten times the truth", [float(long)], "", 0.0),
        figure("sealed skeletons: Brier score against that of the mean",
               [said / base] if base else [], "", 0.5),
    ]  # fmt: skip


def skeleton_speed(runs: int, say: Say) -> list[Figure]:
    """2,048 RNICs, 300 s at 10 Hz, one core."""
    found = [bench()["task known"] for _ in range(runs)]
    say(f"2,048 RNICs x 300 s x 10 Hz: {statistics.median(f['cpu_s'] for f in found):.1f} s of CPU")
    peaks = [f["peak_rss_mib"] for f in found]
    cpu_s = [f["cpu_s"] for f in found]
    return [
        figure("skeleton, 2,048 RNICs × 300 s × 10 Hz: CPU", cpu_s, "s", 10.0),
        figure("the same: peak memory with the table", peaks, "MiB", 2048.0),
    ]


PARTS: Final[Parts] = {
    "likeness": likeness,
    "speed": speed,
    "diagnose": diagnose_speed,
    "detection": detection,
    "healthy-month": healthy,
    "baselines": baselines,
    "skeleton": skeleton,
    "skeleton-speed": skeleton_speed,
    "sealed": sealed,
    "gap": gap,
    "sealed-skeletons": sealed_skeletons,
}
