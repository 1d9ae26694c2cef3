"""Good 5-tuples: those of agents that are late are hidden, and clear nothing."""

import numpy as np

from localizer.inference.causes import Cause, Columns, Reason
from localizer.inference.detection_lag import Shown
from localizer.inference.good_flows import GoodFlows
from localizer.network.flow_index import FlowIndex


def test_what_late_agents_would_say_is_hidden() -> None:
    """Neither good nor bad, until they are heard or missed."""
    index = FlowIndex()
    for number in range(6):
        crossed = ("leaf", "cable") if number % 2 else ("leaf",)
        index.set_flow(("e0", "e1", number), crossed, f"agent-{number // 2}", "agent-9")
    bad = [("e0", "e1", 0)]
    every = GoodFlows.of(index, bad, [])
    assert [every.hidden_at(name) for name in ("leaf", "cable")] == [0, 0]
    one = GoodFlows.of(index, bad, ["agent-0"])
    assert [one.hidden_at(name) for name in ("leaf", "cable", "unknown")] == [1, 1, 0]
    assert int(one.crossing[index.components["leaf"]]) == 4
    none = GoodFlows.of(index, bad, ["agent-9"])
    assert [none.hidden_at(name) for name in ("leaf", "cable")] == [5, 3]
    assert none.total == 0


def test_sets_of_rows_with_one_lag_each_are_together_all_good_ones() -> None:
    """Counts by column add up, and each row has the lag of its prober."""
    index = FlowIndex()
    for number in range(12):
        crossed = ("leaf", "cable") if number % 2 else ("leaf",)
        index.set_flow(("e0", "e1", number), crossed, f"agent-{number // 3}", "agent-9")
    good = GoodFlows.of(index, [("e0", "e1", 4)], [])
    causes = tuple(Cause.of(Reason.COMPONENT, name) for name in ("cable", "leaf"))
    shown = Shown(0.05, {"agent-1": 0.5, "agent-2": 0.5, "agent-3": 0.98})
    sets = good.columns(Columns.of(causes), len(causes), shown)
    found = {rows.lag: (rows.total, rows.counts.tolist()) for rows in sets}
    assert found == {0.05: (3, [1.0, 3.0]), 0.5: (5, [3.0, 5.0]), 0.98: (3, [2.0, 3.0])}
    by_hand = [
        shown.of(index.prober(place)) for place in range(len(index)) if bool(good.mask[place])
    ]
    assert good.lags(np.flatnonzero(good.mask), good.lag_of(shown)).tolist() == by_hand
    (one,) = good.columns(Columns.of(causes), len(causes), Shown(0.98))
    assert (one.lag, one.total, one.counts.tolist()) == (0.98, 11, [6.0, 11.0])
    assert good.alike(["leaf", "unknown"]) == 3.0
