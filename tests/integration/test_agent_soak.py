"""A short soak: what `make soak` does for an hour, in less than a minute."""

from pathlib import Path

import pytest

from ops.bench.agent.rig import AgentRig, Shape
from ops.bench.agent.soak import HOUR_S, KB, MIN_SAMPLES, growth_bar_kb_h, run, slope

pytestmark = pytest.mark.broker

SECONDS = 20.0


def test_an_agents_memory_stands_still_over_restarts_of_the_broker(tmp_path: Path) -> None:
    """Coarsely what an hour finds sharply: some kilobytes kept at each probe, say."""
    with AgentRig(tmp_path, Shape()) as rig:
        times, rss = run(rig, SECONDS, print)
        beat = rig.output.heartbeat
    # A machine that stalls takes fewer samples in the same time; a slope needs some.
    assert len(rss) >= MIN_SAMPLES / 3
    assert slope(times, rss) * HOUR_S / KB < growth_bar_kb_h(SECONDS)
    assert beat is not None
    assert beat.targets_active == 80
