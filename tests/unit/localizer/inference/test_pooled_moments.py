"""Brief rises pooled over 5-tuples and moments: false alarms, power, shape, what is left over."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.inference.pooled_latency import log_chances
from localizer.inference.pooled_moments import (
    BINS,
    LEAST_USUAL,
    LEVEL_SHARE,
    LOG_MOMENT,
    MOST_AT_ONCE,
    MOST_MOMENTS,
    REACHED,
    USUAL_BINS,
    LateFlow,
    UsualShares,
    find_moments,
    log_false_alarms,
    sums_apart,
)
from localizer.network.directions import Directions, direction
from localizer.network.flow_index import FlowIndex
from localizer.network.replies import ReplyWays
from localizer.network.topology import Topology
from schemas.enums import ComponentKind
from schemas.ids import FlowId
from schemas.units import SECOND_NS
from tests.unit.localizer.made import component, small_fabric

CABLES, FLOWS = 20, 8
STEP_NS = 2 * SECOND_NS
KEYS = [[("a", f"b{cable}", flow) for flow in range(FLOWS)] for cable in range(CABLES)]


def crossed(cable: int) -> tuple[str, ...]:
    """Return what the 5-tuples of a cable cross: a switch has four of them."""
    return (f"c{cable}", f"s{cable // 4}")


def network(cables: int = 0) -> Directions:
    """Return what all 5-tuples cross; of so many cables it is known that they are the fabric's.

    And of their switches. No trace tells of two directions.
    """
    index, fabric = FlowIndex(), Topology()
    for cable, keys in enumerate(KEYS):
        for key in keys:
            index.set_flow(key, crossed(cable), "a", "b")
        if cable < cables:
            name, switch = crossed(cable)
            fabric.set_component(component(switch, ComponentKind.SWITCH))
            fabric.set_component(component("leaf", ComponentKind.SWITCH))
            fabric.set_component(component(name, ComponentKind.LINK, a="leaf", b=switch))
    return places(index, fabric)


def places(index: FlowIndex, fabric: Topology) -> Directions:
    """Return the directed cables of an index."""
    return Directions(index, fabric, ReplyWays(fabric, index))


def flows(
    marks: np.ndarray[tuple[int, int], np.dtype[np.bool_]], level: float = 1.0
) -> dict[FlowId, LateFlow]:
    """Return the late ones, whose lower quartiles rose by such a share of the medians."""
    return {
        KEYS[cable][flow]: LateFlow(crossed(cable), round(1_000 * level), 1_000)
        for cable, flow in np.argwhere(marks).tolist()
    }


def plain_moments(
    late: dict[FlowId, LateFlow],
    known_places: Directions,
    known: set[str],
    *,
    any_shape: bool,
    usual: Callable[[str], float],
    returns: Callable[[FlowId, str], float],
) -> dict[str, float]:
    """Return what `find_moments` does: every 5-tuple is looked at again at each step."""
    index = known_places.index
    rest = {key: {*known_places.crossed(tuple(index.crossed(key)))} for key in index.by_key}
    left = {key: one for key, one in late.items() if key in index.by_key}
    echo = dict.fromkeys(left, 0.0)
    found: dict[str, float] = {}
    for expected in (*sorted(known), *(None,) * MOST_AT_ONCE):
        counts = Counter(name for flow in left.values() for name in flow.components)
        through = Counter(name for crosses in rest.values() for name in crosses)
        echoes = {
            name: round(
                float(np.mean([echo[k] for k, f in left.items() if name in f.components])), 3
            )
            for name in counts
        }
        chances = log_chances(
            counts,
            through.__getitem__,
            all_late=len(left),
            flows=len(rest),
            usual=lambda name: max(usual(name), echoes[name]),  # noqa: B023 - called at once
        )
        for name in () if any_shape else list(chances):
            if known_places.replies.belongs_to_fabric(known_places.cable(name)):
                count = sum(name in flow.components for flow in left.values())
                if count < REACHED * sum(name in crosses for crosses in rest.values()):
                    chances[name] = 0.0
        tested = [name for name in chances if known_places.cable(name) == expected]
        if not expected:
            tested = [min(chances, key=lambda name: chances[name])] if chances else []
            if not tested or chances[tested[0]] > LOG_MOMENT:
                break
        for place in tested:
            chance = chances[place]
            here = [flow for flow in left.values() if place in flow.components]
            rises = [sum(f.lower_rise_ns for f in here), sum(f.median_rise_ns for f in here)]
            if chance <= LOG_MOMENT and (any_shape or rises[0] >= LEVEL_SHARE * rises[1]):
                found |= {name: chance for name, other in chances.items() if other == chance}
        place = expected or tested[0]
        rest = {key: crosses for key, crosses in rest.items() if place not in crosses}
        left = {key: flow for key, flow in left.items() if place not in flow.components}
        directed = [name for name in tested if known_places.is_directed(name)]
        for key in left:
            chance = sum(
                returns(key, name) * min(1.0, counts[name] / max(through[name], 1))
                for name in directed or tested
            )
            echo[key] = 1 - (1 - echo[key]) * (1 - min(1.0, chance))
    return found


@given(
    seed=st.integers(0, 10_000),
    known=st.sets(st.sampled_from(["c3", "s1", "elsewhere"])),
    any_shape=st.booleans(),
)
def test_arrays_find_what_one_by_one_is_found(seed: int, known: set[str], any_shape: bool) -> None:
    """The same components with the same chances, to the last bit.

    Some 5-tuples moved since, of some not all components count, some come back another way.
    """
    rng = np.random.default_rng(seed)
    share = rng.choice([0.02, 0.9], (CABLES, 1), p=[0.8, 0.2])
    late = flows(rng.random((CABLES, FLOWS)) < share, float(rng.choice([0.4, 1.0])))
    late |= {
        key: LateFlow(("elsewhere", "c3"), 900, 1_000)
        for key in list(late)[: int(rng.integers(0, 3))]
    }
    late |= {
        key: LateFlow(late[key].components[:count], 900, 1_000)
        for key, count in zip(list(late), rng.integers(0, 3, len(late)).tolist(), strict=True)
        if rng.random() < 0.1
    }
    late["not", "counted", 0] = LateFlow(("c3",), 900, 1_000)
    names = sorted({name for one in late.values() for name in one.components} | known)
    shares = dict(zip(names, rng.choice([0.0, 0.3, 0.9], len(names)).tolist(), strict=True))
    returning = {(k, n): 1 / rng.integers(1, 4) for k in late for n in names if rng.random() < 0.3}

    def returns(key: FlowId, place: str) -> float:
        return float(returning.get((key, place), 0.0))

    known_places = network(10)
    wanted = plain_moments(
        late, known_places, known, any_shape=any_shape, usual=shares.__getitem__, returns=returns
    )
    found = find_moments(
        late, known_places, known, any_shape=any_shape, usual=shares.__getitem__, returns=returns
    )
    assert found == wanted


def both_ways(each: int) -> Directions:
    """Return cables that as many 5-tuples cross up and down, and four hundred elsewhere."""
    fabric, index = small_fabric(spines=4), FlowIndex()
    for n in range(4 * each):
        crosses = "l0 l0--s{0} s{0} l1--s{0} l1".format(n % 4).split()
        index.set_flow(("e0", "e1", n), crosses, "a", "b")
        index.set_flow(("e1", "e0", n), crosses[::-1], "b", "a")
    for n in range(400):
        index.set_flow(("e8", "e9", n), ("elsewhere",), "c", "d")
    return places(index, fabric)


def late_up(known: Directions, each: int) -> dict[FlowId, LateFlow]:
    """Return that all 5-tuples are late that cross the first cable up."""
    keys = [("e0", "e1", 4 * n) for n in range(each)]
    return {
        key: LateFlow(known.crossed(tuple(known.index.crossed(key))), 4_000, 4_000) for key in keys
    }


def test_a_queue_of_one_direction_is_found_by_its_direction() -> None:
    """Seven of seven are one moment that chance does not make in a month; of fourteen it might."""
    known = both_ways(7)
    index, late = known.index, late_up(known, 7)
    found = find_moments(late, known)
    step = {"components": known.place_count(), "step_ns": STEP_NS}
    assert set(found) == {direction("l0--s0", "s0"), direction("l1--s0", "l1")}
    assert log_false_alarms({1: found[direction("l0--s0", "s0")]}, **step) < 0
    undirected = {
        key: replace(one, components=tuple(index.crossed(key))) for key, one in late.items()
    }
    both = find_moments(undirected, known)
    assert log_false_alarms({1: both["l0--s0"]}, **step) > 0


def test_a_direction_has_its_moments_while_a_fault_of_its_cable_is_open() -> None:
    """Else what was found by them would be over as soon as it is told."""
    known = both_ways(2)
    late = late_up(known, 2)
    before, after = find_moments(late, known), find_moments(late, known, known=("l0--s0",))
    assert set(before) == {direction("l0--s0", "s0"), direction("l1--s0", "l1")}
    assert after == before
    wanted = plain_moments(
        late, known, {"l0--s0"}, any_shape=False, usual=lambda _: 0.0, returns=lambda *_: False
    )
    assert after == wanted


def test_chance_makes_no_alarm() -> None:
    """Ten minutes of moments, one in fifty 5-tuples late at each: nothing in any of them."""
    rng, index = np.random.default_rng(1), network()
    moments: dict[str, dict[int, float]] = {}
    for number in range(BINS):
        found = find_moments(flows(rng.random((CABLES, FLOWS)) < 0.02), index)
        for place, log_chance in found.items():
            moments.setdefault(place, {})[number] = log_chance
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


@pytest.mark.parametrize(("late_each", "found"), [(2, False), (3, True)])
def test_few_of_a_switch_are_no_moment_of_it(late_each: int, found: bool) -> None:
    """Two of eight on each of its cables are a phase of a job: the switch would delay them all."""
    marks = np.zeros((CABLES, FLOWS), np.bool_)
    marks[:4, :late_each] = True
    elsewhere, here = network(), network(8)
    assert set(find_moments(flows(marks), elsewhere)) == {"s0"}
    assert set(find_moments(flows(marks), here)) == ({"s0"} if found else set())
    # Stragglers may be those to some targets.
    assert set(find_moments(flows(marks), here, any_shape=True)) == {"s0"}


def test_what_an_open_fault_explains_counts_for_nothing_else() -> None:
    """Four 5-tuples stay late between two cables, one of them at fault; two more are by chance."""
    known = network()
    both = [("x", "y", flow) for flow in range(4)]
    for key in both:
        known.index.set_flow(key, ("c3", "c12"), "x", "y")
    late = dict.fromkeys(both, LateFlow(("c3", "c12"), 1_000, 1_000))
    late |= {key: LateFlow(crossed(12), 1_000, 1_000) for key in KEYS[12][:2]}
    assert set(find_moments(late, known)) == {"c12"}
    assert set(find_moments(late, known, known={"c3"})) == {"c3"}


@pytest.mark.parametrize(
    ("late", "share", "found"), [(6, 0.5, False), (7, 0.5, False), (6, 0.1, True), (7, 0.2, True)]
)
def test_late_replies_make_no_moment_elsewhere(late: int, share: float, found: bool) -> None:
    """All of a cable are late, and of another one more than its replies at the first explain."""
    marks = np.zeros((CABLES, FLOWS), np.bool_)
    marks[7] = marks[12, :late] = True
    assert set(find_moments(flows(marks), network())) == {"c7", "c12"}
    mine = {*KEYS[12]}

    def returns(key: FlowId, place: str) -> float:
        return share if place == "c7" and key in mine else 0.0

    names = {"c7", "c12"} if found else {"c7"}
    assert set(find_moments(flows(marks), network(), returns=returns)) == names


def test_replies_echo_only_what_is_late_now() -> None:
    """An open fault of which little is late explains few late replies."""
    marks = np.zeros((CABLES, FLOWS), np.bool_)
    marks[12, :6] = marks[7, :1] = True

    def returns(_: FlowId, place: str) -> float:
        return 0.5 if place == "c7" else 0.0

    assert set(find_moments(flows(marks), network(), {"c7"}, returns=returns)) == {"c12"}
    marks[7] = True
    assert set(find_moments(flows(marks), network(), {"c7"}, returns=returns)) == {"c7"}


@pytest.mark.parametrize(("level", "found"), [(0.42, False), (0.69, False), (0.8, True)])
def test_a_queue_makes_no_moment(level: float, found: bool) -> None:
    """Its lower quartile rises by less than its median."""
    marks = np.zeros((CABLES, FLOWS), np.bool_)
    marks[7] = True
    assert bool(find_moments(flows(marks, level), network())) is found


def test_phases_of_a_job_make_no_moment() -> None:
    """Six of a cable's eight in half of the bins: it is usual; all of another's are not."""
    known, shares = network(), UsualShares()
    for number in range(12):
        shares.note({"c7": 6 if number % 2 else 5, "c3": int(number == 0)}, (), known, number)
    marks = np.zeros((CABLES, FLOWS), np.bool_)
    marks[7, :6] = True
    assert "c7" in find_moments(flows(marks), known)
    usual = {name: shares.share(name, 12) or 0.0 for name in ("c7", "c3")}
    assert usual == {"c7": 0.625, "c3": 0.0}
    assert "c7" not in find_moments(flows(marks), known, usual=lambda name: usual.get(name, 0.0))
    marks[3] = True
    found = find_moments(flows(marks), known, usual=lambda name: usual.get(name, 0.0))
    assert "c3" in found


@given(
    noted=st.dictionaries(st.integers(0, 40), st.integers(1, FLOWS), min_size=1),
    moments=st.sets(st.integers(0, 40)),
    later=st.integers(1, 60),
)
def test_the_usual_share_is_the_median_bin(
    noted: dict[int, int], moments: set[int], later: int
) -> None:
    """As by listing all bins since the first late 5-tuple, without the present one and moments."""
    known, shares = network(), UsualShares()
    for number, count in sorted(noted.items()):
        shares.note({"c7": count}, {"c7"} if number in moments else (), known, number)
    now, begin = max(noted) + later, min(noted)
    first = max(begin, now - USUAL_BINS)
    listed = sorted(
        noted.get(number, 0) / FLOWS
        for number in range(first, now)
        if not (number in noted and number in moments and number - begin >= LEAST_USUAL)
    )
    usual = listed[(len(listed) - 1) // 2] if listed else 0.0
    assert shares.share("c7", now) == (usual if now - first >= LEAST_USUAL else None)
    assert shares.share("c5", now) is None


def test_a_component_that_no_5_tuple_crosses_is_forgotten() -> None:
    """With the next bin: what its share was is not asked for any more, however often it is late."""
    known, shares = network(), UsualShares()
    for number in range(LEAST_USUAL + 2):
        shares.note({"c7": 1, "c99": 1}, (), known, number)
        shares.note({"c7": 1}, (), known, number)
    assert shares.share("c7", LEAST_USUAL + 2) is not None
    assert shares.share("c99", LEAST_USUAL + 2) is None


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
