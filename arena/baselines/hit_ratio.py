"""deTector's PLL: among components most of whose paths are lossy, the best explanation first.

Peng et al., "deTector: a Topology-aware Monitoring System for Data Center Networks",
USENIX ATC 2017. Links of clean paths only are left out; a link is suspected if more than 60 % of
its paths are lossy (the hit ratio); of the suspected, greedily, the one that
explains most of the loss not yet explained is bad.
"""

from typing import Final

import numpy as np

from arena.baselines.crossing import Crossing
from arena.baselines.observing import Window
from arena.baselines.plugin import Accusation

LEAST_HIT_RATIO: Final = 0.6


class HitRatio:
    """deTector's localization over the components of traced paths."""

    name = "deTector (hit ratio)"

    def __init__(self, least_hit_ratio: float = LEAST_HIT_RATIO) -> None:
        self._least_hit_ratio = least_hit_ratio

    def observe(self, window: Window) -> list[Accusation]:
        """Accuse what explains the lossy paths."""
        crossing = Crossing(window)
        left = crossing.bad > 0
        if not left.any():
            return []
        ratio = crossing.sums(left) / crossing.sums(np.ones(len(left)))
        suspected = ratio > self._least_hit_ratio
        found = []
        while left.any():
            explained = np.where(suspected, crossing.sums(crossing.bad * left), 0.0)
            if not explained.any():
                break
            best = crossing.best(explained)
            found.append(crossing.accuse(best, float(ratio[best[0]]), left))
            left = left & ~crossing.through(best[0])
        return found
