"""Truth: names, and what no counter shows."""

from typing import Any

import numpy as np

from arena.sealed_jobs.collectives import pattern
from arena.sealed_jobs.fleet import Degrees, Fleet, Host, Layout, Seat
from arena.sealed_jobs.traffic import Traffic, bundle
from arena.sealed_jobs.truth import JobTruth, job_truth


def truth_of(degrees: Degrees, shares: dict[tuple[int, int], float], **known: Any) -> JobTruth:
    """Return the truth of a job on hosts of eight with the given pairs as sums of gradients."""
    hosts = degrees.ranks // 8
    fleet = Fleet([Host(name=f"h{i}", gpus=8, rails=tuple(range(8))) for i in range(hosts)])
    layout = Layout(fleet, degrees, [Seat(host=h, gpu=g) for h in range(hosts) for g in range(8)])
    traffic, zero = Traffic(), np.zeros((1, 1))
    ways = bundle([pattern([shares])])
    traffic.add_transfer("dp", ways, start=zero, seconds=zero, payload=1.0)
    return job_truth("job", layout, traffic, iteration_s=1.0, **known)


def test_pairs_are_sorted_by_name() -> None:
    """Whatever the direction of the bytes."""
    truth = truth_of(Degrees(tp=8, dp=2), {(8, 0): 1.0, (0, 8): 1.0, (9, 1): 1.0})
    assert truth.pairs == {("h0/r0", "h1/r0"), ("h0/r1", "h1/r1")}
    assert truth.kinds["h0/r0", "h1/r0"] == frozenset({"dp"})
    assert not truth.unobservable


def test_replicas_that_share_hosts_cannot_be_counted() -> None:
    """Without pipeline; with one, each replica has its own rhythm."""
    alike = truth_of(Degrees(tp=2, dp=8), {(0, 8): 1.0})
    assert alike.dp_seen == 2
    assert alike.unobservable == {"dp"}
    assert truth_of(Degrees(tp=2, dp=4, pp=2), {(0, 8): 1.0}).dp_seen == 4
    lockstep = truth_of(Degrees(tp=2, dp=4, pp=2, ep=4), {(0, 8): 1.0})
    assert lockstep.dp_seen == 1
    assert "ep" in lockstep.unobservable


def test_popular_experts_tell_replicas_apart() -> None:
    """By the bytes that they receive."""
    shares = {(rnic, rnic + 8): 1.0 for rnic in range(8)}
    truth = truth_of(Degrees(tp=2, dp=8, ep=8), shares, told_apart=True)
    assert truth.dp_seen == 8
    assert "dp" not in truth.unobservable


def test_faint_orders_and_missing_pairs_are_said() -> None:
    """Each by its own word."""
    line = {(0, 8): 1.0, (8, 16): 1.0, (16, 24): 1.0}
    degrees = Degrees(tp=8, pp=4)
    faint = truth_of(degrees, line, stage_shift_s=1e-3, clock_error_s=5e-3)
    assert faint.unobservable == {"order"}
    clear = truth_of(degrees, line, stage_shift_s=0.1, clock_error_s=5e-3)
    assert not clear.unobservable
    both_ways = truth_of(degrees, line, stage_shift_s=0.1, mirrored=True)
    assert both_ways.unobservable == {"direction"}
    summed = truth_of(Degrees(tp=8, dp=2), {(0, 8): 1.0}, through_switch=True)
    assert summed.unobservable == {"dp_pairs"}


def test_silent_stages_cannot_be_counted() -> None:
    """Two stages of four GPUs in each host, and one hop between the hosts."""
    truth = truth_of(Degrees(tp=4, pp=4), {(4, 8): 1.0})
    assert "pp" in truth.unobservable
    assert "dp" not in truth.unobservable


def test_groups_name_who_could_be_whose_neighbour() -> None:
    """One gradient group for each tensor part."""
    truth = truth_of(Degrees(tp=8, dp=2), {(0, 8): 1.0})
    assert frozenset({"h0/r3", "h1/r3"}) in truth.groups["dp"]
    assert len(truth.groups["dp"]) == 8
    assert truth.groups["ep"] == ()
