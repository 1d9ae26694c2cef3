"""Pairs and bytes of collectives, counted by hand."""

import numpy as np
import pytest

from arena.sealed_jobs import collectives
from arena.sealed_jobs.fleet import Degrees, Fleet, Host, Layout, Seat


def layout_of(hosts: int, rnics: int = 8) -> Layout:
    """Return ranks of one data axis, one for each RNIC."""
    fleet = Fleet([Host(name=f"h{i}", gpus=rnics, rails=tuple(range(rnics))) for i in range(hosts)])
    seats = [Seat(host=h, gpu=g) for h in range(hosts) for g in range(rnics)]
    return Layout(fleet, Degrees(dp=len(seats)), seats)


def test_ring_over_one_rail() -> None:
    """Each member sends 2 (n - 1) / n of the payload to the next."""
    layout = layout_of(4)
    shares = collectives.ring(layout, np.arange(4) * 8, passes=2)
    assert shares == {(0, 8): 1.5, (8, 16): 1.5, (16, 24): 1.5, (24, 0): 1.5}


def test_ring_over_whole_hosts_spreads_over_rails() -> None:
    """Eight channels carry an eighth each; rails do not mix."""
    layout = layout_of(2)
    shares = collectives.ring(layout, np.arange(16), passes=1)
    assert len(shares) == 16
    assert all(b - a in {8, -8} for a, b in shares)
    assert sum(shares.values()) == pytest.approx(2 * 15 / 16)


def test_nothing_leaves_one_host() -> None:
    """Whatever the algorithm."""
    layout = layout_of(1)
    everyone = np.arange(8)
    assert not collectives.ring(layout, everyone, passes=2)
    assert not collectives.hierarchical(layout, everyone)
    assert not collectives.double_tree(layout, everyone)
    assert not collectives.all_to_all(layout, everyone, way="pxn")
    assert collectives.sum_gradients(layout, [everyone], "switch").peak == 0


@pytest.mark.parametrize("hosts", [2, 3, 5, 8])
def test_two_trees_join_all_hosts(hosts: int) -> None:
    """Both trees have hosts - 1 edges; each direction of an edge carries half of the payload."""
    layout = layout_of(hosts, 1)
    shares = collectives.double_tree(layout, np.arange(hosts))
    assert sum(shares.values()) == pytest.approx(2 * (hosts - 1))
    joined = {0}
    while more := {b for a, b in shares if a in joined} - joined:
        joined |= more
    assert joined == set(range(hosts))
    assert all(shares[b, a] == share for (a, b), share in shares.items())


def test_power_steps_reach_1_2_4() -> None:
    """Over eight hosts; each sends 7/8 of the payload in all."""
    shares = collectives.power_steps(layout_of(8, 1), np.arange(8), passes=1)
    assert {b for a, b in shares if a == 0} == {1, 2, 4}
    assert sum(s for (a, _), s in shares.items() if a == 0) == pytest.approx(7 / 8)


@pytest.mark.parametrize(("way", "pairs"), [("direct", 8 * 8), ("pxn", 8), ("rail", 8)])
def test_all_to_all(way: str, pairs: int) -> None:
    """PXN and rail-aligned exchanges stay on rails; half of the bytes go to the other host."""
    shares = collectives.all_to_all(layout_of(2), np.arange(16), way=way)
    assert len(shares) == 2 * pairs
    assert sum(shares.values()) == pytest.approx(16 / 2)


def test_popular_members_receive_more() -> None:
    """By direct exchange, the receiver's port shows it."""
    popularity = np.array([1.0] * 15 + [17.0])
    shares = collectives.all_to_all(
        layout_of(2), np.arange(16), way="direct", popularity=popularity
    )
    exchange = collectives.pattern([shares])
    assert exchange.rx[15] == pytest.approx(17 * exchange.rx[14])


def test_pxn_changes_rails_before_the_network() -> None:
    """From GPU 7 of a host to GPU 0 of the next, the bytes leave through RNIC 0."""
    layout = layout_of(2)
    one, other = np.array([7]), np.array([8])
    assert collectives.send(layout, one, other, pxn=True) == {(0, 8): 1.0}
    assert collectives.send(layout, one, other, pxn=False) == {(7, 8): 1.0}


def test_sums_in_switches_have_no_pairs() -> None:
    """Each RNIC sends and receives the payload once."""
    layout = layout_of(2)
    groups = [np.array([rail, rail + 8]) for rail in range(8)]
    sums = collectives.sum_gradients(layout, groups, "switch")
    assert not sums.shares
    assert sums.tx.tolist() == sums.rx.tolist() == [1.0] * 16


@pytest.mark.parametrize("algorithm", ["ring", "tree", "hierarchical"])
def test_two_hosts_exchange_the_payload(algorithm: str) -> None:
    """With two members every algorithm sends the payload once each way."""
    sums = collectives.sum_gradients(layout_of(2, 1), [np.arange(2)], algorithm)
    assert sums.shares == pytest.approx({(0, 1): 1.0, (1, 0): 1.0})
