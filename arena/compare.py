"""Runs a suite through our pipeline and every baseline, all on the same records.

What a diagnoser says depends on nothing but the records, so that the same scenarios give
the same results in any order, with any number of processes.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final, Protocol

from arena.baselines.catalogue import BASELINES, open_diagnoser
from arena.baselines.external import TIMEOUT_S
from arena.baselines.observing import WINDOW_NS, Observer, Window
from arena.baselines.plugin import Diagnoser, PluginError, VerdictBook
from arena.direct import DirectRun
from arena.faults.truth import Verdict, verdicts_of
from arena.reporting.results import Result
from arena.run import feed
from arena.scenarios.scenario import Scenario, stage
from arena.scoring import Case
from arena.simulation.timeline import Slice, timeline
from localizer.config import CoreConfig
from schemas.records import FaultEvent
from schemas.units import SECOND_NS
from streams.config import DetectionConfig

OURS: Final = "ours"
EVERYONE: Final = (OURS, *BASELINES)


class Contestant(Protocol):
    """Someone who is shown a scenario, second by second."""

    name: str

    def second(self, part: Slice) -> None:
        """Observe a second."""

    def finish(self) -> tuple[Verdict, ...]:
        """Return the verdicts when nothing more comes."""

    def close(self) -> None:
        """Let go of what is held."""


class Ours:
    """Our own pipeline straight through its cores, as in `arena.run.run_world`."""

    name = OURS

    def __init__(self, cluster: str) -> None:
        self._direct = DirectRun(cluster, DetectionConfig(), CoreConfig(cluster=cluster))
        self._events: list[FaultEvent] = []

    def second(self, part: Slice) -> None:
        """Observe a second, and decide."""
        self._events += feed(self._direct, part)

    def finish(self) -> tuple[Verdict, ...]:
        """Decide the rest."""
        self._events += self._direct.finish()
        return tuple(verdicts_of(self._events))

    def close(self) -> None:
        """Nothing is held."""


class Guest:
    """A diagnoser with its windows."""

    def __init__(self, diagnoser: Diagnoser, *, name: str) -> None:
        self.name = name
        self._diagnoser = diagnoser
        self._observer = Observer(int(getattr(diagnoser, "window_ns", WINDOW_NS)))
        self._book = VerdictBook(name)

    def second(self, part: Slice) -> None:
        """Show it the window that ends, if one does."""
        self._show(self._observer.second(part))

    def finish(self) -> tuple[Verdict, ...]:
        """Show it what is left."""
        self._show(self._observer.finish())
        return self._book.verdicts()

    def close(self) -> None:
        """Close the diagnoser, if it can be."""
        close = getattr(self._diagnoser, "close", None)
        if callable(close):
            close()

    def _show(self, windows: list[Window]) -> None:
        for window in windows:
            self._book.record_window(window, self._diagnoser.observe(window))


def compare(
    scenarios: Iterable[Scenario],
    diagnosers: Sequence[str] = EVERYONE,
    *,
    workers: int = 1,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[list[Result]]:
    """Yield what each diagnoser made of each scenario, in the scenarios' order.

    Parameters
    ----------
    diagnosers
        `ours`, names of baselines, `module:Class`, or command lines.
    workers
        Processes; scenarios are dealt out to them.
    timeout_s
        How long a command may take over a window.

    Raises
    ------
    PluginError
        If a diagnoser cannot be had or fails; the message names it and the scenario.
    """
    run = partial(run_scenario, diagnosers=tuple(diagnosers), timeout_s=timeout_s)
    if workers <= 1:
        yield from map(run, scenarios)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(run, scenarios)


def run_scenario(
    scenario: Scenario, diagnosers: Sequence[str] = EVERYONE, *, timeout_s: float = TIMEOUT_S
) -> list[Result]:
    """Run one scenario for each diagnoser."""
    staged = stage(scenario)
    contestants: list[Contestant] = []
    probes = 0
    try:
        for spec in diagnosers:
            contestants.append(_contestant(spec, staged.world.name, timeout_s))
        for part in timeline(staged.world):
            probes += part.probes
            for contestant in contestants:
                contestant.second(part)
        said = [contestant.finish() for contestant in contestants]
    except PluginError as error:
        raise PluginError(f"scenario {scenario.name}: {error}") from error
    finally:
        for contestant in contestants:
            contestant.close()
    return [
        Result(
            diagnoser=contestant.name,
            seed=scenario.seed,
            case=Case(
                name=scenario.name,
                faults=staged.truth,
                verdicts=verdicts,
                duration_ns=scenario.seconds * SECOND_NS,
                probes=probes,
            ),
        )
        for contestant, verdicts in zip(contestants, said, strict=True)
    ]


def _contestant(spec: str, cluster: str, timeout_s: float) -> Contestant:
    if spec == OURS:
        return Ours(cluster)
    diagnoser = open_diagnoser(spec, timeout_s=timeout_s)
    return Guest(diagnoser, name=diagnoser.name)
