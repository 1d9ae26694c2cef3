"""The plan of cuts and kills."""

import random

import pytest

from ops.bench.resilience.kills import APART, CUT_S, KILL_S, WELL_S, plan_run

LINKS = [f"link:leaf:p{pod}-0--spine:{spine}" for pod in range(2) for spine in range(4)]


def test_cuts_follow_each_other_and_kills_fall_anywhere() -> None:
    """No link is cut again within the next few cuts."""
    plan = plan_run(20, 8, LINKS, random.Random(1))
    ends = [0.0, *(end_s for _, end_s, _ in plan.cuts)]
    for before_s, (begin_s, end_s, _) in zip(ends, plan.cuts, strict=False):
        assert WELL_S[0] <= begin_s - before_s <= WELL_S[1]
        assert CUT_S[0] <= end_s - begin_s <= CUT_S[1]
    places = [link for _, _, link in plan.cuts]
    for at in range(len(places)):
        recent = places[at : at + APART + 1]
        assert len(set(recent)) == len(recent)
    assert len(plan.kills_s) == 20
    assert list(plan.kills_s) == sorted(plan.kills_s)
    assert plan.kills_s[-1] <= plan.lasts_s
    assert plan == plan_run(20, 8, LINKS, random.Random(1))


def test_without_cuts_kills_have_their_time() -> None:
    """So long as it takes a process to come back."""
    assert plan_run(5, 0, LINKS, random.Random(1)).lasts_s == pytest.approx(5 * KILL_S)
