"""Brief rises pooled over 5-tuples and moments: false alarms, power, shape, what is left over."""

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.inference.pooled_latency import log_chances
from localizer.inference.pooled_moments import (
    BINS,
    LEVEL_SHARE,
    LOG_MOMENT,
    MOST_AT_ONCE,
    MOST_MOMENTS,
    LateFlow,
    find_moments,
    log_false_alarms,
    sums_apart,
)
from localizer.network.flow_index import FlowIndex
from schemas.ids import FlowId
from schemas.units import SECOND_NS

CABLES, FLOWS = 20, 8
STEP_NS = 2 * SECOND_NS
KEYS = [[("a", f"b{cable}", flow) for flow in range(FLOWS)] for cable in range(CABLES)]


def crossed(cable: int) -> tuple[str, ...]:
    """Return what the 5-tuples of a cable cross: a switch has four of them."""
    return (f"c{cable}", f"s{cable // 4}")


def network() -> FlowIndex:
    """Return all 5-tuples."""
    index = FlowIndex()
    for cable, keys in enumerate(KEYS):
        for key in keys:
            index.set_flow(key, crossed(cable), "a", "b")
    return index


def flows(
    marks: np.ndarray[tuple[int, int], np.dtype[np.bool_]], level: float = 1.0
) -> dict[FlowId, LateFlow]:
    """Return the late ones, whose lower quartiles rose by such a share of the medians."""
    return {
        KEYS[cable][flow]: LateFlow(crossed(cable), round(1_000 * level), 1_000)
        for cable, flow in np.argwhere(marks).tolist()
    }


def plain_moments(
    late: dict[FlowId, LateFlow], index: FlowIndex, known: set[str], *, any_shape: bool
) -> dict[str, float]:
    """Return what `find_moments` does: every 5-tuple is looked at again at each step."""
    rest, left = {key: set(index.crossed(key)) for key in index.by_key}, dict(late)
    found: dict[str, float] = {}
    for expected in (*sorted(known), *(None,) * MOST_AT_ONCE):
        chances = log_chances(
            Counter(name for flow in left.values() for name in flow.components),
            Counter(name for crosses in rest.values() for name in crosses).__getitem__,
            all_late=len(left),
            flows=len(rest),
        )
        place = expected or min(chances, key=lambda name: chances[name], default="")
        chance = chances.get(place, 0.0)
        if chance > LOG_MOMENT and not expected:
            break
        here = [flow for flow in left.values() if place in flow.components]
        rises = [sum(f.lower_rise_ns for f in here), sum(f.median_rise_ns for f in here)]
        if chance <= LOG_MOMENT and (any_shape or rises[0] >= LEVEL_SHARE * rises[1]):
            found |= {name: chance for name, other in chances.items() if other == chance}
        rest = {key: crosses for key, crosses in rest.items() if place not in crosses}
        left = {key: flow for key, flow in left.items() if place not in flow.components}
    return found


@given(
    seed=st.integers(0, 10_000),
    known=st.sets(st.sampled_from(["c3", "s1", "elsewhere"])),
    any_shape=st.booleans(),
)
def test_arrays_find_what_one_by_one_is_found(seed: int, known: set[str], any_shape: bool) -> None:
    """The same components with the same chances, to the last bit; some 5-tuples moved since."""
    rng = np.random.default_rng(seed)
    share = rng.choice([0.02, 0.9], (CABLES, 1), p=[0.8, 0.2])
    late = flows(rng.random((CABLES, FLOWS)) < share, float(rng.choice([0.4, 1.0])))
    late |= {
        key: LateFlow(("elsewhere", "c3"), 900, 1_000)
        for key in list(late)[: int(rng.integers(0, 3))]
    }
    late["not", "counted", 0] = LateFlow(("c3",), 900, 1_000)
    index = network()
    wanted = plain_moments(
        {key: one for key, one in late.items() if key in index.by_key},
        index, known, any_shape=any_shape,
    )  # fmt: skip
    assert find_moments(late, index, known, any_shape=any_shape) == wanted


def test_chance_makes_no_alarm() -> None:
    """Ten minutes of moments, one in fifty 5-tuples late at each: nothing in any of them."""
    rng, index = np.random.default_rng(1), network()
    moments: dict[str, dict[int, float]] = {}
    for number in range(BINS):
        found = find_moments(flows(rng.random((CABLES, FLOWS)) < 0.02), index)
        for component, log_chance in found.items():
            moments.setdefault(component, {})[number] = log_chance
    counted = [log_false_alarms(one, components=25, step_ns=STEP_NS) for one in moments.values()]
    assert all(count > 0 for count in counted)


@pytest.mark.parametrize(("late", "needed"), [(8, 1), (5, 3), (4, 4)])
def test_fewer_late_5_tuples_need_more_moments(late: int, needed: int) -> None:
    """All of a cable are enough at once, half of them in a minute."""
    marks = np.zeros((CABLES, FLOWS), np.bool_)
    marks[7, :late] = True
    log_chance = find_moments(flows(marks), network())["c7"]
    counts = [
        log_false_alarms(
            dict.fromkeys(range(0, 2 * count, 2), log_chance), components=25, step_ns=STEP_NS
        )
        for count in range(1, MOST_MOMENTS + 1)
    ]
    assert next(n for n, one in enumerate(counts, start=1) if one <= 0) == needed


def test_a_switch_is_not_slow_by_its_slow_cable() -> None:
    """What a surer component explains counts for no other."""
    marks = np.zeros((CABLES, FLOWS), np.bool_)
    marks[7] = True
    assert set(find_moments(flows(marks), network())) == {"c7"}
    marks[4:8] = True
    assert set(find_moments(flows(marks), network())) == {"s1"}


def test_what_an_open_fault_explains_counts_for_nothing_else() -> None:
    """Four 5-tuples stay late between two cables, one of them at fault; two more are by chance."""
    index = network()
    both = [("x", "y", flow) for flow in range(4)]
    for key in both:
        index.set_flow(key, ("c3", "c12"), "x", "y")
    late = dict.fromkeys(both, LateFlow(("c3", "c12"), 1_000, 1_000))
    late |= {key: LateFlow(crossed(12), 1_000, 1_000) for key in KEYS[12][:2]}
    assert set(find_moments(late, index)) == {"c12"}
    assert set(find_moments(late, index, known={"c3"})) == {"c3"}


@pytest.mark.parametrize(("level", "found"), [(0.42, False), (0.69, False), (0.8, True)])
def test_a_queue_makes_no_moment(level: float, found: bool) -> None:
    """Its lower quartile rises by less than its median."""
    marks = np.zeros((CABLES, FLOWS), np.bool_)
    marks[7] = True
    assert bool(find_moments(flows(marks, level), network())) is found


@given(
    log_chances=st.lists(st.floats(-40.0, LOG_MOMENT), min_size=1, max_size=12),
    more=st.floats(-40.0, LOG_MOMENT),
)
def test_each_moment_makes_it_surer(log_chances: list[float], more: float) -> None:
    """Chance never explains more by what has come since."""
    before = dict(enumerate(log_chances))
    counts = [
        log_false_alarms(one, components=10, step_ns=STEP_NS)
        for one in (before, before | {99: more})
    ]
    assert counts[1] <= counts[0] + 1e-9


@given(moments=st.dictionaries(st.integers(0, 12), st.floats(-40.0, -1.0), max_size=9))
def test_moments_that_adjoin_count_once(moments: dict[int, float]) -> None:
    """The best choice of those apart, as by trying all."""
    for count, total in enumerate(sums_apart(moments)):
        tried = [
            -sum(moments[one] for one in chosen)
            for chosen in combinations(sorted(moments), count)
            if all(b - a > 1 for a, b in pairwise(chosen))
        ]
        assert total == pytest.approx(max(tried, default=-np.inf))


def test_the_bound_holds() -> None:
    """Uniform chances: the number of false alarms is no larger than what is stated for it."""
    rng = np.random.default_rng(2)
    log_tests = log_false_alarms({}, components=1, step_ns=STEP_NS)
    stated = []
    for _ in range(2_000):
        logs = np.log(rng.random(BINS))
        moments = {n: one for n, one in enumerate(logs.tolist()) if one <= np.log(0.1)}
        stated.append(log_false_alarms(moments, components=1, step_ns=STEP_NS) - log_tests)
    for share in (0.3, 0.1, 0.03):
        assert np.mean(np.exp(stated) <= share) <= share
