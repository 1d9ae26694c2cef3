"""Good 5-tuples: those of agents that are late are hidden, and clear nothing."""

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
