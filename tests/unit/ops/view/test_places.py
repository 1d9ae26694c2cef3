"""Where endpoints stand."""

from typing import Any

import pytest

from ops.view.places import NO_LEAF, NO_POD, Places, places
from schemas.enums import ComponentKind, Layer
from schemas.records import Component
from tests.unit.ops.recording_samples import START_MS


def part(name: str, kind: ComponentKind, **more: Any) -> Component:
    """Return a component."""
    return Component(
        cluster="c", component_id=name, kind=kind, layer=Layer.UNDERLAY,
        updated_at=START_MS * 1000, addresses=(), **more,
    )  # fmt: skip


def cable(a: str, b: str) -> Component:
    """Return a link."""
    return part(f"link:{a}--{b}", ComponentKind.LINK, a=a, b=b)


def fabric(tiers: int) -> list[Component]:
    """Return four hosts of two RNICs; two hosts to a pair of leaves, named by pod and rail."""
    found = []
    for host in range(4):
        pod = host // 2
        found.append(part(f"h{host}", ComponentKind.HOST))
        for rail in range(2):
            rnic = f"rnic:h{host}/r{rail}"
            found += [
                part(rnic, ComponentKind.RNIC, parent=f"h{host}"),
                part(f"c{host}/r{rail}", ComponentKind.ENDPOINT, parent=rnic),
                cable(f"leaf:p{pod}-{rail}", rnic),
            ]
    for pod in range(2):
        for rail in range(2):
            leaf = f"leaf:p{pod}-{rail}"
            found.append(part(leaf, ComponentKind.SWITCH, tier=0))
            found += [cable(leaf, f"spine:{pod if tiers == 3 else spine}") for spine in range(2)]
    found += [part(f"spine:{spine}", ComponentKind.SWITCH, tier=1) for spine in range(2)]
    if tiers == 3:
        found.append(part("core:0", ComponentKind.SWITCH, tier=2))
        found += [cable(f"spine:{spine}", "core:0") for spine in range(2)]
    return found


def told(found: Places) -> list[tuple[str, str, str]]:
    """Return pod, leaf and endpoint, in order."""
    return [
        (found.pods[found.pod_of[i]], found.leaves[found.leaf_of[i]], name)
        for i, name in enumerate(found.endpoints)
    ]


@pytest.mark.parametrize("tiers", [2, 3])
def test_pods_are_what_is_joined_below_the_top(tiers: int) -> None:
    """Of two tiers leaves joined by their hosts, of three by their spines, too; rails in order."""
    ends = [f"c{host}/r{rail}" for host in range(4) for rail in range(2)]
    found = places(fabric(tiers), {}, ends)
    assert told(found) == [
        ("leaf:p0", "leaf:p0-0", "c0/r0"), ("leaf:p0", "leaf:p0-0", "c1/r0"),
        ("leaf:p0", "leaf:p0-1", "c0/r1"), ("leaf:p0", "leaf:p0-1", "c1/r1"),
        ("leaf:p1", "leaf:p1-0", "c2/r0"), ("leaf:p1", "leaf:p1-0", "c3/r0"),
        ("leaf:p1", "leaf:p1-1", "c2/r1"), ("leaf:p1", "leaf:p1-1", "c3/r1"),
    ]  # fmt: skip
    assert [found.endpoints[place] for place in found.of_end] == ends
    assert found.rnic_of["c0/r1"] == "rnic:h0/r1"
    assert found.pod_of_switch["leaf:p1-0"] == "leaf:p1"
    assert ("spine:0" in found.pod_of_switch) == (tiers == 3)


def test_an_end_that_no_record_places_stands_last() -> None:
    """Neither registered nor in the topology."""
    found = places(fabric(2), {}, ["stranger/r9", "c0/r0"])
    assert told(found) == [("leaf:p0", "leaf:p0-0", "c0/r0"), (NO_POD, NO_LEAF, "stranger/r9")]


def test_without_a_topology_all_is_one_group() -> None:
    """Ordered by rail, then name, numbers as numbers."""
    found = places([], {}, ["c10/r0", "c2/r0", "c1/r1"])
    assert found.endpoints == ("c2/r0", "c10/r0", "c1/r1")
    assert (found.leaves, found.pods) == ((NO_LEAF,), (NO_POD,))


def test_nothing_is_nowhere() -> None:
    """No endpoint at all."""
    found = places([], {}, [])
    assert (found.endpoints, found.leaves, len(found.of_end)) == ((), (), 0)


def test_pods_whose_names_would_be_equal_go_by_their_first_leaf() -> None:
    """Leaves numbered through say nothing of pods."""
    parts = []
    for pod in range(2):
        parts.append(part(f"h{pod}", ComponentKind.HOST))
        for rail in range(2):
            leaf, rnic = f"leaf:{2 * pod + rail}", f"rnic:h{pod}/r{rail}"
            parts += [part(leaf, ComponentKind.SWITCH, tier=0), cable(leaf, rnic)]
            parts += [part(rnic, ComponentKind.RNIC, parent=f"h{pod}"), cable(leaf, "spine:0")]
            parts += [part(f"c{pod}/r{rail}", ComponentKind.ENDPOINT, parent=rnic)]
    parts.append(part("spine:0", ComponentKind.SWITCH, tier=1))
    found = places(parts, {}, ["c0/r0", "c1/r0"])
    assert found.pods == ("leaf:0", "leaf:2")
