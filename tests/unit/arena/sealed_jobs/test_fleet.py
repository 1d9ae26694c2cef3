"""Ranks on hosts: which RNIC, which stage, which replica."""

import pytest

from arena.sealed_jobs.fleet import Degrees, Fleet, Host, Layout, Seat


def fleet_of(*rnics: int, gpus: int = 8) -> Fleet:
    """Return hosts with the given numbers of RNICs."""
    return Fleet(
        [Host(name=f"h{i}", gpus=gpus, rails=tuple(range(n))) for i, n in enumerate(rnics)]
    )


def all_seats(fleet: Fleet) -> list[Seat]:
    """Return every GPU, host by host."""
    return [Seat(host=i, gpu=g) for i, h in enumerate(fleet.hosts) for g in range(h.gpus)]


def test_a_gpu_sends_through_the_nearest_rnic() -> None:
    """Eight GPUs share four RNICs in pairs; the numbers go on in the next host."""
    fleet = fleet_of(4, 8)
    assert [fleet.rnic_of(Seat(host=0, gpu=g)) for g in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [fleet.rnic_of(Seat(host=1, gpu=g)) for g in range(8)] == list(range(4, 12))
    assert fleet.names[5] == "h1/r1"
    assert fleet.rnic_at(0, 5) is None


def test_crossed_wires_are_followed() -> None:
    """The first GPU sends through the rail that its host names first."""
    fleet = Fleet([Host(name="h", gpus=4, rails=(2, 3, 0, 1))])
    seats = [Seat(host=0, gpu=g) for g in range(4)]
    assert [fleet.names[fleet.rnic_of(s)] for s in seats] == ["h/r2", "h/r3", "h/r0", "h/r1"]


def test_default_nesting_puts_stages_last() -> None:
    """Tensor groups of four: a host holds two replicas of one stage."""
    fleet = fleet_of(8, 8)
    layout = Layout(fleet, Degrees(tp=4, dp=2, pp=2), all_seats(fleet))
    assert layout.stages() == (
        frozenset(f"h0/r{r}" for r in range(8)),
        frozenset(f"h1/r{r}" for r in range(8)),
    )
    assert layout.replicas()[1] == frozenset(f"h{h}/r{r}" for h in (0, 1) for r in range(4, 8))
    assert [g.tolist() for g in layout.gradient_groups(0)] == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_pipeline_first_puts_stages_beside_each_other() -> None:
    """A host holds a whole pipeline of two stages."""
    fleet = fleet_of(8, 8)
    degrees = Degrees(tp=4, dp=2, pp=2, nesting=("tp", "cp", "pp", "dp"))
    layout = Layout(fleet, degrees, all_seats(fleet))
    assert layout.replicas()[0] == frozenset(f"h0/r{r}" for r in range(8))
    assert layout.fits()


def test_expert_and_context_groups() -> None:
    """Experts are cut from successive replicas; the same experts are one group apart."""
    fleet = fleet_of(8, 8)
    layout = Layout(fleet, Degrees(tp=2, dp=4, cp=2, ep=2), all_seats(fleet))
    assert [g.tolist() for g in layout.expert_groups(0)][:2] == [[0, 4], [1, 5]]
    assert layout.expert_gradient_groups(0)[0].tolist() == [0, 2, 8, 10]
    assert layout.context_groups(0, 1)[0].tolist() == [4, 6]


def test_what_does_not_fit_is_said() -> None:
    """Tensor groups over two hosts, RNICs of two replicas, and too few seats."""
    fleet = fleet_of(8, 8)
    assert not Layout(fleet, Degrees(tp=16), all_seats(fleet)).fits()
    fleet = fleet_of(4)
    assert not Layout(fleet, Degrees(tp=1, dp=8), all_seats(fleet)).fits()
    assert Layout(fleet, Degrees(tp=2, dp=4), all_seats(fleet)).fits()
    with pytest.raises(ValueError, match="16 ranks do not fit on 8 seats"):
        Layout(fleet, Degrees(tp=16), all_seats(fleet))
