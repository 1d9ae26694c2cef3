"""Scenarios run, matched with their truth: cases for the scores."""

from dataclasses import dataclass

from arena.faults.truth import verdicts_of
from arena.run import run_world
from arena.scenarios.scenario import Scenario, stage
from arena.scoring import Case
from schemas.records import FaultEvent
from schemas.units import SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A scenario with its case and the transitions behind it."""

    scenario: Scenario
    case: Case
    events: tuple[FaultEvent, ...]


def judge(scenario: Scenario) -> Judged:
    """Run one scenario through the pipeline's cores, and put what it says beside the truth."""
    staged = stage(scenario)
    outcome = run_world(staged.world)
    case = Case(
        name=scenario.name,
        faults=staged.truth,
        verdicts=tuple(verdicts_of(outcome.events)),
        duration_ns=scenario.seconds * SECOND_NS,
        probes=outcome.probes,
    )
    return Judged(scenario=scenario, case=case, events=outcome.events)
