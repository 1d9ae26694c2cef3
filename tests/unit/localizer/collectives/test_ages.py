"""Waits are held against those before, by the waiting rank's own clock."""

import pytest

from localizer.collectives.ages import Age, idle_age
from probers.collectives.flight_recorder import read_dump
from schemas.records import CollectiveSnapshot
from tests.flight_recorder import BEGIN_NS, WORLD, Rank

MS_NS = 1_000_000
GROUPS = {**WORLD, "1": [0, 1]}


def snapshot(times_ms: list[int], *, ring: int | None = None) -> CollectiveSnapshot:
    """Return a rank that launched in two groups in turns, at these times."""
    rank = Rank(0, GROUPS)
    for place, time in enumerate(times_ms):
        rank.launch(str(place % 2))
        rank.entries[-1]["time_created_ns"] = BEGIN_NS + time * MS_NS
    taken_at = BEGIN_NS // 1000 + (times_ms[-1] + 600) * 1000
    return read_dump(rank.pickled(ring=ring), "d0", taken_at=taken_at).snapshot


def test_the_first_iteration_is_no_measure() -> None:
    """Connections are made in it: eight seconds, once."""
    age = idle_age(snapshot([0, 8_000, 8_100, 8_200, 8_350]))
    assert (age.waited, age.longest_before) == (600_000, 150_000)
    assert not age.is_usual


def test_a_ring_that_lost_its_beginning_has_no_first_iteration() -> None:
    """What it holds is measured whole."""
    age = idle_age(snapshot([0, 100, 500, 600, 700], ring=4))
    assert age.longest_before == 400_000
    assert age.is_usual


@pytest.mark.parametrize(
    ("waited", "longest_before", "timed_out", "usual"),
    [
        (150, 100, False, True), (151, 100, False, False), (1, 100, True, False),
        (None, 100, False, False), (1, None, False, False),
    ],
)  # fmt: skip
def test_usual_is_what_was_before(
    waited: int | None, longest_before: int | None, timed_out: bool, usual: bool
) -> None:
    """Half as much again at most, and never what was given up or is not known."""
    age = Age(0, 0, waited, longest_before, timed_out)
    assert age.is_usual == usual
