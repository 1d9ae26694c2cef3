"""Sums of what agents count: nothing twice, nothing negative, whatever order heartbeats have."""

from dataclasses import replace

from localizer.facts.agent_counts import AgentCounts
from tests.unit.localizer.made import heartbeat

AGENT = "agent-h0"


def test_the_first_heartbeat_adds_nothing() -> None:
    """What was counted before is not known to be of our time."""
    counts = AgentCounts(10)
    counts.observe_heartbeat(heartbeat(AGENT, 0, 5, rounds_sent=1_000, packets_filtered=7))
    assert counts.totals.total() == 0
    counts.observe_heartbeat(heartbeat(AGENT, 1, 6, rounds_sent=1_003, packets_filtered=9))
    assert counts.totals["rounds"] == 3
    assert counts.totals["packet_filtered"] == 2


def test_repeated_and_overtaken_heartbeats_change_nothing() -> None:
    """Kafka may deliver one again; sums never go back."""
    counts = AgentCounts(10)
    beats = [heartbeat(AGENT, n, n, results_sent=100 * n) for n in range(4)]
    for number in (0, 1, 3, 2, 3, 1):
        counts.observe_heartbeat(beats[number])
    assert counts.totals["results"] == 300


def test_a_new_process_counts_from_0() -> None:
    """And the heartbeats of the old one that come late do not count."""
    counts = AgentCounts(10)
    old = heartbeat(AGENT, 0, 9, rounds_dropped=50)
    counts.observe_heartbeat(old)
    new = replace(old, incarnation=old.incarnation + 1, seq=0, rounds_dropped=2)
    counts.observe_heartbeat(new)
    counts.observe_heartbeat(replace(old, seq=10, rounds_dropped=60))
    assert counts.totals["rounds_dropped"] == 2


def test_memory_is_bounded_and_given_back() -> None:
    """Beyond the bound agents are not counted; those that are gone are forgotten."""
    counts = AgentCounts(2)
    for name in ("a", "b", "c"):
        counts.observe_heartbeat(heartbeat(name, 0, 0))
    assert len(counts) == 2
    counts.keep(lambda agent_id: agent_id == "b")
    assert len(counts) == 1
