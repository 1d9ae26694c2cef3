"""The least delay of any test: by Wald's own test on simulated losses, and of a sealed world."""

from math import inf, log

import numpy as np
import pytest

from arena.least_delay import Stretch, information, least_delay_s, least_delays_ns
from arena.sealed.draw import draw

USUAL, COMPONENTS = 1e-5, 300


def gamma(rate_hz: float) -> float:
    """Return the observations between false alarms of one component."""
    return 30 * 86_400 * COMPONENTS * rate_hz


@pytest.mark.parametrize("share", [0.005, 0.02])
def test_the_best_test_is_not_sooner(share: float) -> None:
    """Page's test, which reaches the bound, on 400 faults: not much later either."""
    rate_hz = 20
    rng = np.random.default_rng(1)
    lost = rng.random((400, 400 * rate_hz)) < share
    good, bad = log((1 - share) / (1 - USUAL)), log(share / USUAL)
    level, steps = np.zeros(len(lost)), np.zeros(len(lost))
    running = np.ones(len(lost), np.bool_)
    for number in range(lost.shape[1]):
        level = np.maximum(0.0, level + np.where(lost[:, number], bad, good))
        running &= level < log(gamma(rate_hz))
        steps[running] = number + 1
    stretch = Stretch(begin_s=0, end_s=400, rate_hz=rate_hz, share=share)
    least_s = least_delay_s([stretch], usual=USUAL, components=COMPONENTS)
    assert least_s is not None
    assert 0.9 * least_s <= steps.mean() / rate_hz <= 1.5 * least_s


def test_pauses_tell_nothing() -> None:
    """What is on for a fifth of the time takes five times as long; a short one is never found."""

    def least_s(on_s: float, off_s: float, count: int) -> float | None:
        parts = [
            Stretch(n * (on_s + off_s), n * (on_s + off_s) + on_s, 20, 0.01) for n in range(count)
        ]
        return least_delay_s(parts, usual=USUAL, components=COMPONENTS)

    steady, pulsed = least_s(1.0, 0.0, 600), least_s(1.0, 4.0, 600)
    assert steady is not None
    assert pulsed is not None
    assert pulsed == pytest.approx(5 * steady, abs=5.0)
    assert least_s(1.0, 4.0, 3) is None


def test_information_grows_with_the_share() -> None:
    """From nothing at the usual loss to all that a lost packet tells."""
    shares = [USUAL, 1e-4, 1e-3, 0.01, 0.5, 1.0]
    found = [information(share, USUAL) for share in shares]
    assert found == sorted(found)
    assert found[0] == 0.0
    assert found[-1] == pytest.approx(-log(USUAL))
    assert max(found) < inf


def test_faults_of_a_sealed_world_have_one_if_they_lose_packets() -> None:
    """A development seed with a packet loss and a delay."""
    world = draw(131, "gray")
    found = least_delays_ns(world)
    losing = {one.name for one in world.injected if one.kind == "packet_loss"}
    assert set(found) == losing
    assert all(10e9 < (least or inf) < 200e9 for least in found.values())
