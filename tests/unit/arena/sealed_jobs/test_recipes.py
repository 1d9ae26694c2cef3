"""Recipes: names, seats, schedules and what is refused."""

import numpy as np
import pytest

from arena.sealed_jobs import recipes
from arena.sealed_jobs.fleet import Degrees, Fleet, Host
from arena.sealed_jobs.schedules import WEIGHTS


def test_names_are_distinct() -> None:
    """Whatever their style."""
    for seed in range(40):
        names = recipes.host_names(np.random.default_rng(seed), 64)
        assert len(set(names)) == 64
        assert not any("/" in name or " " in name for name in names)


def test_seats_are_taken_host_by_host() -> None:
    """On the given GPUs of each."""
    fleet = Fleet(recipes.draw_hosts(np.random.default_rng(0), 3))
    for seed in range(8):
        seats = recipes.seats_on(np.random.default_rng(seed), fleet, [0, 2], [4, 5])
        assert [seat.gpu for seat in seats] == [4, 5, 4, 5]
        assert seats[0].host == seats[1].host != seats[2].host
        assert {seat.host for seat in seats} == {0, 2}


def test_degrees_fill_whole_hosts() -> None:
    """Within the bounds of the number of ranks."""
    options = [Degrees(tp=t, dp=d) for t in (1, 2, 8) for d in range(1, 40)]
    for seed in range(50):
        picked = recipes.pick_degrees(np.random.default_rng(seed), options)
        assert picked.ranks % 8 == 0
        assert 16 <= picked.ranks <= 256


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "interleaved", "zb1", "zb2", "zbv", "dual"])
@pytest.mark.parametrize("stages", [2, 4, 8, 16])
def test_schedules_fit_the_stages(name: str, stages: int) -> None:
    """Each device has an order, and few enough steps to simulate."""
    for seed in range(5):
        plan = recipes.draw_schedule(np.random.default_rng(seed), name, stages)
        assert len(plan.orders) == stages
        assert all(set(chain) == set(range(stages)) for chain in plan.chains)
        assert sum(map(len, plan.orders)) <= recipes.MAX_STEPS * 1.2
        split = any(step.kind == WEIGHTS for order in plan.orders for step in order)
        assert split == (name in {"zb1", "zb2", "zbv", "dual"})


def test_iterations_stay_in_range() -> None:
    """At one tick a second they are not short."""
    for seed in range(200):
        pace = recipes.draw_pace(np.random.default_rng(seed))
        low, high = pace.seconds
        assert recipes.ITERATION_S[0] <= low < high <= recipes.ITERATION_S[1]
        assert pace.hz == 10 or low >= recipes.SLOW_TICKS_S


def test_tensor_groups_over_hosts_are_refused() -> None:
    """They would need the network for every layer."""
    fleet = Fleet([Host(name=n, gpus=8, rails=tuple(range(8))) for n in "ab"])
    rng = np.random.default_rng(0)
    pace = recipes.draw_pace(rng)
    with pytest.raises(ValueError, match="do not fit"):
        recipes.place_pipelined(
            rng,
            task_id="job",
            fleet=fleet,
            degrees=Degrees(tp=16),
            seats=recipes.seats_on(rng, fleet, [0, 1]),
            schedule="1f1b",
            pace=pace,
        )
