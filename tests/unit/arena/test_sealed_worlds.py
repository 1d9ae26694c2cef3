"""Sealed worlds through our pipeline: their records are understood, and what counts is counted."""

from dataclasses import replace

from arena.faults.truth import TrueFault, Verdict
from arena.sealed.draw import FAMILIES, draw
from arena.sealed_worlds import FIRST_SEED, counted, diagnose, draws
from schemas.enums import Layer
from schemas.units import SECOND_NS

# Not among the seeds that are measured.
SEED = 3


def verdict(name: str, layer: Layer, opened_s: int) -> Verdict:
    """Return a verdict about a component of that name."""
    return Verdict(
        fault_id=name, kind="agent_dead", layer=layer, candidates=(name,),
        opened_ns=opened_s * SECOND_NS, decided=True, pages=layer is not Layer.HOST,
    )  # fmt: skip


def test_the_first_minute_of_a_world_is_understood() -> None:
    """Nothing has happened yet, and nothing is said; all rounds count."""
    world = replace(draw(SEED, "hard"), duration_s=60)
    assert not diagnose(world)


def test_a_warning_about_an_agent_counts_where_it_answers_a_fault() -> None:
    """It is never false; what pages is, if it answers none."""
    fault = TrueFault(
        fault_id="f", kind="agent_dead", layer=Layer.HOST, components=frozenset({"agent-a"}),
        begin_ns=10 * SECOND_NS, end_ns=None, hard=True,
    )  # fmt: skip
    right = verdict("agent-a", Layer.HOST, 12)
    drained = verdict("agent-b", Layer.HOST, 5)
    false = verdict("vsw:h1", Layer.OVERLAY, 5)
    assert counted((fault,), [right, drained, false]) == (right, false)
    assert counted((), [drained]) == ()


def test_families_take_turns() -> None:
    """Each world has a seed of its own family."""
    found = draws(len(FAMILIES) + 1)
    assert found[: len(FAMILIES)] == [(FIRST_SEED, family) for family in FAMILIES]
    assert found[-1] == (FIRST_SEED + 1, FAMILIES[0])
