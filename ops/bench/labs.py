"""`make bench-labs`: the suite of faults in every kind of lab that this machine can have.

Then the lab of namespaces is watched with its training job for ten minutes, and for an hour; and
labelled recordings of such labs are diagnosed: those that are kept, and new ones.

Ten turns in an emulated lab take hours. Each injection is written to disk as it ends, so that a
run that was interrupted can be resumed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from arena.scoring import delays_ns, scores
from localizer.config import build_config as localizer_config
from ops.bench.rig.report import BUILD_DIR, Figure, Parts, Say, Sense, figure, scratch_folder
from ops.lab.fault_kinds import NETNS_LAB
from ops.lab.kind import LAB_KINDS
from ops.lab.suite.cases import SUITE
from ops.lab.suite.record import record_suite
from ops.lab.suite.suite import RIGHT_SHARE, Run, run_suite
from ops.lab.suite.watch import FIRST_FAULT_S, WatchResult, run_watch
from ops.recording.labelled import Judged, judge_folder
from schemas.units import SECOND_NS
from streams.config import build_config as worker_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What the figures need of one injection; a fault without verdict has its timeout as delay."""

    turn: int
    case: str
    target: str
    hard: bool
    delay_s: float
    right: bool
    kind_right: bool
    verdicts: list[list[str]]


class Turns:
    """The turns of one kind of lab: `PATH-LAB.jsonl`, a line for each fault and each turn's end."""

    def __init__(self, folder: Path, lab: str) -> None:
        self.path = folder / f"labs-{lab}-runs.jsonl"

    def begin(self, *, resume: bool) -> int:
        """Return the number of the turn to go on with.

        Without `resume` what was kept is dropped, with it only a turn that did not end.
        """
        kept: list[str] = []
        ended = 0
        if resume and self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            for number, line in enumerate(lines, start=1):
                if "ended" in json.loads(line):
                    kept, ended = lines[:number], json.loads(line)["ended"] + 1
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(kept), encoding="utf-8")
        return ended

    def add_injection(self, turn: int, run: Run) -> None:
        """Write one injection."""
        outcome = run.outcome
        late_s = run.case.timeout_s if outcome.open_delay_s is None else outcome.open_delay_s
        self._write(
            asdict(
                Injection(
                    turn=turn,
                    case=run.case.name,
                    target=run.case.target,
                    hard=run.case.hard,
                    delay_s=late_s,
                    right=outcome.right,
                    kind_right=outcome.kind_right,
                    verdicts=[list(verdict) for verdict in outcome.verdicts],
                )
            )
        )

    def end(self, turn: int, cut_short: str | None) -> None:
        """Note that a turn is over, and why some of its faults were not put in."""
        self._write({"ended": turn, "cut_short": cut_short})

    def runs(self) -> Iterator[Injection]:
        """Give what was kept, in its order."""
        for line in self.path.read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            if "ended" not in fields:
                yield Injection(**fields)

    def _write(self, fields: dict[str, object]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


COMMAND: Final = "make bench-labs"
RUNS: Final = 10
# `--resume` is theirs: two hours and more in the emulated lab.
RESUMES: Final = True


def suite(lab: str, runs: int, say: Say, *, resume: bool) -> list[Figure]:
    """Run the suite in one kind of lab; a machine that cannot have it gives no figures.

    Where a lab does not become calm again, the rest of the turn is left out and the next turn
    has a new one.
    """
    lacking = LAB_KINDS[lab].missing()
    if lacking is not None:
        say(f"no {lab} lab here: {lacking}")
        return []
    turns = Turns(BUILD_DIR, lab)
    turn = turns.begin(resume=resume)
    while turn < runs:
        result = run_suite(
            lab,
            runs=runs,
            first=turn,
            bootstrap=None,
            say=say,
            found=turns.add_injection,
            ended=turns.end,
        )
        turn = result.next_turn
    return figures(lab, runs, list(turns.runs()))


def figures(lab: str, runs: int, kept: Sequence[Injection]) -> list[Figure]:
    """Return the figures of what was kept of so many turns."""
    planned = runs * sum(case.in_lab(lab) for case in SUITE)
    put_in = [float(len(kept))]
    rows = [
        # Fewer, where the lab did not become calm again after one of them.
        figure(f"{lab} lab: faults put in", put_in, "", planned, ">="),
        _share(f"{lab} lab: right component", [float(run.right) for run in kept]),
        _share(f"{lab} lab: right kind", [float(run.kind_right) for run in kept]),
    ]
    bar_s = LAB_KINDS[lab].hard_bar_s
    if bar_s is not None:
        name = f"{lab} lab: hard fault → opened, median"
        delays_s = [run.delay_s for run in kept if run.hard]
        rows.append(figure(name, delays_s, "s", bar_s))
    return rows


def _share(name: str, right: list[float]) -> Figure:
    row = figure(name, right, "of runs", RIGHT_SHARE, ">=")
    return replace(row, value=sum(right) / len(right) if right else None)


WATCH_S: Final = 600.0
HOUR_S: Final = 3_600.0
# So that an hour has thirty, after the first three minutes.
MOST_S_A_FAULT: Final = 114.0
# The first one, which is right, and two that only have better pairs.
MOST_PUBLISHED: Final = 3


def watch(name: str, seconds: float, runs: int, say: Say, *, resume: bool) -> list[Figure]:
    """Watch the lab of namespaces and its training job for so long, so many times."""
    lacking = LAB_KINDS[NETNS_LAB].missing()
    if lacking is not None or resume:
        say(f"no watch: {lacking or 'it cannot be resumed'}")
        return []
    results = [run_watch(NETNS_LAB, seconds=seconds, say=say) for _ in range(runs)]
    return watch_figures(name, seconds, results)


def watch_figures(name: str, seconds: float, results: Sequence[WatchResult]) -> list[Figure]:
    """Return the figures of some watches of that length; the worst counts."""

    def worst(what: str, values: list[float], bar: float, sense: Sense = "<=") -> Figure:
        return figure(f"{name}: {what}", values, "", bar, sense, worst=True)

    right = [float(run.outcome.right) for result in results for run in result.runs]
    least = (seconds - FIRST_FAULT_S) // MOST_S_A_FAULT
    return [
        worst("skeletons published", [float(len(r.published)) for r in results], MOST_PUBLISHED),
        worst("wrong skeletons", [float(r.wrong) for r in results], 0),
        worst("targets across rails", [float(r.across) for r in results], 0),
        worst("faults put and healed", [float(len(r.runs)) for r in results], least, ">="),
        worst("false verdicts", [float(r.false_verdicts) for r in results], 0),
        worst("times not calm in time", [float(r.not_calm) for r in results], 0),
        worst("watches cut short", [float(r.cut_short is not None) for r in results], 0),
        replace(
            figure(f"{name}: hard faults, right and alone", right, "", 1.0, ">="),
            value=sum(right) / len(right) if right else None,
        ),
        figure(f"{name}: load of the machine, a processor", [x for r in results for x in r.loads]),
    ]


KEPT: Final = Path("tests") / "data" / "labelled"


def kept(runs: int, say: Say, *, resume: bool) -> list[Figure]:  # noqa: ARG001 - each run says the same
    """Diagnose the labelled recordings that are kept with the tests."""
    return recorded_figures("kept recordings", _judge(KEPT, say))


def record(runs: int, say: Say, *, resume: bool) -> list[Figure]:
    """Record the faults of the lab of namespaces so many times, and diagnose the recordings."""
    lacking = LAB_KINDS[NETNS_LAB].missing()
    if lacking is not None or resume:
        say(f"no recording: {lacking or 'it cannot be resumed'}")
        return []
    found: list[Judged] = []
    for _ in range(runs):
        with scratch_folder() as folder:
            record_suite(NETNS_LAB, folder, say=say)
            found += _judge(folder, say)
    return recorded_figures("netns lab recorded", found)


def _judge(folder: Path, say: Say) -> list[Judged]:
    detection, localizer = worker_config({}, {}).detection(), localizer_config({}, {})
    return list(judge_folder(folder, detection, localizer, say))


def recorded_figures(name: str, found: Sequence[Judged]) -> list[Figure]:
    """Return the scores of labelled recordings; their bars are those of the arena's."""
    cases = [one.case for one in found]
    ratios = scores(cases)

    def ratio(what: str, score: str, bar: float) -> Figure:
        got = ratios[score]
        samples = [] if got.value is None else [got.value]
        row = figure(f"{name}: {what}", samples, "", bar, ">=")
        return replace(row, low=got.low, high=got.high, runs=round(got.denominator))

    def delay(what: str, bar_s: float, *, hard: bool) -> Figure:
        waited_s = [ns / SECOND_NS for ns in delays_ns(cases, hard=hard)]
        return figure(f"{name}: {what}", waited_s, "s", bar_s)

    pages = [float(sum(v.pages for v in one.matching.false)) for one in found]
    return [
        ratio("hard faults found", "recall_hard", 0.999),
        ratio("gray faults found", "recall_gray", 0.95),
        ratio("verdicts that answer a fault", "precision", 0.99),
        ratio("right component first", "top1", 0.98),
        ratio("right kind", "kind", 0.92),
        figure(f"{name}: false pages", [sum(pages)], "", 0),
        delay("hard fault → opened, median", 2.0, hard=True),
        delay("gray fault → opened, median", 40.0, hard=False),
    ]


PARTS: Final[Parts] = {name: partial(suite, name) for name in LAB_KINDS} | {
    "watch": partial(watch, "netns lab watched", WATCH_S),
    "hour": partial(watch, "netns lab, one hour", HOUR_S),
    "kept": kept,
    "record": record,
}
DEFAULT_RUNS: Final[Mapping[str, int]] = {"watch": 1, "hour": 1, "kept": 1, "record": 1}
