"""The detectors of every partition: all that the modules of this package define."""

from collections.abc import Iterator
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Final

import streams.detectors
from schemas.enums import AnomalyKind
from streams.detectors.base import Detector


def _defined() -> Iterator[type[Detector]]:
    """Yield the detectors, module by module."""
    package = streams.detectors
    for found in iter_modules(package.__path__, f"{package.__name__}."):
        if found.name == __name__:
            continue
        for value in vars(import_module(found.name)).values():
            own = isinstance(value, type) and value.__module__ == found.name
            if own and issubclass(value, Detector) and not isabstract(value):
                yield value


_KINDS: Final = list(AnomalyKind)
# In the order in which they decide on a batch: that of their kinds.
DETECTORS: Final = tuple(sorted(_defined(), key=lambda detector: _KINDS.index(detector.kind)))
