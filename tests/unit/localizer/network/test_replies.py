"""The ways that replies may take: counted among the known ones between the same leaves."""

import numpy as np
import pytest

from localizer.network.flow_index import FlowIndex
from localizer.network.replies import SETTLED_CALLS, ReplyWays
from schemas.columns.arrays import Int64s
from schemas.enums import ComponentKind
from tests.unit.localizer.made import component, link, small_fabric


def index(*flows: tuple[str, str, str]) -> FlowIndex:
    """Return an index of (source, target, components)."""
    made = FlowIndex()
    for place, (src, dst, crossed) in enumerate(flows):
        made.set_flow((src, dst, place), crossed.split(), "a", None)
    return made


def over(spine: int) -> str:
    """Return what a 5-tuple crosses between e0 and e1 over a spine."""
    return f"r0 l0--r0 l0 l0--s{spine} s{spine} l1--s{spine} l1 l1--r1 r1"


def test_a_reply_may_take_any_known_way_in_either_direction() -> None:
    """Three of four known ways take the first spine; no host's own parts are told."""
    fabric = small_fabric(spines=2)
    known = index(
        ("e0", "e1", over(0)), ("e0", "e1", over(0)), ("e1", "e0", over(0)), ("e1", "e0", over(1))
    )  # fmt: skip
    found = ReplyWays(fabric, known).shares("e0", "e1")
    assert found["s0"] == found["l0--s0"] == found["l1--s0"] == pytest.approx(0.75)
    assert found["s1"] == found["l1--s1"] == pytest.approx(0.25)
    assert found["l0"] == pytest.approx(1.0)
    assert found.keys().isdisjoint({"r0", "l0--r0"})
    assert found == ReplyWays(fabric, known).shares("e1", "e0")


def test_ways_between_other_leaves_do_not_count() -> None:
    """A pair on another leaf says nothing about these two."""
    fabric = small_fabric(spines=2)
    for made in (
        component("l2", ComponentKind.SWITCH), link("l2", "s1"),
        component("r2", ComponentKind.RNIC), link("r2", "l2"),
        component("e2", ComponentKind.ENDPOINT, parent="r2"),
    ):  # fmt: skip
        fabric.set_component(made)
    elsewhere = ("e0", "e2", "r0 l0--r0 l0 l0--s1 s1 l2--s1 l2 l2--r2 r2")
    found = ReplyWays(fabric, index(("e0", "e1", over(0)), elsewhere)).shares("e0", "e1")
    assert found["s0"] == pytest.approx(1.0)
    assert "s1" not in found


def test_shares_of_many_are_those_of_each() -> None:
    """By number or by name, asked together or alone, in whichever order; also of nobody."""
    fabric = small_fabric(spines=2)
    known = index(("e0", "e1", over(0)), ("e1", "e0", over(1)), ("e0", "e0", "l0"))
    pairs = [("e0", "e1"), ("nobody", "e0"), ("e0", "e0"), ("e1", "e0"), ("e1", "e1")]
    for ends in (pairs, pairs[::-1], pairs[:1]):
        many = ReplyWays(fabric, known).numbered_shares(ends)
        named = [
            dict(zip(map(known.name, numbers.tolist()), chance.tolist(), strict=True))
            for numbers, chance in many
        ]
        assert named == [ReplyWays(fabric, known).shares(*pair) for pair in ends]
    assert ReplyWays(fabric, known).numbered_shares([]) == []


def test_a_bonded_rnic_gets_its_replies_by_either_cable() -> None:
    """And by either ToR, each with its chance; the only cable of another RNIC is not told."""
    fabric = small_fabric(spines=1)
    for made in (
        component("l0b", ComponentKind.SWITCH), link("l0b", "s0"), link("l0b", "r0"),
    ):  # fmt: skip
        fabric.set_component(made)
    other = over(0).replace("l0", "l0b")
    known = index(("e0", "e1", over(0)), ("e1", "e0", other))
    ways = ReplyWays(fabric, known)
    found = ways.shares("e0", "e1")
    for name in ("l0", "l0b", "l0--r0", "l0b--r0"):
        assert found[name] == pytest.approx(0.5)
    assert found.keys().isdisjoint({"r0", "r1", "l1--r1"})
    assert ways.shares("e0", "e0") is not found
    assert ways.shares("e0", "e1") is found
    assert ways.shares("e1", "e0") == found
    ((numbers, chance),) = ways.numbered_shares([("e0", "e1")])
    assert dict(zip(map(known.name, numbers.tolist()), chance.tolist(), strict=True)) == found
    told = {name: ways.may_cross(name) for name in ("l0--r0", "l1--r1", "r0", "l0", "l0--s0", "?")}
    assert [name for name, may in told.items() if may] == ["l0--r0", "l0", "l0--s0"]
    numbers = np.array([known.components[name] for name in ("l0--r0", "r0")])
    assert ways.are_possible(numbers).tolist() == [True, False]


def test_a_bond_that_loses_a_cable_is_none() -> None:
    """What was known of its replies is forgotten with it."""
    fabric = small_fabric(spines=1)
    fabric.set_component(link("l1", "r0"))
    known = index(("e0", "e1", over(0)))
    ways = ReplyWays(fabric, known)
    assert ways.shares("e0", "e1")["l1--r0"] == pytest.approx(0.5)
    fabric.remove_component("l1--r0")
    ways.invalidate({"e0", "e1"}, ["e0"])
    assert "l1--r0" not in ways.shares("e0", "e1")
    assert ways.bonds_of(np.array([known.endpoints["e0"]])).tolist() == [0]


def test_without_a_place_in_the_topology_nothing_is_known() -> None:
    """An endpoint that no RNIC is known for, and a pair that nobody probes."""
    fabric = small_fabric(spines=2)
    fabric.set_component(component("e9", ComponentKind.ENDPOINT, parent="h0"))
    ways = ReplyWays(fabric, index(("e0", "e9", over(0))))
    assert ways.shares("e0", "e9") == {}
    assert ways.shares("nobody", "e0") == {}
    assert ways.shares("e0", "e1") == {}


def test_what_was_asked_for_in_time_is_what_is_found_later() -> None:
    """Also of endpoints and components that come after it."""
    fabric = small_fabric(spines=2)
    known = index(("e0", "e1", over(0)))
    ways = ReplyWays(fabric, known)
    ways.prepare()
    for made in (
        component("l2", ComponentKind.SWITCH), link("l2", "s1"),
        component("r2", ComponentKind.RNIC), link("r2", "l2"),
        component("e2", ComponentKind.ENDPOINT, parent="r2"),
    ):  # fmt: skip
        fabric.set_component(made)
    way = "r2 l2--r2 l2 l2--s1 s1 l1--s1 l1 l1--r1 r1"
    known.set_flow(("e2", "e1", 0), way.split(), "a", None)
    ways.invalidate({"e2", "e1"})
    ways.prepare()
    assert ways.shares("e2", "e1") == ReplyWays(fabric, known).shares("e2", "e1")
    assert ways.shares("e0", "e1") == ReplyWays(fabric, known).shares("e0", "e1")


class CountedIndex(FlowIndex):
    """An index that counts how often somebody asks for the 5-tuples of a leaf."""

    asked = 0

    def rows_with(self, number: int) -> Int64s:
        """Count and answer."""
        self.asked += 1
        return super().rows_with(number)


def test_leaves_that_change_all_the_time_are_not_counted_ahead() -> None:
    """They are once they have been left alone for a while, or when somebody asks for them."""
    fabric = small_fabric(spines=2)
    known = CountedIndex()
    known.set_flow(("e0", "e1", 0), over(0).split(), "a", None)
    ways = ReplyWays(fabric, known)
    ways.prepare()
    assert known.asked == 2
    for place in range(1, 2 * SETTLED_CALLS):
        known.set_flow(("e0", "e1", place), over(place % 2).split(), "a", None)
        ways.invalidate({"e0", "e1"})
        ways.prepare()
    assert known.asked == 2
    assert ways.shares("e0", "e1") == ReplyWays(fabric, known).shares("e0", "e1")
    asked = known.asked
    for _ in range(SETTLED_CALLS):
        ways.prepare()
    assert known.asked > asked
    asked = known.asked
    for _ in range(2 * SETTLED_CALLS):
        ways.prepare()
    ways.shares("e0", "e1")
    assert known.asked == asked
