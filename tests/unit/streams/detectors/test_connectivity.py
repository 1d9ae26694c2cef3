"""Runs of losses in the order of sending."""

from schemas.units import SECOND_NS
from streams.detectors.connectivity import RUN_NS, Runs

ROW = 3


def feed(
    runs: Runs, results: list[tuple[float, bool]], healthy_at: float | None = 0.0
) -> list[int]:
    """Add (second, lost) results; return the run lengths, negative for answers."""
    lengths = []
    for second, lost in results:
        before = None if healthy_at is None else int(healthy_at * SECOND_NS)
        run = runs.observe(ROW, int(second * SECOND_NS), lost, before)
        lengths.append(run.count if run.lost else -run.count)
    return lengths


def test_losses_add_up_and_an_answer_ends_them() -> None:
    """Runs count what is alike; one answer in between starts anew."""
    runs = Runs(3)
    assert feed(runs, [(1, True), (2, True), (3, False), (4, True), (5, True), (6, True)]) == [
        1, 2, -1, 1, 2, 3,
    ]  # fmt: skip
    latest = runs.latest(ROW)
    assert latest is not None
    assert (latest.first_ns, latest.last_ns) == (4 * SECOND_NS, 6 * SECOND_NS)


def test_healthy_again_costs_nothing() -> None:
    """After as many answers as losses are needed, the 5-tuple is no longer kept."""
    runs = Runs(3)
    feed(runs, [(1, True), (2, False), (3, False)])
    assert ROW in runs
    feed(runs, [(4, False)])
    assert ROW not in runs
    assert len(runs) == 0


def test_order_of_sending_decides_not_of_arrival() -> None:
    """An answer sent between the losses breaks their run, even when it is told later."""
    runs = Runs(3)
    assert feed(runs, [(1, True), (3, True), (2, False), (4, True)])[-1] == 2


def test_late_old_loss_does_not_make_a_run() -> None:
    """A loss older than the last answer changes nothing at the end."""
    runs = Runs(3)
    assert feed(runs, [(4, True), (1, True), (2, True)], healthy_at=3.0) == [1, 1, 1]


def test_losses_far_apart_are_no_run() -> None:
    """Only results within half a minute of the latest count."""
    runs = Runs(3)
    apart = RUN_NS / SECOND_NS - 10
    lengths = feed(runs, [(i * apart, True) for i in range(1, 5)], healthy_at=None)
    assert lengths == [1, 2, 2, 2]


def test_lone_answer_after_a_long_silence_is_health() -> None:
    """With nothing else in the last half minute one answer is all there is."""
    runs = Runs(3)
    feed(runs, [(1, True), (2, True), (3, True)])
    run = runs.observe(ROW, 60 * SECOND_NS, False, None)
    assert run.alone
    assert ROW not in runs


def test_dropped_row_is_forgotten() -> None:
    """A retired 5-tuple leaves nothing behind."""
    runs = Runs(3)
    feed(runs, [(1, True)])
    runs.forget(ROW)
    assert runs.latest(ROW) is None
