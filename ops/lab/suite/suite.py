"""`lab suite`: every fault that a kind of lab has, each against the verdict it must get."""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ops.demo.scoreboard import WATCHED
from ops.lab.kind import lab_kind
from ops.lab.lab import Lab, LabConfig
from ops.lab.shape import LabShape
from ops.lab.suite.cases import SUITE, Case
from ops.lab.suite.faults import SETTLE_S, FaultBench, Outcome
from ops.lab.suite.places import placed, places
from ops.log.watch import Watch
from ops.running.pipeline import (
    LAB_TABLES,
    LOCALIZER,
    SKELETON,
    WORKER,
    Pipeline,
    PipelineConfig,
    Table,
)

# A window is judged against five windows or more before it.
BASELINE_S: Final = 90.0
RIGHT_SHARE: Final = 0.95
# A given broker may hold live topics: the suite keeps to its own.
PREFIX: Final = "suite."
# Each run begins elsewhere, so that in as many runs as there are places each case meets all.
NEXT_RUN: Final = 5

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One injection of a case."""

    case: Case
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """All injections in one kind of lab, and the cases that it has no fault for.

    `cut_short` says why the rest was not put in: the lab did not become calm again. `next_turn`
    is the first turn of which nothing was put in.
    """

    lab: str
    runs: tuple[Run, ...]
    lacking: tuple[str, ...]
    cut_short: str | None = None
    next_turn: int = 1

    @property
    def right_share(self) -> float:
        """Share of the injections whose component was named right."""
        return sum(r.outcome.right for r in self.runs) / len(self.runs) if self.runs else 0.0

    @property
    def kind_share(self) -> float:
        """Share of the injections whose kind was named right."""
        return sum(r.outcome.kind_right for r in self.runs) / len(self.runs) if self.runs else 0.0

    @property
    def hard_delays_s(self) -> list[float]:
        """Seconds from a hard fault to its verdict; one that never came counts as its timeout."""
        return [
            r.case.timeout_s if r.outcome.open_delay_s is None else r.outcome.open_delay_s
            for r in self.runs
            if r.case.hard
        ]

    @property
    def hard_median_s(self) -> float | None:
        """Median of them; None without hard faults."""
        return statistics.median(self.hard_delays_s) if self.hard_delays_s else None

    @property
    def waited_s(self) -> dict[str, float]:
        """Where the time of all injections went, in seconds."""
        return {
            "calm": sum(r.outcome.calm_s for r in self.runs),
            "verdict": sum(
                r.case.timeout_s if r.outcome.open_delay_s is None else r.outcome.open_delay_s
                for r in self.runs
            ),
            "settle": SETTLE_S * len(self.runs),
            "resolve": sum(r.outcome.resolve_delay_s or 0.0 for r in self.runs),
        }

    @property
    def met(self) -> bool:
        """Whether the bars of that kind of lab are met."""
        bar_s, median_s = lab_kind(self.lab).hard_bar_s, self.hard_median_s
        quick = bar_s is None or (median_s is not None and median_s <= bar_s)
        return quick and self.right_share >= RIGHT_SHARE and self.cut_short is None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "lab": self.lab,
            "right_share": self.right_share,
            "kind_share": self.kind_share,
            "hard_median_s": self.hard_median_s,
            "met": self.met,
            "cut_short": self.cut_short,
            "lacking": list(self.lacking),
            "waited_s": self.waited_s,
            "runs": [
                asdict(r.outcome) | {"target": r.case.target, "hard": r.case.hard}
                for r in self.runs
            ],
        }


@contextmanager
def pipeline(
    bootstrap: str | None,
    say: Say,
    *,
    tables: Mapping[str, Table] = LAB_TABLES,
    processes: tuple[str, ...] = (WORKER, SKELETON, LOCALIZER),
) -> Iterator[Pipeline]:
    """Give processes of the pipeline with these settings; they are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="skeletonhunter-suite-") as folder:
        config = PipelineConfig(
            folder=Path(folder),
            bootstrap=bootstrap,
            prefix=PREFIX if bootstrap else "",
            processes=processes,
            tables=tables,
        )
        say("starting the pipeline" + (f" with {bootstrap}" if bootstrap else " with Apache Kafka"))
        with Pipeline(config) as started:
            started.wait_ready()
            yield started


@contextmanager
def lab_beside(
    started: Pipeline, kind: str, say: Say, *, shape: LabShape | None = None
) -> Iterator[tuple[Lab, Callable[[], None]]]:
    """Give a lab on a pipeline's broker, and a check of both; `shape` None: that of the suite.

    The check raises ChildDiedError if a process has ended by itself.
    """
    config = LabConfig(
        settings=started.settings,
        kind=kind,
        name="suite",
        shape=shape or lab_kind(kind).suite,
    )
    with Lab(config, say=say) as lab:

        def check() -> None:
            lab.check()
            started.group.check()

        yield lab, check


@contextmanager
def bench(
    kind: str,
    bootstrap: str | None,
    say: Say,
    *,
    shape: LabShape | None = None,
    tables: Mapping[str, Table] = LAB_TABLES,
) -> Iterator[FaultBench]:
    """Give a whole pipeline around a lab of that kind; all of it is gone afterwards.

    `shape` None: that of the suite. `tables` are the settings of the pipeline's processes.
    """
    with (
        pipeline(bootstrap, say, tables=tables) as started,
        Watch(started.settings, WATCHED) as watch,
        lab_beside(started, kind, say, shape=shape) as (lab, check),
    ):
        yield FaultBench(lab, watch, check)


def run_suite(
    kind: str,
    *,
    runs: int,
    bootstrap: str | None,
    say: Say,
    cases: Sequence[Case] = SUITE,
    baseline_s: float = BASELINE_S,
    first: int = 0,
    found: Callable[[int, Run], None] | None = None,
    ended: Callable[[int, str | None], None] | None = None,
) -> SuiteResult:
    """Inject every fault in the turns from `first` to `runs`, in a lab of that kind.

    Each time it is at another place of the plan that looks the same. `found` is told of each
    injection with its turn, `ended` of the end of a turn and why it was cut short.
    """
    mine = [case for case in cases if case.in_lab(kind)]
    lacking = tuple(case.name for case in cases if not case.in_lab(kind))
    put_in: list[Run] = []
    cut_short: str | None = None
    turn = first
    with bench(kind, bootstrap, say) as faults:
        say(f"{baseline_s:.0f} s of health first")
        faults.healthy(baseline_s)
        names = places(lab_kind(kind).suite)
        while turn < runs and cut_short is None:
            for number, case in enumerate(mine):
                here = placed(case, names[(number + NEXT_RUN * turn) % len(names)])
                try:
                    outcome = faults.run(here)
                except TimeoutError as error:
                    say(f"{turn + 1}/{runs} {case.name} at {here.target}: not put in, {error}")
                    cut_short = str(error)
                    break
                put_in.append(Run(here, outcome))
                if found is not None:
                    found(turn, put_in[-1])
                say(f"{turn + 1}/{runs} {case.name} at {here.target}: {sentence(outcome)}")
            if ended is not None:
                ended(turn, cut_short)
            turn += 1
    return SuiteResult(
        lab=kind, runs=tuple(put_in), lacking=lacking, cut_short=cut_short, next_turn=turn
    )


def sentence(outcome: Outcome) -> str:
    """Return what came of an injection, for a line of progress."""
    after = "no verdict" if outcome.open_delay_s is None else f"{outcome.open_delay_s:.1f} s"
    return f"{'right' if outcome.right else 'WRONG'}, {after}, {verdict(outcome)}"


def verdict(outcome: Outcome) -> str:
    """Return the verdicts of an injection."""
    return ", ".join(f"{c}: {kind}" for c, _, kind in outcome.verdicts) or "none"
