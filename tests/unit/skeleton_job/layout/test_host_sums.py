"""What hosts send and receive at once, and which layouts it rules out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schemas.columns.arrays import Floats
from skeleton_job.layout.description import Evidence
from skeleton_job.layout.host_sums import classes_in_hosts, sums_cross_hosts
from skeleton_job.layout.layouts import choose

POINTS = 48
HOSTS = np.repeat(np.arange(4), 2)
KNOWN = np.ones(8, dtype=np.bool_)


def _wave(turn: float) -> Floats:
    return 1.0 + np.sin(2 * np.pi * (np.arange(POINTS) / POINTS - turn))


def _traffic(burst: float) -> tuple[Floats, Floats]:
    """Return blocks of two stages that follow each other in each host, and their gradient sum."""
    tx = np.array([_wave(0.25 * (block % 2)) for block in range(8)])
    rx = np.array([_wave(0.25 * (1 - block % 2)) for block in range(8)])
    tx[:, -3:] += burst
    rx[:, -3:] += burst
    return tx, rx


def test_a_short_burst_both_ways_is_a_sum_between_hosts() -> None:
    """It is not where traffic goes one way, and not where all of it goes both ways all the time."""
    tx, rx = _traffic(50.0)
    assert sums_cross_hosts(tx, rx, KNOWN, HOSTS, one_way=0.05)
    assert not sums_cross_hosts(tx, rx, KNOWN, HOSTS, one_way=0.5)
    even = np.ones_like(tx)
    assert not sums_cross_hosts(even, even, KNOWN, HOSTS, one_way=0.05)


def test_two_hosts_may_be_stages() -> None:
    """Each sends what the other receives, in any layout."""
    tx, rx = _traffic(50.0)
    assert not sums_cross_hosts(tx, rx, KNOWN, HOSTS // 2, one_way=0.05)


def test_hosts_are_no_stages_where_gradients_cross_them() -> None:
    """Each host has a clock of its own, by which it looks like a stage; its blocks differ more."""
    tx, rx = _traffic(50.0)
    shift = [np.roll(np.hstack([t, r]).reshape(2, -1), h, axis=1).ravel()
             for t, r, h in zip(tx, rx, HOSTS, strict=True)]  # fmt: skip
    evidence = Evidence(
        profiles=np.array(shift), known=KNOWN, hosts=HOSTS, floor=0.1, max_shift=0.0,
        one_way=0.05, replicas=True,
    )  # fmt: skip
    assert not classes_in_hosts(choose(evidence).labels, HOSTS)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_classes_in_hosts_agree_with_a_loop(blocks: list[tuple[int, int]]) -> None:
    """Classes with several blocks, all in one host, counted one by one."""
    labels, hosts = (np.array(column) for column in zip(*blocks, strict=True))
    of_class = {c: [h for label, h in blocks if label == c] for c, _ in blocks}
    alone = [c for c, found in of_class.items() if len(found) > 1 and len(set(found)) == 1]
    assert classes_in_hosts(labels, hosts) == (2 * len(alone) >= len(of_class))
