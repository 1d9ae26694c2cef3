"""Blocks and equal classes on made-up features."""

import numpy as np
import pytest

from schemas.columns.arrays import Floats
from skeleton_job.layout.description import Evidence
from skeleton_job.layout.layouts import Choice, choose
from skeleton_job.rhythm.clusters import block_width, divisors

# As large as what blocks of one class differ by: 0.05 in 24 dimensions.
FLOOR = 0.25


def blobs(labels: list[int], spread: float = 0.05, dimensions: int = 24) -> Floats:
    """Return points around one centre for each label."""
    centres = np.random.default_rng(11).standard_normal((max(labels) + 1, dimensions))
    noise = np.random.default_rng(12).standard_normal((len(labels), dimensions))
    points: Floats = centres[labels] + spread * noise
    return points


def split(
    points: Floats, hosts: list[int] | None = None, known: list[bool] | None = None
) -> Choice:
    """Choose among all layouts of points; clocks agree, and nothing is known of flows."""
    n = points.shape[0]
    return choose(
        Evidence(
            profiles=points,
            known=np.ones(n, dtype=np.bool_) if known is None else np.array(known),
            hosts=np.arange(n) if hosts is None else np.array(hosts),
            floor=FLOOR,
            max_shift=0.0,
        )
    )


def same_partition(found: Choice, truth: list[int]) -> bool:
    """Return whether two splits are one, whatever the classes are called."""
    pairs = set(zip(found.labels.tolist(), truth, strict=True))
    return len(pairs) == len(set(truth)) == found.count


@pytest.mark.parametrize(
    "truth",
    [[0, 0, 1, 1], [0, 1, 0, 1, 0, 1], [0, 1, 2, 3] * 4, [0] * 8 + [1] * 8, [0, 1, 2] * 5],
    ids=str,
)
def test_classes_that_stand_apart_are_found(truth: list[int]) -> None:
    """Their number is chosen, not given."""
    found = split(blobs(truth))
    assert same_partition(found, truth)
    assert found.margin > 3.0


def test_blocks_that_are_alike_make_one_class() -> None:
    """A smear is not cut in two, however many blocks there are."""
    for n in (4, 8, 12, 32):
        found = split(blobs([0] * n))
        assert found.count == 1


def test_each_block_its_own_class_without_replicas() -> None:
    """Stages without replicas are told from noise by the floor and the halves."""
    found = split(blobs([0, 1, 2, 3]))
    assert found.count == 4


def test_a_split_along_one_line_is_no_evidence() -> None:
    """Clocks and collectives move blocks along one line each: a smear there stays one class."""
    line = np.random.default_rng(5).standard_normal(24)
    for n in (4, 8, 16):
        along = np.random.default_rng(n).uniform(-1, 1, n)
        assert split(blobs([0] * n) + 0.3 * along[:, None] * line).count == 1


def test_classes_are_equal_by_force() -> None:
    """A block between two classes goes where there is room."""
    points = blobs([0, 0, 0, 1, 1, 1])
    points[2] = 0.45 * points[0] + 0.55 * points[4]
    found = split(points)
    if found.count == 2:
        assert np.bincount(found.labels).tolist() == [3, 3]
        assert same_partition(found, [0, 0, 0, 1, 1, 1])


def test_no_two_blocks_of_a_host_share_a_class() -> None:
    """Even where their traffic is nearly the same."""
    points = blobs([0, 1, 0, 1, 0, 1, 0, 1])
    points[1] = points[0] + 0.01
    found = split(points, hosts=[0, 0, 1, 1, 2, 2, 3, 3])
    assert found.count > 1
    for host in range(4):
        assert found.labels[2 * host] != found.labels[2 * host + 1]


def test_unknown_blocks_take_the_place_that_is_left() -> None:
    """They cost nothing anywhere, so the others decide."""
    truth = [0, 0, 0, 1, 1, 1]
    found = split(blobs(truth), known=[True, True, True, True, False, True])
    assert same_partition(found, truth)


def test_what_the_rules_forbid_is_an_error() -> None:
    """Blocks of one host only, in numbers that no split allows, are refused."""
    with pytest.raises(ValueError, match="no block has data"):
        split(blobs([0, 1]), known=[False, False])
    with pytest.raises(ValueError, match="no equal classes without two of a host"):
        split(blobs([0, 0, 1]), hosts=[0, 0, 0], known=[True, True, False])


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_the_width_of_a_block_is_seen(width: int) -> None:
    """Neighbouring RNICs with the same bytes are a block; its width divides the rails."""
    rng = np.random.default_rng(width)
    kinds = rng.standard_normal((5, 8 // width, 1, 24))
    rails = np.repeat(kinds, width, axis=2).reshape(5, 8, 24)
    rails = rails + 0.02 * rng.standard_normal(rails.shape)
    found, margin = block_width(rails, np.ones((5, 8), dtype=np.bool_), 0.1)
    assert found == width
    assert margin > 1


def test_noise_between_rnics_does_not_split_a_block() -> None:
    """At any level of noise, in 40 draws."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        level = 10 ** rng.uniform(-3, 0)
        rails = np.ones((4, 8, 24)) + level * rng.standard_normal((4, 8, 24))
        noise = level * np.sqrt(24)
        assert block_width(rails, np.ones((4, 8), dtype=np.bool_), noise)[0] == 8


def test_divisors_are_all_and_in_order() -> None:
    """Checked against their definition."""
    for n in range(1, 60):
        assert divisors(n) == [d for d in range(1, n + 1) if n % d == 0]
