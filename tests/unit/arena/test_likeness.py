"""Round trips beside each other: quantities against slow twins, and telltales that tell."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from arena.likeness import MAX_LAG, TELLTALES, Trips, autocorrelation, shape, telling
from ops.bench.accuracy.likeness import simulated
from schemas.columns.arrays import Int64s

COUNT = 300


def natural(seed: int, median_ns: float = 16_000.0) -> Trips:
    """Return the round trips of ten 5-tuples that nothing gives away."""
    rng = np.random.default_rng(seed)
    flow = np.tile(np.arange(10), COUNT)
    size = len(flow)
    second = np.repeat(np.arange(COUNT), 10) * 10**9
    return Trips(
        name=f"natural {seed}",
        flow=flow,
        sent_ns=second + flow * 10**7 + rng.exponential(50_000, size).astype(np.int64),
        rtt_ns=np.rint(median_ns * np.exp(rng.normal(0, 0.1, size))).astype(np.int64),
        host_ns=rng.integers(3_000, 9_000, size),
        responder_ns=rng.integers(3_000, 9_000, size),
    )


def test_shape_is_free_of_the_paths_speed() -> None:
    """Scaled logarithms of one distribution agree, however long the way."""
    slow, fast = shape(natural(1, 160_000.0)), shape(natural(2, 16_000.0))
    assert slow.median_ns == pytest.approx(160_000, rel=0.02)
    assert slow.sigma == pytest.approx(0.1, rel=0.1)
    middle = (slow.levels > 0.02) & (slow.levels < 0.98)
    assert np.abs(slow.quantiles - fast.quantiles)[middle].max() < 0.25
    assert slow.paths == 10


def test_autocorrelation_equals_ranks_correlated() -> None:
    """Scipy's rank correlation is the twin."""
    values = np.cumsum(np.random.default_rng(3).normal(size=2_000))
    found = autocorrelation(values)
    assert found.shape == (MAX_LAG,)
    assert found[0] == pytest.approx(spearmanr(values[1:], values[:-1]).statistic, abs=0.01)


def rounded(trips: Trips) -> Trips:
    """Return trips in whole tenths of a microsecond."""
    return replace(trips, rtt_ns=trips.rtt_ns // 100 * 100)


def paced(trips: Trips) -> Trips:
    """Return trips that are sent at exact steps."""
    return replace(trips, sent_ns=trips.sent_ns // 10**7 * 10**7)


def constant(column: str) -> Callable[[Trips], Trips]:
    """Return what gives a column one value."""

    def made(trips: Trips) -> Trips:
        values: Int64s = np.full(len(trips.flow), 4_000)
        if column == "host_ns":
            return replace(trips, host_ns=values)
        return replace(trips, responder_ns=values)

    return made


@pytest.mark.parametrize(
    ("spoil", "tells"),
    [
        (rounded, {"round trips that repeat", "round trips in round numbers"}),
        (paced, {"5-tuples probed at exact steps"}),
        (constant("host_ns"), {"5-tuples whose prober delay never varies"}),
        (constant("responder_ns"), {"5-tuples whose responder delay never varies"}),
    ],
)
def test_each_artefact_tells(spoil: Callable[[Trips], Trips], tells: set[str]) -> None:
    """Each artefact is told, and nothing else."""
    recorded = shape(natural(4))
    assert telling(shape(natural(5)), recorded) == []
    assert set(telling(shape(spoil(natural(5))), recorded)) == tells


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_repeats_beyond_chance_are_counted(share: float) -> None:
    """Some answers that repeat the one before; chance repeats, and is taken out."""
    clean = natural(8)
    again = np.random.default_rng(9).random(len(clean.flow)) < share
    again[:10] = False
    rtt = clean.rtt_ns.copy()
    rtt[again] = np.roll(clean.rtt_ns, 10)[again]
    found = shape(replace(clean, rtt_ns=rtt)).telltales["round trips that repeat"]
    assert found == pytest.approx(share, rel=0.5)
    assert shape(clean).telltales["round trips that repeat"] < 0.01


def test_what_is_not_measured_is_no_constant() -> None:
    """Missing values do not count as a frozen delay."""
    unknown = replace(natural(6), responder_ns=np.full(10 * COUNT, -1))
    assert shape(unknown).telltales["5-tuples whose responder delay never varies"] == 0.0


def test_the_simulator_has_none_of_the_telltales() -> None:
    """Nothing but physics may tell simulated health from recorded."""
    found = shape(simulated())
    assert found.paths == 96
    assert set(found.telltales) == set(TELLTALES)
    assert max(found.telltales.values()) < 0.02


def test_too_short_a_recording_is_refused() -> None:
    """The message names what is short."""
    short = natural(7)
    short = Trips(
        name="short", flow=short.flow[:90], sent_ns=short.sent_ns[:90], rtt_ns=short.rtt_ns[:90],
        host_ns=short.host_ns[:90], responder_ns=short.responder_ns[:90],
    )  # fmt: skip
    with pytest.raises(ValueError, match="short: no 5-tuple has 60 answers"):
        shape(short)
