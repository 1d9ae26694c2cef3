"""`make bench-scale`: what a cluster of 40,000 RNICs takes, and how that grows.

Every module below measures one part of the system and has `PARTS` of its own.
"""

from types import ModuleType
from typing import Final

from ops.bench.rig.report import Parts
from ops.bench.scale import (
    cluster,
    connections,
    list_reading,
    localizer,
    localizer_ends,
    localizer_life,
    localizer_start,
    pinglists,
    skeleton,
    workers,
)

COMMAND: Final = "make bench-scale"
RUNS: Final = 3
DEFAULT_RUNS: Final = {
    "skeleton-cluster": 1,
    "ping-list-length": 1,
    "list-reading": 1,
    "connections": 1,
    "cluster": 1,
    "cluster-16000": 1,
    "workers": 1,
}

# Whoever measures another part adds its module here.
MODULES: Final[tuple[ModuleType, ...]] = (
    skeleton,
    pinglists,
    list_reading,
    connections,
    localizer,
    localizer_start,
    localizer_ends,
    localizer_life,
    cluster,
    workers,
)
PARTS: Final[Parts] = {name: part for module in MODULES for name, part in module.PARTS.items()}
