"""What the lines of reading agents come to, and that each bar is missed by what is too much."""

from dataclasses import replace
from typing import Any

import pytest

from ops.bench.rig.growth import Curve
from ops.bench.rig.report import Figure, figure
from ops.bench.scale import list_reading
from ops.bench.scale.list_reading import AGENTS, Reading, Run, figures, reading

GOOD = Reading(
    flows=54.0, connections=2, start_bytes=[1e4], quiet_hz=[200.0], churn_hz=[400.0],
    cpu_share=1e-4, active_s=[0.2] * 200,
)  # fmt: skip


def test_rates_are_of_the_time_before_and_during_churn() -> None:
    """Two agents: CPU is what churn adds, for each; waits before the churn do not count."""
    events: list[dict[str, Any]] = [{"event": "active", "waited_s": [9.0]}, {"event": "ready"}]
    for second in range(60):
        churn = max(0, second - 29)
        events += [
            {
                "event": "going", "at_s": 100.0 + second, "cpu_s": 0.1 * second + 0.2 * churn,
                "read": [50 * second, 10 * second + 300 * churn], "flows": [40, 44],
                "connections": 2,
            }
        ]  # fmt: skip
    events.insert(-2, {"event": "active", "waited_s": [0.5, 0.7]})
    found = reading(events, 130.0, 160.0)
    assert found.quiet_hz == pytest.approx([50, 10])
    assert found.churn_hz == pytest.approx([50, 310])
    assert found.cpu_share == pytest.approx(0.1)
    assert (found.flows, found.active_s, found.start_bytes) == (42, [0.5, 0.7], [500, 100])


@pytest.mark.parametrize(
    ("worse", "missed"),
    [
        ({}, None),
        ({"churn_hz": [2_500.0]}, "reads"),
        ({"active_s": [0.2] * 150 + [3.0] * 50}, "a target is active after its registration, p99"),
        ({"cpu_share": 1e-3}, "CPU for others' churn, of a core"),
    ],
)
def test_a_bar_is_missed_by_what_is_too_much(
    monkeypatch: pytest.MonkeyPatch, worse: dict[str, object], missed: str | None
) -> None:
    """In the published cluster, and by nothing else."""
    monkeypatch.setattr(list_reading, "slope_figure", lambda *_: figures_slope())
    bad = replace(GOOD, **worse)  # type: ignore[arg-type] # fields of the test's own table
    runs = {agents: [Run(agents, busy=bad, calm=bad)] for agents in AGENTS}
    rows = figures(runs, lambda _: None)
    assert [r.figure.partition(": ")[2] for r in rows if not r.met] == ([missed] if missed else [])


def figures_slope() -> Figure:
    """Return the slope of costs that do not grow, without a picture."""
    curve = Curve(name="x", axis="agents", unit="bytes/s", sizes=(1.0, 2.0), costs=(3.0, 3.0))
    return figure("x: slope", [curve.slope], bar=list_reading.SLOPE_BAR)
