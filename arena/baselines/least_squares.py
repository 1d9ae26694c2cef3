"""NetBouncer: success probabilities of links by regularised least squares.

Tan et al., "NetBouncer: Active Device and Link Failure Localization in Data Center Networks",
NSDI 2019. First the devices none of whose paths is clean are bad, and leave with
their paths. Then, over the paths left, with y the share of a path's probes that came through,

    minimise  sum over paths (y - product of x along it)^2  +  lambda * sum over links x (1 - x)

by coordinate descent in 0 <= x <= 1; a link whose x is below a threshold is bad. Flock's
authors (github.com/netarch/FaultLocalization) calibrate lambda, 0.01, and the threshold, 0.001,
for flows of thousands of packets. With some 30 probes per path and window those make it accuse
twice as many healthy links; ours are the best for it on `smoke` with seeds from 50 on. Of the
share of bad paths from which a device is bad we keep the paper's 1.0 and not their 0.2, with
which every bad uplink of a ToR with four would be the ToR.

Paths are the 5-tuples that are probed, not bounced packets: the arena's hosts cannot bounce.
"""

from typing import Final

import numpy as np

from arena.baselines.crossing import Crossing
from arena.baselines.observing import Window
from arena.baselines.plugin import Accusation
from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.enums import ComponentKind

LAMBDA: Final = 1.0
LEAST_FAILURE: Final = 0.02
ITERATIONS: Final = 100
CONVERGED: Final = 1e-6
# A product without one factor is the quotient; a factor of 0 would take that away.
LEAST_X: Final = 1e-9
DEVICES: Final = (ComponentKind.SWITCH, ComponentKind.RNIC, ComponentKind.VSWITCH)


class LeastSquares:
    """NetBouncer's two steps over the components of traced paths."""

    name = "NetBouncer (least squares)"

    def __init__(self, penalty: float = LAMBDA, least_failure: float = LEAST_FAILURE) -> None:
        self._penalty = penalty
        self._least_failure = least_failure

    def observe(self, window: Window) -> list[Accusation]:
        """Accuse devices without a clean path, then links that let too little through."""
        crossing = Crossing(window)
        if not crossing.bad.any():
            return []
        left = np.ones(len(crossing.bad), np.bool_)
        found = []
        while (device := _device(crossing, left)) is not None:
            found.append(crossing.accuse(crossing.alike(device), 1.0, left))
            left &= ~crossing.through(device)
        return found + self._links(crossing, left)

    def _links(self, crossing: Crossing, left: Bools) -> list[Accusation]:
        """Return the links that are bad on the paths left."""
        links = crossing.is_kind(ComponentKind.LINK)
        # A link of clean paths only is perfect: it stays at 1 whatever the others are.
        suspected = np.flatnonzero(links & (crossing.sums(left & (crossing.bad > 0)) > 0))
        success = 1.0 - crossing.bad / crossing.sent
        members = [flows[left[flows]] for flows in map(crossing.flows_of, suspected.tolist())]
        failure = 1.0 - solve(members, success, self._penalty)
        return [
            crossing.accuse(crossing.alike(int(suspected[n])), float(failure[n]), left)
            for n in np.flatnonzero(failure >= self._least_failure).tolist()
        ]


def solve(members: list[Int64s], success: Floats, penalty: float = LAMBDA) -> Floats:
    """Return the success probability of each link.

    Parameters
    ----------
    members
        For each link, the paths that cross it, as places in `success`.
    success
        Share of each path's probes that came through, shape (paths,).
    penalty
        Weight of the regulariser.
    """
    x = np.array([max(float(success[m].mean()), LEAST_X) for m in members])
    product = np.ones(len(success))
    for value, paths in zip(x, members, strict=True):
        product[paths] *= value
    for _ in range(ITERATIONS):
        moved = 0.0
        for number, paths in enumerate(members):
            others = product[paths] / x[number]
            squares = float(others @ others) - penalty
            slope = float(others @ success[paths]) - penalty / 2
            # Where the parabola opens downwards the better end of the interval wins, and 1 if
            # nothing can be said: behind another link that lets nothing through.
            best = slope / squares if squares > 0 else float(2 * slope >= squares - CONVERGED)
            best = min(max(best, LEAST_X), 1.0)
            product[paths] = others * best
            moved = max(moved, abs(best - x[number]))
            x[number] = best
        if moved < CONVERGED:
            break
    return x


def _device(crossing: Crossing, left: Bools) -> int | None:
    """Return the device with most paths of which none is clean; None: each has one."""
    paths = crossing.sums(left)
    bad = crossing.sums(left & (crossing.bad > 0))
    dirty = crossing.is_kind(*DEVICES) & (bad > 0) & (bad == paths)
    return int(np.argmax(np.where(dirty, paths, 0.0))) if dirty.any() else None
