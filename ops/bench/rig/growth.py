"""How time and memory grow with a cluster: points, their slope on logarithmic axes, a picture.

Every part of `make bench-scale` gives its curves here; the picture holds all that were ever
measured, each part's latest, as the table of figures does.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from arena.reporting.growth import draw
from ops.bench.rig.report import BUILD_DIR, Figure, Say, figure

Result = TypeVar("Result")

CURVES: Final = BUILD_DIR / "scale-curves.json"
PICTURE: Final = Path("docs/figures") / "scaling.png"
# Bars of slopes. Flat: what the size adds is below a fifth of a doubling's power. Nearly linear:
# twice the size takes 2.14 times as much at most.
FLAT: Final = 0.2
LINEAR: Final = 1.1
TIMEOUT_S: Final = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What something costs at several sizes.

    Attributes
    ----------
    name : whose cost, as the picture's legend says it
    axis : what grows ("RNICs")
    unit : of the cost ("s", "MiB", "µs")
    sizes, costs : the points, all above 0
    """

    name: str
    axis: str
    unit: str
    sizes: tuple[float, ...]
    costs: tuple[float, ...]

    @property
    def slope(self) -> float:
        """The power of the size with which the cost grows: 1 is linear, 0 not at all."""
        return slope(self.sizes, self.costs)


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of costs over sizes on logarithmic axes, by least squares.

    >>> round(slope([10, 100, 1000], [2, 20, 200]), 6)
    1.0

    Raises
    ------
    ValueError
        If there are fewer than two sizes, or a number is not above 0.
    """
    if len(set(sizes)) < 2 or len(sizes) != len(costs):
        raise ValueError(f"{len(sizes)} sizes, {len(costs)} costs: two different sizes or more")
    if min(*sizes, *costs) <= 0:
        raise ValueError("a logarithm needs numbers above 0")
    x, y = np.log(np.asarray(sizes, np.float64)), np.log(np.asarray(costs, np.float64))
    x -= x.mean()
    return float((x * (y - y.mean())).sum() / (x * x).sum())


def slope_figure(curve: Curve, bar: float | None, say: Say) -> Figure:
    """Print a curve, store it for the picture, and return its slope as a figure."""
    for size, cost in zip(curve.sizes, curve.costs, strict=True):
        say(f"{curve.name}: {size:,.0f} {curve.axis}: {cost:.4g} {curve.unit}")
    say(f"{curve.name}: slope {curve.slope:.2f}")
    store_curve(curve)
    return figure(f"{curve.name}: slope over {curve.axis}", [curve.slope], bar=bar)


def run_alone(module: str, argument: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run a module in a process of its own; return what it prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", module, argument],
        check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    return json.loads(done.stdout)


def call_alone(function: Callable[[int], Result], size: int) -> Result:
    """Return what a function returns in a process of its own: what it leaves behind is gone."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, size).result()


def store_curve(curve: Curve, path: Path = CURVES, picture: Path = PICTURE) -> None:
    """Store a curve, replacing an earlier one of its name, and draw all of them."""
    curves = {c.name: c for c in stored_curves(path)} | {curve.name: curve}
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(c) for c in curves.values()]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    draw(
        [
            (f"{c.name} ({c.unit})", c.axis, c.sizes, c.costs, c.slope)
            for c in sorted(curves.values(), key=lambda c: c.name)
        ],
        picture,
    )


def stored_curves(path: Path = CURVES) -> list[Curve]:
    """Return the curves of earlier runs."""
    if not path.exists():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [
        Curve(**{**row, "sizes": tuple(row["sizes"]), "costs": tuple(row["costs"])}) for row in rows
    ]
