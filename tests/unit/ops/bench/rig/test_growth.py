"""Growth curves, and the cluster whose ping lists are measured."""

import math
from pathlib import Path

import pytest

from ops.bench.cluster.shape import RAILS
from ops.bench.rig.growth import Curve, call_alone, slope, store_curve, stored_curves
from ops.bench.scale import localizer, scale, workers
from ops.bench.scale.pinglists import Cluster
from ops.bench.scale.workers import MIB
from skeleton_job.lists.pinglists import MAX_LIST_BYTES


def curve(name: str, power: float) -> Curve:
    """Return a cost that grows with that power of the size."""
    sizes = (10.0, 20.0, 40.0, 80.0)
    costs = tuple(3.0 * size**power for size in sizes)
    return Curve(name=name, axis="RNICs", unit="s", sizes=sizes, costs=costs)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_slope_is_the_power(power: float) -> None:
    """Whatever the factor before it."""
    assert curve("x", power).slope == pytest.approx(power, abs=1e-9)


def test_a_slope_needs_two_sizes_above_zero() -> None:
    """Anything else is refused rather than drawn."""
    for sizes, costs in (([1.0], [1.0]), ([2.0, 2.0], [1.0, 3.0]), ([1.0, 2.0], [0.0, 1.0])):
        with pytest.raises(ValueError, match=r"sizes|above 0"):
            slope(sizes, costs)


def test_curves_of_other_parts_stay(tmp_path: Path) -> None:
    """A part that is measured anew replaces its own curve only; the picture has both."""
    path, picture = tmp_path / "curves.json", tmp_path / "curves.png"
    store_curve(curve("a", 1.0), path, picture)
    store_curve(curve("b", 0.0), path, picture)
    store_curve(curve("a", 2.0), path, picture)
    assert {c.name: round(c.slope, 6) for c in stored_curves(path)} == {"a": 2.0, "b": 0.0}
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_no_part_of_scale_hides_another() -> None:
    """Modules name their parts without knowing each other."""
    assert len(scale.PARTS) == sum(len(module.PARTS) for module in scale.MODULES)
    assert set(scale.DEFAULT_RUNS) <= set(scale.PARTS)


def test_churn_publishes_for_the_agents_that_changed_and_no_other() -> None:
    """In a cluster of forty hosts, ten seconds of three containers a second."""
    cluster = Cluster(40)
    cluster.fill()
    assert math.isclose(len(cluster.running), 40, abs_tol=4)
    costs = cluster.churn(10, 180)
    assert costs.containers >= 30
    assert costs.lists == costs.changed > 0
    assert costs.needless == 0
    assert 0 < costs.largest <= MAX_LIST_BYTES
    anew = {a: x.targets for a, x in cluster.from_scratch().items()}
    assert anew == {a: x.targets for a, x in cluster.lists.items()}
    assert len(cluster.registrations()) == len(cluster.running) * RAILS


def test_a_worker_is_measured_by_itself() -> None:
    """Two agents, in a process of their own: the results of the second minute, at some cost."""
    found = call_alone(workers.grown, 2)
    assert found["paths"] == 160
    assert 60 * 160 <= found["results"] <= 60 * 160 + 100
    assert found["cpu_s"] > 0
    assert 0 < found["state_bytes"] < 100 * MIB


def test_a_worker_has_its_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU and memory, in the table and in the picture."""
    monkeypatch.chdir(tmp_path)
    measured = {100: (8_000.0, 2.0, 30 * MIB), 400: (32_000.0, 8.0, 120 * MIB)}

    def grown(agents: int) -> dict[str, float]:
        paths, cpu_s, state = measured[agents]
        return {"paths": paths, "results": 1e6 * cpu_s, "cpu_s": cpu_s, "state_bytes": state}

    monkeypatch.setattr(workers, "call_alone", lambda _, agents: grown(agents))
    cpu, memory, each = workers.growth(1, lambda _: None, agents=(100, 400))
    assert cpu.value == pytest.approx(0.0, abs=1e-9)
    assert memory.value == pytest.approx(1.0)
    assert each.value == pytest.approx(120 * MIB / 32_000)
    assert {c.axis for c in stored_curves()} == {"5-tuples"}
    assert Path("docs/figures/scaling.png").exists()


def test_the_localizer_has_its_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longest decision and memory, of fifty faults and of a spine's death."""
    monkeypatch.chdir(tmp_path)

    def measured(_what: object, segments: int) -> localizer.Run:
        return localizer.Run(
            links=192 * segments, paths=2_048 * segments, steps_s=[0.01, 0.01 * segments],
            peak_mb=300.0,
        )  # fmt: skip

    monkeypatch.setattr(localizer, "_measured", measured)
    rows = localizer.growth(1, lambda _: None)
    assert [row.value for row in rows] == pytest.approx([1.0, 0.0, 1.0, 0.0], abs=1e-9)
    assert {(c.axis, len(c.sizes)) for c in stored_curves()} == {("links", 5)}
