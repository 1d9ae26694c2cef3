"""Where losses lie: as if one component lost them, or another one, or a host, or all alike.

A share of the losses (`ITS_SHARES`) hits 5-tuples that cross a component, or, as often, those whose
replies do; the others hit all 5-tuples alike.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np

from localizer.inference.loss_columns import LossColumns, PooledLoss
from schemas.columns.arrays import Bools, Floats, Int64s

# The losses must be so much likelier at the component than anywhere that, with the priors of
# `localizer.inference.evidence`, it is twenty times likelier that a cable loses them (-6.9) than
# that everything does (-9).
LOG_PLACE: Final = log(20) - (9.0 - 6.9)
# Share of the losses that a leaking component accounts for, at least: alternatives.
ITS_SHARES: Final = (0.5, 0.9)
# They are twenty times likelier at it than at another one. If both leak, that takes a second fault.
LOG_RIVAL: Final = log(20)
LOG_SECOND: Final = 6.9


@dataclass(frozen=True, slots=True, eq=False)
class Losing:
    """A component that may lose packets.

    Attributes
    ----------
    component
        Its number in `LossColumns`.
    replied : (losses,) float64
        By loss the probability that its reply crossed it.
    through
        5-tuples that cross it.
    """

    component: int
    replied: Floats
    through: int


class Places:
    """The losses since some time, and where they lie.

    Parameters
    ----------
    flows
        Number of all 5-tuples.
    """

    def __init__(
        self, columns: LossColumns, losses: Sequence[PooledLoss], since_ns: int, flows: int
    ) -> None:
        self._columns = columns
        self._losses = losses
        self._since_ns = since_ns
        self._flows = flows

    def fits(self, one: Losing, at_host: Callable[[str], int]) -> bool:
        """Return whether they lie as if the component lost them, and not anywhere or at a host.

        A host is as likely to lose packets as a cable.

        Parameters
        ----------
        at_host
            Gives the number of 5-tuples that begin or end at a host; 0: not known.
        """
        recent = self._recent(one)
        best = _log_gain(self._density(one, recent), self._flows)
        if best < LOG_PLACE:
            return False
        # The host at most losses: another explains less.
        hosts = [set(self._losses[place].hosts) for place in recent.tolist()]
        counts = Counter(host for both in hosts for host in both)
        host = max(sorted(counts), key=counts.__getitem__)
        at = at_host(host)
        if not at:
            return True
        there = np.array([float(host in both) for both in hosts])
        return best >= _log_gain(there / at, max(self._flows, at))

    def gains(self, found: Sequence[Losing]) -> list[float]:
        """Return by component the log of how much likelier the losses are if it loses them.

        That is than if all 5-tuples lose alike. What open faults may explain counts where one of
        the components lost it.
        """
        counted = ~self._columns.explained
        for one in found:
            counted |= self._own(one)
        recent = np.flatnonzero((self._columns.lost_ns >= self._since_ns) & counted)
        return [_log_gain(self._density(one, recent), self._flows) for one in found]

    def may_be(self, other: Losing, one: Losing) -> bool:
        """Return whether another component may lose what one seems to.

        Half of that other one's losses at this one are the same evidence: it may be either then,
        and that is told.
        """
        recent = self._recent(one)
        own, its = self._own(one)[recent], self._own(other)[recent]
        if 2 * (own & its).sum() >= its.sum():
            return False
        mine, theirs = self._density(one, recent), self._density(other, recent)
        alone = _log_gain(theirs, self._flows) + LOG_RIVAL
        return (
            _log_gain(mine, self._flows) < alone
            and _log_gain((mine + theirs) / 2, self._flows) < alone + LOG_SECOND
        )

    def _recent(self, one: Losing) -> Int64s:
        """Return the losses that count: those that no open fault may explain, and its own."""
        counted = ~self._columns.explained | self._own(one)
        return np.flatnonzero((self._columns.lost_ns >= self._since_ns) & counted)

    def _own(self, one: Losing) -> Bools:
        own = np.zeros(len(self._losses), np.bool_)
        own[self._columns.through(one.component)] = True
        return own

    def _density(self, one: Losing, recent: Int64s) -> Floats:
        """Return by loss how likely the component's losses hit just its 5-tuple."""
        weights = np.where(self._own(one), 1.0, one.replied)[recent]
        # Replies cross it about as often as probes.
        replies = bool((one.replied[recent] > 0).any())
        out: Floats = weights / (max(one.through, 1) * (2 if replies else 1))
        return out


def _log_gain(density: Floats, flows: int) -> float:
    """Return how much likelier losses are if a share of them hits some 5-tuples only.

    Parameters
    ----------
    density : (n,) float64
        By loss how likely one of this share hits just its 5-tuple.
    flows
        Number of all 5-tuples.
    """
    values, counts = np.unique(density, return_counts=True)
    return max(float(counts @ np.log1p(share * (flows * values - 1))) for share in ITS_SHARES)
