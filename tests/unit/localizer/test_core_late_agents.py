"""Agents whose heartbeats are late when something breaks: what they do not say clears nobody."""

import pytest

from localizer.config import CoreConfig
from localizer.inference.good_flows import GoodFlows
from schemas.units import SECOND_NS
from tests.unit.localizer.simlab import CLUSTER, SimLab

LINK = "link:leaf:p0-0--spine:0"


@pytest.mark.parametrize("hidden", [0, 1_000])
def test_a_verdict_waits_for_agents_that_are_late_but_not_for_ever(
    hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where most 5-tuples are theirs, any component on all bad ones would look cut off."""
    lab = SimLab(seed=1)
    lab.run(20)
    began = lab.now
    lab.effects.links[LINK] = (1.0, 0)
    lab.run(10)
    monkeypatch.setattr(GoodFlows, "hidden_at", lambda *_: hidden)
    config = CoreConfig(cluster=CLUSTER)
    first = lab.verdicts(config)[0]
    assert first.component_id == LINK
    wait_ns = config.stall_ns if hidden else 0
    assert wait_ns <= first.event_at * 1000 - began <= wait_ns + 2 * SECOND_NS
