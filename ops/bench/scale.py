"""`make bench-scale`: what a cluster of 40,000 RNICs takes, and how that grows.

Every module below measures one part of the system and has `PARTS` of its own.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Final

from ops.bench import (
    scale_cluster,
    scale_localizer,
    scale_localizer_ends,
    scale_pinglists,
    scale_skeleton,
    scale_workers,
)
from ops.bench.report import Figure

COMMAND: Final = "make bench-scale"
RUNS: Final = 3
DEFAULT_RUNS: Final = {"skeleton-cluster": 1, "ping-list-length": 1, "cluster": 1, "workers": 1}

Say = Callable[[str], None]
Part = Callable[[int, Say], list[Figure]]

# Whoever measures another part adds its module here.
MODULES: Final[tuple[ModuleType, ...]] = (
    scale_skeleton,
    scale_pinglists,
    scale_localizer,
    scale_localizer_ends,
    scale_cluster,
    scale_workers,
)
PARTS: Final[Mapping[str, Part]] = {
    name: part for module in MODULES for name, part in module.PARTS.items()
}
