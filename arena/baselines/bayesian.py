"""Flock's model: which set of failed components makes the probes' outcomes most likely.

Harsh et al., "Flock: Accurate Network Fault Localization at Scale", CoNEXT 2023. A probe whose path
crosses no failed component is lost with a small probability, one that crosses some with
a greater one; components fail independently with a small prior. From the empty set,
the component that raises the likelihood most is added, and one that has
become needless is taken out, until nothing raises it: with binary outcomes per path the gains
of all components come out of one sum (the joint likelihood exploration).

The log prior of -10 is that of the authors' code (github.com/netarch/FaultLocalization). They
calibrate both rates on training data of the network at hand; ours are the best for it on `smoke`
with seeds from 50 on.
"""

from math import log
from typing import Final

import numpy as np

from arena.baselines.crossing import Crossing
from arena.baselines.observing import Window
from arena.baselines.plugin import Accusation
from schemas.columns.arrays import Floats

LOG_PRIOR: Final = -10.0
HEALTHY_LOSS: Final = 1e-3
FAILED_LOSS: Final = 0.2
# Beyond, something else is wrong than single components.
MOST: Final = 20


class Bayesian:
    """Flock's inference over the components of traced paths, by active probes alone."""

    name = "Flock-style (Bayesian)"

    def __init__(
        self,
        log_prior: float = LOG_PRIOR,
        healthy_loss: float = HEALTHY_LOSS,
        failed_loss: float = FAILED_LOSS,
    ) -> None:
        self._log_prior = log_prior
        self._of_bad = log(failed_loss / healthy_loss)
        self._of_good = log((1 - failed_loss) / (1 - healthy_loss))

    def observe(self, window: Window) -> list[Accusation]:
        """Accuse the set of components that explains the window best."""
        crossing = Crossing(window)
        if not crossing.bad.any():
            return []
        good = crossing.sent - crossing.bad
        evidence = crossing.bad * self._of_bad + good * self._of_good
        chosen = self._search(crossing, evidence)
        found = []
        for component in chosen:
            alone = crossing.through(component)
            for other in chosen:
                if other != component:
                    alone &= ~crossing.through(other)
            gain = float(evidence[alone].sum()) + self._log_prior
            found.append(crossing.accuse(crossing.alike(component), gain))
        return found

    def _search(self, crossing: Crossing, evidence: Floats) -> list[int]:
        """Return the failed components in the order in which they were added."""
        chosen: list[int] = []
        covered = np.zeros(len(evidence), np.int64)
        while len(chosen) < MOST:
            gains = crossing.sums(np.where(covered == 0, evidence, 0.0)) + self._log_prior
            gains[chosen] = -np.inf
            best = int(np.argmax(gains))
            if gains[best] <= 0:
                break
            chosen.append(best)
            covered += crossing.through(best)
            for component in list(chosen[:-1]):
                mine = crossing.through(component)
                if float(evidence[mine & (covered == 1)].sum()) + self._log_prior < 0:
                    chosen.remove(component)
                    covered -= mine
        return chosen
