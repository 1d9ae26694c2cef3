"""Stagger, spread and order of probes."""

from collections import Counter

import pytest

from probers.probing import plan
from schemas.units import SECOND_NS


def test_the_stagger_depends_on_the_id_alone_and_fills_the_interval() -> None:
    """The same id gives the same offset; a thousand ids fall evenly into ten parts."""
    ids = [f"agent-h{n}" for n in range(1_000)]
    offsets = [plan.stagger_ns(name, SECOND_NS) for name in ids]
    assert offsets == [plan.stagger_ns(name, SECOND_NS) for name in ids]
    assert all(0 <= offset < SECOND_NS for offset in offsets)
    parts = Counter(offset * 10 // SECOND_NS for offset in offsets)
    assert min(parts.values()) > 60
    assert max(parts.values()) < 150


@pytest.mark.parametrize(
    ("now", "start"), [(0, 300), (299, 300), (300, 1_300), (301, 1_300), (1_299, 1_300)]
)
def test_the_next_start_is_strictly_ahead_and_on_the_grid(now: int, start: int) -> None:
    """Whole intervals plus the offset, whatever the time is now."""
    assert plan.next_start_ns(now, 1_000, 300) == start


def test_probes_are_spread_evenly_on_whole_slots() -> None:
    """Forty probes over 300 ms: ascending, within, at most fourteen in a 100-ms slot."""
    offsets = plan.spread_ns(40, 300_000_000)
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    assert offsets[-1] < 300_000_000
    assert max(Counter(offsets).values()) <= 14
    assert plan.spread_ns(0, 300) == []


def test_the_order_is_an_agents_own() -> None:
    """Two agents go through one list in different orders, each always in the same."""
    items = [f"w{n}/r0" for n in range(30)]
    one, other = plan.shuffled(items, "agent-a"), plan.shuffled(items, "agent-b")
    assert one != other
    assert sorted(one) == sorted(other) == sorted(items)
    assert one == plan.shuffled(reversed(items), "agent-a")


def test_probes_to_one_host_follow_each_other_in_an_order_of_hosts_that_is_the_agents_own() -> None:
    """Four rails of ten hosts: each host's probes are neighbours, whatever agent sends them."""
    items = [f"h{host}/r{rail}" for rail in range(4) for host in range(10)]

    def host_of(item: str) -> str:
        return item.partition("/")[0]

    orders = [plan.shuffled(items, agent, host_of) for agent in ("agent-a", "agent-b")]
    hosts = [[host_of(item) for item in order[::4]] for order in orders]
    for order, sequence in zip(orders, hosts, strict=True):
        assert sorted(order) == sorted(items)
        assert [host_of(item) for item in order] == [host for host in sequence for _ in range(4)]
    assert hosts[0] != hosts[1]
