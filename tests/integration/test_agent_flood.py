"""A flood at an agent's port costs neither its own probes nor those of its peers."""

from pathlib import Path

import pytest

from ops.bench.agent.attack import KEY, two_agents

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
        # A machine this busy may keep the broker from both: only the flood must not reach the peer.
        assert agents.heartbeats["peer"].packets_filtered == 0
        assert not [r for r in agents.reasons.get("peer", ()) if "flood" in r or "sealed" in r]
