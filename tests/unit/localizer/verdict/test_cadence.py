"""When decisions are due: at once after a change, seldom while nothing changes."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from localizer.config import GRID_NS
from localizer.verdict.cadence import (
    AGE_SHARE,
    CALM_GRID_NS,
    GRADUAL_GRID_NS,
    LOOKED_AT_FLOWS,
    STORM_FLOWS,
    STORM_GRID_NS,
    Cadence,
    step_of,
)
from schemas.units import SECOND_NS

# Grid points at which something changes, by what; a minute.
changes = st.lists(st.sampled_from(["sudden", "gradual", ""]), min_size=1, max_size=240)


def _due(steps: list[str], *, begin: int = 0, flows: int = 0) -> list[int]:
    cadence, found = Cadence(), []
    sudden = gradual = 0
    for number, what in enumerate(steps):
        sudden += what == "sudden"
        gradual += what == "gradual"
        if number >= begin and cadence.due(number * GRID_NS, (sudden,), (gradual,), flows=flows):
            found.append(number * GRID_NS)
    return found


@given(changes)
def test_a_sudden_change_is_decided_at_its_grid_point(steps: list[str]) -> None:
    """What is evidence at once does not wait."""
    due = set(_due(steps))
    assert {n * GRID_NS for n, what in enumerate(steps) if what == "sudden"} <= due


@given(changes)
def test_a_gradual_change_waits_for_less_than_a_second(steps: list[str]) -> None:
    """What adds up over time waits for the next second at most."""
    due = _due([*steps, "", "", "", ""])
    for number, what in enumerate(steps):
        if what == "gradual":
            at_ns = number * GRID_NS
            assert any(at_ns <= t < at_ns + GRADUAL_GRID_NS for t in due)


@given(changes)
def test_no_gap_is_longer_than_the_calm_grid(steps: list[str]) -> None:
    """Time by itself ends waits: it is looked at every two seconds."""
    due = _due(steps)
    assert all(b - a <= CALM_GRID_NS for a, b in pairwise(due))


@given(changes, st.integers(0, 239))
def test_who_starts_again_decides_when_the_former_process_would(
    steps: list[str], begin: int
) -> None:
    """It sees a change where it starts, which is at most more often."""
    before, after = _due(steps), _due(steps, begin=begin)
    settled_ns = (begin * GRID_NS) + 2 * CALM_GRID_NS * AGE_SHARE
    assert {t for t in before if t >= begin * GRID_NS} <= set(after)
    assert [t for t in after if t >= settled_ns] == [t for t in before if t >= settled_ns]


def test_decisions_grow_rarer_while_nothing_changes() -> None:
    """A decision is due when the evidence has aged by an eighth."""
    due = _due(["sudden", *[""] * 239])
    # 16 in four seconds, 8 in the next four, 8 in the next eight, then one each two seconds.
    assert [sum(a * SECOND_NS <= t < b * SECOND_NS for t in due)
            for a, b in ((0, 4), (4, 8), (8, 16), (16, 60))] == [16, 8, 8, 22]  # fmt: skip


def test_a_storm_is_decided_at_once_and_then_seldom() -> None:
    """With more bad 5-tuples a decision takes longer, and the next one comes later."""
    due = _due(["sudden"] * 240, flows=11 * STORM_FLOWS)
    assert due[:3] == [0, 16 * GRID_NS, 32 * GRID_NS]
    due = _due(["sudden"] * 240, flows=LOOKED_AT_FLOWS)
    assert due[:3] == [0, 2 * GRID_NS, 4 * GRID_NS]
    due = _due(["sudden"] * 240, flows=10**9)
    assert due[:2] == [0, STORM_GRID_NS]


def test_what_changes_suddenly_after_a_pause_is_decided_at_once() -> None:
    """Many late 5-tuples, which only add up, put off no cut; one cut after another waits again."""
    cuts = {20: "sudden", 21: "sudden", 40: "sudden"}
    steps = ["gradual" if n % 4 == 0 else cuts.get(n, "") for n in range(60)]
    steps[20] = steps[40] = "sudden"
    due = _due(steps, flows=11 * STORM_FLOWS)
    assert 20 * GRID_NS in due
    assert 21 * GRID_NS not in due
    assert 40 * GRID_NS in due


@given(st.integers(0, 10**12), st.sampled_from([GRID_NS, GRADUAL_GRID_NS]))
def test_the_step_is_a_share_of_the_age(age_ns: int, least_ns: int) -> None:
    """No step is longer than its share, and all divide the calm grid."""
    step_ns = step_of(age_ns, least_ns)
    assert least_ns <= step_ns <= CALM_GRID_NS
    assert step_ns == least_ns or step_ns * AGE_SHARE <= age_ns
    assert CALM_GRID_NS % step_ns == 0
