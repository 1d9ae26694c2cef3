"""How long transfers take over a network that loses packets, stands, or is slow."""

import pytest

from arena.faults.effects import Effect
from arena.training.run import JobScenario, staged
from arena.training.shape import JobShape
from arena.training.wires import Wires, share
from schemas.units import SECOND_NS

SHAPE = JobShape(tp=2, pp=2, dp=4, ep=2, rails=2)
CLUSTER = staged(JobScenario(name="x", seed=1, seconds=10, shape=SHAPE)).world.cluster
# Rank 2 and rank 6 are on two hosts, each with an RNIC of its number.
EDGE = (2, 6)
S = 1_000_000


def wires(*effects: Effect, rates: dict[int, float] | None = None) -> Wires:
    """Return the ways of the job under some effects."""
    return Wires(SHAPE, CLUSTER, effects, rates or {}, 0)


def on(component: int, begin_s: float, end_s: float | None, **what: float | int) -> Effect:
    """Return an effect."""
    return Effect(
        component=component, begin_ns=round(begin_s * SECOND_NS),
        end_ns=None if end_s is None else round(end_s * SECOND_NS), **what,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_cut_touches_what_crosses_it_and_nothing_else() -> None:
    """While it lasts, and for good if it does."""
    cut = wires(on(2, 5, None, loss=1.0))
    assert cut.end_us([EDGE], 1 * S, 1_000) == 1 * S + 1_000
    assert cut.end_us([EDGE], 5 * S, 1_000) is None
    assert cut.end_us([EDGE], 5 * S - 500, 1_000) is None
    assert cut.end_us([(0, 4)], 6 * S, 1_000) == 6 * S + 1_000
    assert cut.standing_since(EDGE, 6 * S) == 5 * S
    assert cut.standing_since(EDGE, 4 * S) is None


def test_after_a_cut_the_next_try_comes_when_the_timer_says() -> None:
    """It has doubled meanwhile: within as long again."""
    end = wires(on(2, 5, 9, loss=1.0)).end_us([EDGE], 5 * S, 1_000)
    assert end is not None
    assert 9 * S <= end <= 13 * S + 1_000


@pytest.mark.parametrize(("loss", "factor"), [(0.01, 11.0), (0.1, 34.8)])
def test_loss_makes_transfers_slow_with_its_root(loss: float, factor: float) -> None:
    """Below one half."""
    end = wires(on(2, 0, None, loss=loss)).end_us([EDGE], 0, 10_000)
    assert end == pytest.approx(10_000 * factor, rel=0.01)


def test_spells_are_waited_out() -> None:
    """What does not fit between them takes several."""
    flaps = wires(on(2, 0, None, loss=1.0, on_ns=SECOND_NS, off_ns=SECOND_NS))
    end = flaps.end_us([EDGE], 0, 500_000)
    assert end is not None
    assert end >= 1_500_000
    assert flaps.standing_since(EDGE, 4_300_000) == 4 * S
    assert flaps.standing_since(EDGE, 5_300_000) is None


def test_a_narrow_link_is_slow_only_while_it_is_narrow() -> None:
    """Half of a transfer before, half within."""
    narrow = wires(on(2, 1, None, delay_ns=1_000), rates={2: 4.0})
    assert narrow.end_us([EDGE], 900_000, 200_000) == 1_400_000
    assert narrow.slowness(EDGE, 900_000) == 1.0


def test_shares_are_spread_evenly() -> None:
    """And the same on every machine."""
    found = [share(n, 7) for n in range(2_000)]
    assert 0.48 < sum(found) / len(found) < 0.52
    assert share(1, 2) == share(1, 2) != share(2, 1)
