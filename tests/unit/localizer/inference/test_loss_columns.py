"""Losses as columns count what a loop over the losses of each component counts."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localizer.inference.loss_columns import LossColumns, PooledLoss

BIN_NS = 10
NAMES = "abcd"
HOSTS = "uvwxy"

losses_drawn = st.lists(
    st.builds(
        PooledLoss,
        lost_ns=st.integers(0, 60),
        components=st.lists(st.sampled_from(NAMES), max_size=3, unique=True).map(tuple),
        pair=st.tuples(st.sampled_from("pq"), st.sampled_from("rs")),
        hosts=st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS)),
        replies=st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.25, 1.0])),
        explained=st.booleans(),
    ),
    max_size=25,
)


def slow_ages(losses: list[PooledLoss], now_ns: int, *, strong: bool) -> list[int]:
    """Return the ages of the moments among a component's losses, bin by bin and pair by pair."""
    ages = []
    for age in range(now_ns // BIN_NS + 1):
        mine = [one for one in losses if now_ns // BIN_NS - one.lost_ns // BIN_NS == age]
        apart = any(set(one.hosts).isdisjoint(other.hosts) for one, other in product(mine, mine))
        if apart if strong else mine:
            ages.append(age)
    return ages


@given(losses=losses_drawn, now_ns=st.integers(30, 60))
def test_columns_count_what_loops_count(losses: list[PooledLoss], now_ns: int) -> None:
    """Moments of both strengths, pairs, own losses and replies of each component."""
    columns = LossColumns(losses, BIN_NS, now_ns)
    own = {name: [one for one in losses if name in one.components] for name in NAMES}
    assert sorted(columns.names) == [name for name in NAMES if own[name]]
    moments = {strong: columns.moments(strong=strong) for strong in (False, True)}
    pairs = columns.pair_counts()
    for number, name in enumerate(columns.names):
        for strong, ages in moments.items():
            assert ages[number].tolist() == slow_ages(own[name], now_ns, strong=strong)
        assert pairs[number] == len({one.pair for one in own[name]})
        assert [losses[place] for place in columns.through(number).tolist()] == own[name]
        replied = [one.replies.get(name, 0.0) for one in losses]
        np.testing.assert_array_equal(columns.replied(name), replied)
