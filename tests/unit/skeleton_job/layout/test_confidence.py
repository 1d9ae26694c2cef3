"""What the confidence of an inference is made of."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.columns.arrays import Floats
from skeleton_job.layout.blocks import Blocks
from skeleton_job.layout.confidence import (
    WEIGHTS,
    calibrated,
    folded,
    plateau,
    popularity,
    signs_of,
    steadiness,
    unevenness,
)
from skeleton_job.layout.description import Evidence
from skeleton_job.layout.inner import NONE, Inner
from skeleton_job.layout.layouts import Choice
from skeleton_job.layout.stages import StageOrder

HOSTS, POINTS = 4, 40
ORDER = StageOrder((0, 1), 0.9, directed=True)


def _blocks(tx: Floats, rx: Floats) -> Blocks:
    """Return one block a host, of one RNIC, with these mean iterations."""
    n = len(tx)
    whole = np.hstack([tx, rx])
    return Blocks(
        members=tuple(() for _ in range(n)), halves=(whole, whole), tx=tx, rx=rx,
        known=np.ones(n, np.bool_), hosts=np.arange(n), rows=np.arange(n)[:, None],
        seen=np.ones((n, 1), np.bool_), places=np.ones((n, 1), np.int64), width=1,
        replicas=False, unlike=False, width_margin=9.0, width_certainty=1.0, floor=1.0,
    )  # fmt: skip


def _evidence(blocks: Blocks) -> Evidence:
    return Evidence(
        profiles=np.hstack([blocks.tx, blocks.rx]), known=blocks.known, hosts=blocks.hosts,
        floor=1.0, max_shift=1.0,
    )  # fmt: skip


def _burst() -> Floats:
    """Return a mean iteration with one burst of a tenth of it."""
    row = np.zeros(POINTS)
    row[:4] = 10.0
    return np.tile(row, (HOSTS, 1))


def _signs(choice: Choice, blocks: Blocks, inner: Inner = NONE) -> dict[str, float]:
    return signs_of(choice, ORDER, inner, _evidence(blocks), blocks)


def test_signs_are_those_that_have_weights() -> None:
    """In the same order, so that a fit can be copied."""
    blocks = _blocks(_burst(), _burst())
    for count in (1, 2):
        choice = Choice(np.arange(HOSTS) % count, count, 1, np.inf)
        signs = _signs(choice, blocks)
        assert list(signs) == list(WEIGHTS)
        assert all(abs(value) < 3 for value in signs.values())
        assert 0 < calibrated(signs) < 1


def test_a_layout_that_others_come_near_is_doubted() -> None:
    """By all traffic, and by what the flows alone say."""
    blocks = _blocks(_burst(), _burst())
    clear = Choice(np.arange(HOSTS) % 2, 2, 1, 50.0, flow_margin=50.0)
    near, disputed = replace(clear, margin=0.5), replace(clear, flow_margin=-50.0)
    sure = calibrated(_signs(clear, blocks))
    assert sure > calibrated(_signs(near, blocks))
    assert sure > calibrated(_signs(disputed, blocks))


def test_what_stages_send_and_receive_all_the_time_needs_an_explanation() -> None:
    """Popular experts are one; a context group that fills its stage is not seen, so it counts."""
    choice = Choice(np.arange(HOSTS) % 2, 2, 1, 50.0)
    steady = _burst() + 4.0
    popular = steady * np.array([1.0, 1.1, 0.9, 1.0])[:, None]
    silent = _signs(choice, _blocks(_burst(), _burst()))["steady"]
    unknown = _signs(choice, _blocks(steady, steady))["steady"]
    known = _signs(choice, _blocks(popular, steady))["steady"]
    assert silent == 0.0
    assert unknown == pytest.approx(4 / 14, abs=1e-3)
    assert known < 0.1 * unknown
    assert _signs(choice, _blocks(steady, steady), Inner("ep", 2, ()))["steady"] == 0.0


def test_rings_far_below_the_gradient_sum_need_an_explanation() -> None:
    """Without stages: of a context group that fills the job, or of popular experts."""
    alone = Choice(np.zeros(HOSTS, np.int64), 1, HOSTS, np.inf)
    ring, full = _burst() + 1.0, _burst() + 12.0
    popular = ring * np.array([1.0, 1.1, 0.9, 1.0])[:, None]
    unknown = _signs(alone, _blocks(ring, ring))["plateau"]
    assert unknown == pytest.approx(0.8)
    assert _signs(alone, _blocks(popular, ring))["plateau"] < 0.1 * unknown
    # A sharded model fills the links, a plain one is silent but for the sum.
    assert _signs(alone, _blocks(full, full))["plateau"] == 0.0
    assert _signs(alone, _blocks(_burst(), _burst()))["plateau"] == 0.0
    assert _signs(alone, _blocks(ring, ring), Inner("cp", 2, ()))["plateau"] == 0.0


@given(count=st.integers(2, 4), each=st.integers(1, 3), pipelines=st.integers(1, 3), data=st.data())
def test_a_pipeline_folded_in_the_middle_is_seen(
    count: int, each: int, pipelines: int, data: st.DataObject
) -> None:
    """Whatever the numbers of its classes and however many blocks are unknown; others are not."""
    stage = np.arange(2 * count * each * pipelines) // each % (2 * count)
    names = np.array(data.draw(st.permutations(range(count))))
    fold = names[np.minimum(stage, 2 * count - 1 - stage)]
    known = np.ones(fold.size, np.bool_)
    known[data.draw(st.integers(0, fold.size - 1))] = False
    every = np.unique(fold[known]).size == count
    assert folded(Choice(fold, count, None, 1.0), known) == every
    repeated = np.arange(fold.size) // each % count
    assert not folded(Choice(repeated, count, each, 1.0), np.ones(fold.size, np.bool_))


def test_a_fold_is_doubted() -> None:
    """A layout that repeats along the order is none."""
    blocks = _blocks(_burst(), _burst())
    fold = Choice(np.array([0, 1, 1, 0]), 2, None, 50.0, flow_margin=50.0)
    free = replace(fold, labels=np.array([0, 1, 0, 1]))
    assert calibrated(_signs(fold, blocks)) < calibrated(_signs(free, blocks))


def test_measures_do_not_depend_on_the_unit() -> None:
    """Bytes, kilobytes, or none at all."""
    rng = np.random.default_rng(6)
    tx, rx = rng.random((2, HOSTS, POINTS))
    choice = Choice(np.arange(HOSTS) % 2, 2, 1, 1.0)
    one, other = _blocks(tx, rx), _blocks(1e3 * tx, 1e3 * rx)
    assert popularity(one) == pytest.approx(popularity(other))
    assert steadiness(one) == pytest.approx(steadiness(other))
    assert plateau(one) == plateau(other)
    assert unevenness(choice, _evidence(one)) == pytest.approx(unevenness(choice, _evidence(other)))
    none = _blocks(0 * tx, 0 * rx)
    assert popularity(none) == steadiness(none) == plateau(none) == 0.0
    assert unevenness(choice, _evidence(none)) == 0.0


def test_storage_makes_no_experts_popular() -> None:
    """All hosts load the same data."""
    blocks = _blocks(_burst(), _burst() + 0.5)
    assert popularity(blocks) == 0.0
