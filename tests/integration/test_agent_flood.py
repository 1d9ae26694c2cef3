"""A flood at an agent's port costs neither its own probes nor those of its peers."""

from pathlib import Path

import pytest

from ops.bench.agent.attack import KEY, two_agents
from schemas.enums import AgentState

pytestmark = pytest.mark.broker

RATE_HZ = 100_000
SECONDS = 6.0


@pytest.mark.parametrize(
    ("key", "floods"),
    [(KEY, [("foreign-key", 1)]), (None, [("garbage", 1), ("unsealed", 64)])],
    ids=["sealed", "unsealed"],
)
def test_strangers_cost_no_probes(
    tmp_path: Path, key: str | None, floods: list[tuple[str, int]]
) -> None:
    """Two agents keep their probes; without filters nine tenths were lost.

    `python -m ops.bench agent --only flood` holds the bar of 1 %: here other tests share the cores.
    """
    with two_agents(tmp_path, key=key) as agents:
        for kind, sources in floods:
            seen = agents.measure(SECONDS, kind, RATE_HZ, sources)
            # Enough to fill the socket of an agent that reads some ten thousand a second.
            assert seen.reached_hz > RATE_HZ / 4
            assert min(seen.probes.values()) > 60 * SECONDS
            assert max(map(seen.loss, agents.names)) <= 0.1
            filtered = agents.heartbeats["victim"].packets_filtered
            assert filtered is not None
            assert filtered > 0.9 * seen.reached_hz * SECONDS
            said = agents.reasons["victim"]
            assert any("a flood" in reason for reason in said)
        assert agents.heartbeats["peer"].state is AgentState.RUNNING
