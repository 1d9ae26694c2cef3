"""Single losses: what counts as one, for how long, and how many."""

from localizer.facts.stray_losses import HORIZON_NS, StrayLosses
from schemas.enums import AnomalyKind, AnomalyState
from schemas.units import SECOND_NS
from tests.unit.localizer.made import START, anomaly

KEY = ("e0", "e1", 0)


def observe(
    strays: StrayLosses,
    lost_s: int,
    *,
    target: str = "e1",
    state: AnomalyState = AnomalyState.ONSET,
    known_s: int | None = None,
) -> None:
    """Let a loss be observed, at once or later."""
    at = START + (lost_s if known_s is None else known_s) * SECOND_NS
    record = anomaly(
        AnomalyKind.STRAY_LOSS, state, at=at, onset=START + lost_s * SECOND_NS, ends=("e0", target)
    )
    strays.observe_loss(record, at)


def times_s(strays: StrayLosses) -> list[float]:
    """Return when the losses were."""
    return [(loss.lost_ns - START) / SECOND_NS for loss in strays.losses()]


def test_each_onset_is_a_loss_and_nothing_else_is() -> None:
    """Repetitions, ends and duplicates are none."""
    strays = StrayLosses()
    for state in (AnomalyState.ONSET, AnomalyState.ONSET, AnomalyState.ONGOING):
        observe(strays, 0, state=state, known_s=4)
    observe(strays, 0, state=AnomalyState.CLEARED, known_s=10)
    observe(strays, 20)
    assert times_s(strays) == [0, 20]


def test_losses_before_a_cut_are_the_cuts() -> None:
    """Also where the cut is told before the loss that was its first."""
    strays = StrayLosses()
    observe(strays, 0)
    strays.explain(KEY, START + 10 * SECOND_NS)
    observe(strays, 9, known_s=10)
    observe(strays, 9, target="e2", known_s=10)
    observe(strays, 30)
    assert [(loss.key[1], (loss.lost_ns - START) / SECOND_NS) for loss in strays.losses()] == [
        ("e2", 9), ("e1", 30),
    ]  # fmt: skip


def test_what_explains_more_stays() -> None:
    """A fault that is over explains its losses, whatever ended before it."""
    strays = StrayLosses()
    observe(strays, 20)
    strays.explain(KEY, START + 25 * SECOND_NS)
    strays.explain(KEY, START + 10 * SECOND_NS)
    assert times_s(strays) == []


def test_old_losses_are_forgotten() -> None:
    """With all that belongs to them."""
    strays = StrayLosses()
    observe(strays, 0)
    strays.explain(("e7", "e8", 0), START)
    strays.expire(START + HORIZON_NS)
    assert len(strays) == 1
    strays.expire(START + HORIZON_NS + 1)
    assert len(strays) == 0
    assert not strays._latest
    assert not strays._explained_ns


def test_of_too_many_the_oldest_go() -> None:
    """And are counted."""
    strays = StrayLosses(max_losses=3)
    for second in range(5):
        observe(strays, second, target=f"e{second}")
    assert times_s(strays) == [2, 3, 4]
    assert strays.forgotten == 2


def test_a_clock_that_is_off_dates_no_loss() -> None:
    """The loss was when it became known."""
    strays = StrayLosses()
    observe(strays, 3600, known_s=5)
    observe(strays, -3600, target="e2", known_s=6)
    assert times_s(strays) == [5, 6]
