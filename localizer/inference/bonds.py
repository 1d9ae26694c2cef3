"""Tell a bonded RNIC from its cables by how many probes each 5-tuple lost.

A cable of a bond carries the probes of its own 5-tuples, and the replies to some of all cables'
5-tuples: to which ones, a hash decides once for each. So where the cable loses m packets of a
5-tuple that crosses it one way, it loses 2 m of one that crosses it both ways. Its own 5-tuples
lose m or 2 m, those of another cable m or nothing. What the RNIC loses, all lose alike.

The search knows one severity for all 5-tuples of a component, and good 5-tuples only where they
cross it for certain. Traces do not help: they pass both the RNIC and the cable, or neither. So what
the search believes of RNIC and cables together is shared out by the numbers of lost probes alone,
those of good 5-tuples included.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np

from localizer.facts.bad_flows import BadFlow
from localizer.inference.causes import Cause, Reason
from localizer.inference.good_flows import GoodFlows
from localizer.network.flow_index import NOTHING
from localizer.network.topology import Topology
from schemas.columns.arrays import Floats, Int64s
from schemas.enums import AnomalyKind
from schemas.ids import FlowId

# More lost probes of a 5-tuple tell no more than that it loses many.
MOST_LOST: Final = 3
# Packets that a 5-tuple loses on average: alternatives, from one in fifty 5-tuples to many of all.
MEANS: Final = np.geomspace(0.02, 20.0, 31)
# What it loses, or how often it is late, by chance.
BY_CHANCE: Final = 0.01
# Where less is believed of a bond, it is not looked at.
LEAST_BELIEF: Final = 0.01
Beliefs = Sequence[tuple[Cause, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bonds:
    """What tells bonded RNICs from their cables, at one time.

    Attributes
    ----------
    good, bad
        The good and the bad 5-tuples.
    log_prior
        Log odds of the components that may be at fault, with what their states say.
    strays
        Gives the single lost probes of 5-tuples; None: it is their latency that is bad.
    known
        Components of open faults.
    settled
        Those of them that have been told for so long that another one would be a further fault.
    """

    topology: Topology
    good: GoodFlows
    bad: Sequence[BadFlow]
    log_prior: Mapping[str, float]
    strays: Callable[[], Mapping[FlowId, int]] | None
    known: Set[str] = frozenset()
    settled: Set[str] = frozenset()

    def share_out(
        self, beliefs: Beliefs, others: Set[str] = frozenset()
    ) -> tuple[tuple[Cause, float], ...]:
        """Share out anew what is believed of an RNIC and its cables together, the greatest first.

        Parameters
        ----------
        beliefs
            Causes and how much is believed of each.
        others
            Components that are at fault as well: what crosses them says nothing.
        """
        found = dict(beliefs)
        for bond in self._bonds(beliefs, self.known | others):
            whole = sum(found.get(cause, 0.0) for cause in bond)
            odds = np.array(list(bond.values()))
            parts = np.exp(odds - odds.max())
            found |= zip(bond, (whole * parts / parts.sum()).tolist(), strict=True)
        return tuple(
            sorted(found.items(), key=lambda one: (-round(one[1], 9), one[0].order, one[0].name))
        )

    def _bonds(self, beliefs: Beliefs, faulty: Set[str]) -> Iterator[dict[Cause, float]]:
        """Yield the bonds that may be at fault: RNIC and cables with their log odds."""
        rnics = dict.fromkeys(
            rnic
            for cause, belief in beliefs
            if cause.reason is Reason.COMPONENT and belief >= LEAST_BELIEF
            for rnic in (cause.name, *self.topology.rnics_at(cause.name))
        )
        for rnic in rnics:
            bond = (rnic, *self.topology.bond_at(rnic))
            if len(bond) == 1 or not self.settled.isdisjoint(bond):
                continue
            counts = self._counts(bond, faulty - set(bond))
            # Where all that crosses one crosses another fault, the search knows as much.
            if counts.any(axis=1).all():
                yield {
                    Cause.of(Reason.COMPONENT, name): self.log_prior[name] + value
                    for name, value in zip(bond, bond_likelihoods(counts).tolist(), strict=True)
                    if name in self.log_prior
                }

    def _counts(self, bond: tuple[str, ...], faulty: Set[str]) -> Int64s:
        """Return the counts for `bond_likelihoods`, of 5-tuples that cross nothing that is faulty.

        `bond`: the RNIC and its cables.
        """
        rnic, *cables = bond
        index, good = self.good.index, self.good.mask
        hit = {flow.key: flow for flow in self.bad if rnic in flow.components}
        # How many probes a 5-tuple lost says nothing where some lose all, or answers are late.
        by_loss = self.strays is not None and not any(flow.cut for flow in hit.values())
        most = MOST_LOST if by_loss else 1
        strays = self.strays() if self.strays is not None else {}
        counts = np.zeros((len(cables), most + 1), np.int64)
        for place, cable in enumerate(cables):
            for row in index.rows_with(index.components.get(cable, NOTHING)).tolist():
                key = index.key(row)
                flow = hit.get(key)
                # In traces a bad one may have passed the cable that it crosses.
                if (flow is None and not good[row]) or not faulty.isdisjoint(index.crossed(key)):
                    continue
                lost = strays.get(key, 0)
                if flow is not None:
                    own = (s.lost for s in flow.symptoms if s.kind is not AnomalyKind.STRAY_LOSS)
                    lost = max(1, lost, *own)
                counts[place, min(most, lost)] += 1 if flow is None else flow.stands_for
        return counts


def bond_likelihoods(counts: Int64s) -> Floats:
    """Return the log-likelihoods of an RNIC and of each of its cables, (1 + cables,) float64.

    Parameters
    ----------
    counts : (cables, most + 1) int64
        By cable how many 5-tuples have lost so many packets, the last column: so many or more.

    Examples
    --------
    Of eight 5-tuples all lost a packet; those of the other cable did not, or half of them:

    >>> int(bond_likelihoods(np.array([[0, 8], [8, 0]])).argmax())
    1
    >>> int(bond_likelihoods(np.array([[0, 8], [4, 4]])).argmax())
    1
    >>> int(bond_likelihoods(np.array([[0, 8], [0, 8]])).argmax())
    0
    """
    cables, width = counts.shape
    none, once, twice = (_chances(mean, width) for mean in (0 * MEANS, MEANS, 2 * MEANS))
    share = 1 / cables
    own = np.log(share * twice + (1 - share) * once)
    beside = np.log(share * once + (1 - share) * none)
    of_all = counts.sum(axis=0)
    # By alternative, and then by mean.
    by_mean = [np.log(twice) @ of_all] + [
        own @ counts[cable] + beside @ (of_all - counts[cable]) for cable in range(cables)
    ]
    found: Floats = np.max(by_mean, axis=1)
    return found


def _chances(means: Floats, width: int) -> Floats:
    """Return the chances to lose 0, 1, ... or the most packets, (means, width) float64."""
    means = means + BY_CHANCE
    chances = np.empty((len(means), width))
    chances[:, 0] = np.exp(-means)
    for lost in range(1, width):
        chances[:, lost] = chances[:, lost - 1] * means / lost
    chances[:, -1] = np.maximum(1 - chances[:, :-1].sum(axis=1), chances[:, -1])
    return chances
