"""Drawing worlds: the rules of what is drawn."""

import re
from collections import Counter
from functools import cache

import pytest

from arena.sealed.confounders import CONFOUNDERS
from arena.sealed.draft import LEAD_S, TAIL_S
from arena.sealed.draw import AGENTS, FAMILIES, GRAY, HARD
from arena.sealed.draw import draw as draw_anew
from tests import ROOT

SEEDS = range(60)
draw = cache(draw_anew)
# Kinds of truth that are not named like the function that draws them.
RENAMED = {
    "silent_port": "connectivity",
    "rnic_port_down": "port_down",
    "missing_route": "connectivity",
    "host_down": "connectivity",
}


def kinds_of_the_page() -> set[str]:
    """Return the kinds that the catalogue's page lists."""
    page = (ROOT / "docs" / "reference" / "kinds.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(\w+)` \| [a-z ]+ \| [a-z]+ \|", page, re.MULTILINE))


@pytest.fixture(scope="module")
def drawn() -> dict[str, Counter[str]]:
    """Return how often each kind was drawn, by family."""
    counts: dict[str, Counter[str]] = {}
    for family in FAMILIES:
        counts[family] = Counter(
            injected.kind for seed in SEEDS for injected in draw(seed, family).injected
        )
    return counts


@pytest.mark.parametrize("family", FAMILIES)
def test_truth_is_well_formed(family: str) -> None:
    """Names are unique, kinds are known, times lie in the world and after the healthy lead."""
    known = kinds_of_the_page()
    for seed in range(25):
        world = draw(seed, family)
        assert world.injected
        assert len({i.name for i in world.injected}) == len(world.injected)
        end_ns = world.start_ns + world.duration_s * 10**9
        for injected in world.injected:
            begin_s = (injected.begin_ns - world.start_ns) / 1e9
            assert begin_s >= LEAD_S
            assert injected.end_ns is None or injected.begin_ns < injected.end_ns <= end_ns
            assert injected.note
            if not injected.confounder:
                assert begin_s <= world.duration_s - TAIL_S
                assert injected.components
                assert {injected.kind} | injected.also_kinds <= known
                assert injected.kind not in injected.also_kinds


def test_families_hold_what_they_say(drawn: dict[str, Counter[str]]) -> None:
    """Each draws all of its kinds over some seeds, and none of another family's."""
    hard = {RENAMED.get(name, name) for name in HARD}
    assert set(drawn["hard"]) == hard
    assert set(drawn["gray"]) == set(GRAY)
    assert set(drawn["confounders"]) == set(CONFOUNDERS)
    everything = hard | set(GRAY) | set(AGENTS)
    faults = set(drawn["mixed"]) - set(CONFOUNDERS)
    assert faults <= everything
    assert len(faults) > 0.7 * len(everything)


def test_a_world_of_look_alikes_has_twenty_an_hour() -> None:
    """And no fault."""
    worlds = [draw(seed, "confounders") for seed in range(40)]
    hours = sum((world.duration_s - LEAD_S - 40.0) / 3600.0 for world in worlds)
    assert all(injected.confounder for world in worlds for injected in world.injected)
    assert sum(len(world.injected) for world in worlds) / hours == pytest.approx(20.0, rel=0.05)


def test_some_faults_overlap_and_the_first_clears_first() -> None:
    """In a good part of the worlds with two."""
    both = overlapping = 0
    for seed in SEEDS:
        faults = [i for i in draw(seed, "mixed").injected if not i.confounder]
        if len(faults) == 2:
            first, second = sorted(faults, key=lambda i: i.begin_ns)
            both += 1
            if first.end_ns is not None and second.begin_ns < first.end_ns:
                overlapping += 1
                assert second.end_ns is None or first.end_ns < second.end_ns
    assert both / 4 < overlapping < both


def test_an_unknown_family_is_refused() -> None:
    """By name."""
    with pytest.raises(ValueError, match="no family"):
        draw(1, "easy")
