"""Directed cables: which way probes and replies cross them, and how many 5-tuples do."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.network.directions import Directions, RemainingFlows, direction
from localizer.network.flow_index import FlowIndex
from localizer.network.replies import ReplyWays
from localizer.network.topology import Topology
from schemas.enums import ComponentKind
from schemas.ids import FlowId
from tests.unit.localizer.made import component, link, small_fabric

SPINES = 3


def way(src: int, dst: int, spine: int) -> tuple[str, ...]:
    """Return what a 5-tuple crosses between the RNICs of two leaves."""
    up, down = f"l{src}--s{spine}", f"l{dst}--s{spine}"
    return (
        f"r{src}", f"l{src}--r{src}", f"l{src}", up, f"s{spine}", down, f"l{dst}",
        f"l{dst}--r{dst}", f"r{dst}",
    )  # fmt: skip


def places(flows: dict[FlowId, tuple[str, ...]], fabric: Topology | None = None) -> Directions:
    """Return the directed cables of 5-tuples."""
    index, fabric = FlowIndex(), fabric or small_fabric(spines=SPINES)
    for key, crossed in flows.items():
        index.set_flow(key, crossed, "a", "b")
    return Directions(index, fabric, ReplyWays(fabric, index))


def four_tiers() -> Directions:
    """Return the places of one 5-tuple through four tiers, and of one back."""
    fabric = Topology()
    fabric.set_component(component("c", ComponentKind.SWITCH))
    for n in (0, 1):
        for made in (
            component(f"l{n}", ComponentKind.SWITCH), component(f"a{n}", ComponentKind.SWITCH),
            component(f"s{n}", ComponentKind.SWITCH), component(f"r{n}", ComponentKind.RNIC),
            component(f"e{n}", ComponentKind.ENDPOINT, parent=f"r{n}"), link(f"l{n}", f"r{n}"),
            link(f"a{n}", f"l{n}"), link(f"a{n}", f"s{n}"), link("c", f"s{n}"),
        ):  # fmt: skip
            fabric.set_component(made)
    names = ("r0", "l0", "a0", "s0", "c", "s1", "a1", "l1", "r1")
    up = tuple(part for a, b in pairwise(names) for part in (a, "--".join(sorted((a, b)))))
    ways = {("e0", "e1", 0): up, ("e1", "e0", 0): up[::-1]}
    known = places(ways, fabric)
    for crossed in ways.values():
        known.crossed(crossed)
    return known


def directed(crossed: tuple[str, ...]) -> set[str]:
    """Slow twin: the cables between leaf and spine, each with what comes after it."""
    return {
        direction(cable, crossed[place + 1])
        for place, cable in enumerate(crossed)
        if "--s" in cable and place + 1 < len(crossed)
    }


flows_drawn = st.dictionaries(
    st.tuples(st.sampled_from(["e0", "e1"]), st.sampled_from(["e0", "e1"]), st.integers(0, 9)),
    st.integers(0, SPINES - 1),
    min_size=1,
    max_size=40,
)


@given(drawn=flows_drawn, gone=st.sets(st.integers(0, 20)), moved=st.integers(0, SPINES - 1))
def test_counts_are_those_of_a_loop(drawn: dict[FlowId, int], gone: set[int], moved: int) -> None:
    """Of all 5-tuples, of those left without some places, and after one took another path."""
    ways = {
        key: way(int(key[0][1]), int(key[1][1]), spine)
        for key, spine in drawn.items()
        if key[0] != key[1]
    }
    known = places(ways)
    for key in list(ways)[:1]:
        known.rows(direction("l0--s0", "s0"))
        ways[key] = way(int(key[0][1]), int(key[1][1]), moved)
        known.index.set_flow(key, ways[key], "a", "b")
    on = {key: {*known.crossed(crossed)} for key, crossed in ways.items()}
    assert all(on[key] == {*crossed} | directed(crossed) for key, crossed in ways.items())
    names = sorted(set().union(*on.values()))
    assert [known.count(name) for name in names] == [
        sum(name in crossed for crossed in on.values()) for name in names
    ]
    rest = RemainingFlows(known)
    counted = rest.counted(names)
    for number in sorted(gone):
        if number < len(names):
            rest.remove(names[number])
            on = {key: crossed for key, crossed in on.items() if names[number] not in crossed}
    assert rest.counts(counted).tolist() == [
        sum(name in crossed for crossed in on.values()) for name in names
    ]
    assert len(rest) == len(on)


def test_a_reply_crosses_cables_the_other_way() -> None:
    """Away from the leaf of the target, and towards that of the source; as often as the cable."""
    known = places({("e0", "e1", 0): way(0, 1, 0), ("e1", "e0", 0): way(1, 0, 1)})
    found = known.returned("e0", "e1")
    assert {name for name in found if known.is_directed(name)} == {
        direction("l1--s0", "s0"),
        direction("l0--s0", "l0"),
        direction("l1--s1", "s1"),
        direction("l0--s1", "l0"),
    }
    assert found[direction("l1--s0", "s0")] == found["l1--s0"] == 0.5
    assert known.returned("e0", "e1") is found
    assert found.keys() >= known.replies.shares("e0", "e1").keys()
    both = {direction(cable, head) for cable in ("l0--s0", "l1--s0") for head in cable.split("--")}
    every = {*known.crossed(way(0, 1, 0)), *known.crossed(way(1, 0, 1)), *both, "elsewhere"}
    for one in every:
        assert known.returning("e0", "e1", one) == found.get(one, 0.0)


def test_the_direction_above_a_spine_follows_from_the_leaf_beside_it() -> None:
    """Through three tiers."""
    fabric = small_fabric(spines=1)
    for made in (
        component("core", ComponentKind.SWITCH), link("core", "s0"),
        component("s9", ComponentKind.SWITCH), link("core", "s9"),
        component("l9", ComponentKind.SWITCH), link("l9", "s9"),
        component("r9", ComponentKind.RNIC), link("l9", "r9"),
        component("e9", ComponentKind.ENDPOINT, parent="r9"),
    ):  # fmt: skip
        fabric.set_component(made)
    crossed = (
        "r0", "l0--r0", "l0", "l0--s0", "s0", "core--s0", "core", "core--s9", "s9", "l9--s9",
        "l9", "l9--r9", "r9",
    )  # fmt: skip
    known = places({("e0", "e9", 0): crossed}, fabric)
    found = {name for name in known.returned("e0", "e9") if known.is_directed(name)}
    assert found == {
        direction("l9--s9", "s9"),
        direction("core--s9", "core"),
        direction("core--s0", "s0"),
        direction("l0--s0", "l0"),
    }
    assert {direction("core--s0", "core"), direction("core--s9", "s9")} < {*known.crossed(crossed)}
    assert known.count(direction("core--s9", "s9")) == 1
    assert known.count(direction("core--s9", "core")) == 0


def test_each_cable_between_switches_is_two_places_more() -> None:
    """Of all that 5-tuples cross; a place leads back to its component."""
    known = places({("e0", "e1", 0): way(0, 1, 0)})
    assert known.place_count() == 9 + 2 * 2
    known.crossed(way(0, 1, 0))
    assert known.cable(direction("l0--s0", "s0")) == "l0--s0"
    assert known.cable("l0--r0") == "l0--r0"
    assert not known.is_directed("l0--r0")


def test_places_keep_their_names_when_the_fabric_changes() -> None:
    """What is remembered of a place is found again by an object of another index."""
    known = places({("e0", "e1", 0): way(0, 1, 0)})
    known.crossed(way(0, 1, 0))
    fabric = small_fabric(spines=SPINES)
    later = Directions(FlowIndex(), fabric, ReplyWays(fabric, FlowIndex()), before=known)
    assert later.cable(direction("l0--s0", "s0")) == "l0--s0"
    assert later.count(direction("l0--s0", "s0")) == 0


def test_places_that_the_fabric_lost_are_forgotten() -> None:
    """Else cables that came and went would take memory for ever."""
    known = places({("e0", "e1", 2): way(0, 1, 2)})
    known.crossed(way(0, 1, 2))
    assert known.is_directed(direction("l0--s2", "s2"))
    fabric = small_fabric(spines=2)
    later = Directions(FlowIndex(), fabric, ReplyWays(fabric, FlowIndex()), before=known)
    assert not later.is_directed(direction("l0--s2", "s2"))


def test_no_id_is_taken_for_a_direction() -> None:
    """What came over the wire can be encoded, and what names a direction cannot."""
    with pytest.raises(UnicodeEncodeError):
        direction("l0--s0", "s0").encode()


def test_ways_of_replies_are_remembered_once_for_two_leaves() -> None:
    """However often paths change between them."""
    known = places({("e0", "e1", n): way(0, 1, n) for n in range(SPINES)})
    for change in range(9):
        known.index.set_flow(("e0", "e1", 0), way(0, 1, change % SPINES), "a", "b")
        known.replies.invalidate({"e0", "e1"})
        found = known.returned("e0", "e1"), known.returned("e1", "e0")
        assert known.returned("e0", "e1") is found[0]
    assert len(known._returned) == 2


def test_rows_narrower_than_a_cable_with_its_ends_cross_no_direction() -> None:
    """A path of which little is known."""
    known = places({("e0", "e1", 0): ("l0--s0", "s0")})
    known.crossed(("l0", "l0--s0", "s0"))
    assert known.count(direction("l0--s0", "s0")) == 0


def test_a_reply_whose_direction_nothing_tells_may_take_either() -> None:
    """Above the third tier: either is as likely, so that the cable covers it as a whole."""
    found = four_tiers().returned("e0", "e1")
    assert found[direction("c--s0", "s0")] == found[direction("c--s0", "c")] == 0.5
    assert found[direction("a0--l0", "l0")] == found["c--s0"] == 1.0
    assert direction("a0--l0", "a0") not in found
