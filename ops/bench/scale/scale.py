"""`make bench-scale`: what a cluster of 40,000 RNICs takes, and how that grows.

Every module below measures one part of the system and has `PARTS` of its own.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Final

from ops.bench.rig.report import Figure
from ops.bench.scale import (
    cluster,
    localizer,
    localizer_ends,
    localizer_life,
    pinglists,
    skeleton,
    workers,
)

COMMAND: Final = "make bench-scale"
RUNS: Final = 3
DEFAULT_RUNS: Final = {"skeleton-cluster": 1, "ping-list-length": 1, "cluster": 1, "workers": 1}

Say = Callable[[str], None]
Part = Callable[[int, Say], list[Figure]]

# Whoever measures another part adds its module here.
MODULES: Final[tuple[ModuleType, ...]] = (
    skeleton,
    pinglists,
    localizer,
    localizer_ends,
    localizer_life,
    cluster,
    workers,
)
PARTS: Final[Mapping[str, Part]] = {
    name: part for module in MODULES for name, part in module.PARTS.items()
}
