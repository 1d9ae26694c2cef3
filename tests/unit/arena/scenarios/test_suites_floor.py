"""Floors under the gains: a part of the smoke suite, and a quarter of an hour of confounders.

`make bench-accuracy` measures; this only keeps a change from losing what was won.
"""

import pytest

from arena.scenarios.scenario import Scenario
from arena.scenarios.suites import scenarios
from arena.scoring import scores
from tests.unit.arena.judging import judge

pytestmark = pytest.mark.slow

# Every fifth kind.
PART = [s for number, s in enumerate(scenarios("smoke", 1)) if number % 5 == 0]


@pytest.mark.parametrize("scenario", PART, ids=lambda scenario: scenario.name)
def test_smoke_stays_right(scenario: Scenario) -> None:
    """Everything found, nothing false, the right component first, the right kind."""
    found = scores([judge(scenario).case])
    for name in ("precision", "recall", "top1", "kind", "layer"):
        assert found[name].value == 1.0, found[name]


def test_confounders_call_nobody() -> None:
    """Crashes, maintenance, starvation, wrong clocks, bursts: no page."""
    (healthy,) = scenarios("healthy-month", 1, first_seed=29_000_000)
    assert scores([judge(healthy).case])["false_pages"].numerator == 0
