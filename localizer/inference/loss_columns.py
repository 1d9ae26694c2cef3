"""Lost probes as columns, for tests of all components that they crossed at once.

A decision tests each of hundreds of components on hundreds of losses, second after second. Here
losses, components, pairs, hosts and ways of replies are numbers, and what all tests need of them is
counted by sorts.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from schemas.columns.arrays import Bools, Floats, Int64s

K = TypeVar("K", bound=Hashable)
Shares = Mapping[str, float]

NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class PooledLoss:
    """A lost probe, and what it crossed.

    Attributes
    ----------
    pair
        Source and destination.
    hosts
        Who probes and who answers.
    replies
        By component the probability that the reply would have crossed it, see
        `localizer.network.replies`.
    explained
        Whether an open fault may have lost the reply.
    """

    lost_ns: int
    components: Sequence[str]
    pair: tuple[str, str]
    hosts: tuple[str, str]
    replies: Shares = field(default_factory=dict)
    explained: bool = False


class LossColumns:
    """Losses, the components that they crossed, and the bins of time in which they were lost.

    Parameters
    ----------
    losses
        In any order.
    bin_ns
        Length of a bin.
    now_ns
        Present; its bin has the age 0.

    Attributes
    ----------
    names
        Components, by number.
    lost_ns, bins : (losses,) int64
    explained : (losses,) bool
    """

    def __init__(self, losses: Sequence[PooledLoss], bin_ns: int, now_ns: int) -> None:
        self._losses = losses
        self.lost_ns: Int64s = np.array([loss.lost_ns for loss in losses], np.int64)
        self.bins: Int64s = self.lost_ns // bin_ns
        self.explained: Bools = np.array([loss.explained for loss in losses], np.bool_)
        # 5-tuples between the same ends share the object of their components, or of their replies'.
        numbers: dict[str, int] = {}
        crossed: dict[int, list[int]] = {}
        self._ways: dict[int, PooledLoss] = {}
        entries: list[int] = []
        counts: list[int] = []
        for loss in losses:
            found = crossed.get(id(loss.components))
            if found is None:
                found = crossed[id(loss.components)] = [
                    numbers.setdefault(name, len(numbers)) for name in loss.components
                ]
            entries += found
            counts.append(len(found))
        self.names = list(numbers)
        components = np.array(entries, np.int64)
        places = np.repeat(np.arange(len(losses)), counts)
        order = np.argsort(components, kind="stable")
        # The losses of each component, in their order.
        self._through: Int64s = places[order]
        self._starts: Int64s = np.searchsorted(components[order], np.arange(len(numbers) + 1))
        self._component: Int64s = components[order]
        self._age: Int64s = now_ns // bin_ns - self.bins[self._through]
        self._pair = _numbered(loss.pair for loss in losses)
        self._ends = _numbered(frozenset(loss.hosts) for loss in losses)
        self._replies = _numbered(id(loss.replies) for loss in losses)

    def through(self, component: int) -> Int64s:
        """Return the losses of probes that crossed a component, in their order, (n,) int64."""
        found: Int64s = self._through[self._starts[component] : self._starts[component + 1]]
        return found

    def replied(self, component: str) -> Floats:
        """Return by loss the probability that its reply crossed a component, (losses,) float64."""
        chances: dict[int, float] = {}
        for number, loss in zip(self._replies.tolist(), self._losses, strict=True):
            if number not in chances:
                chances[number] = loss.replies.get(component, 0.0)
        return np.array(list(chances.values()), np.float64)[self._replies]

    def pair_counts(self) -> Int64s:
        """Return by component how many pairs of endpoints lost a probe, (components,) int64."""
        pairs = np.unique(_joined(self._component, self._pair[self._through]))
        return np.bincount(pairs >> WORD, minlength=len(self.names))

    def moments(self, *, strong: bool) -> list[Int64s]:
        """Return by component the ages of its moments, ascending.

        Parameters
        ----------
        strong
            Only those bins with two losses without a host in common.
        """
        seen = self._age >= 0
        bins = _joined(self._component[seen], self._age[seen])
        bins = self._strong(bins, self._ends[self._through[seen]]) if strong else np.unique(bins)
        cuts = np.searchsorted(bins >> WORD, np.arange(len(self.names) + 1))
        return np.split(bins & MASK, cuts[1:-1]) if self.names else []

    def _strong(self, bins: Int64s, ends: Int64s) -> Int64s:
        """Return the bins, sorted, in which not every two losses have a host in common.

        Sets of one or two hosts meet each other only if all hold one host, or if they are the
        three pairs of three hosts.
        """
        both = np.unique(np.stack([bins, ends]), axis=1)
        single, of_bin, sets = np.unique(both[0], return_inverse=True, return_counts=True)
        hosts = _hosts_by_number(self._losses, self._ends)[both[1]]
        of_host = np.concatenate([of_bin, of_bin])
        named = np.concatenate([hosts[:, 0], hosts[:, 1]])
        # A host alone is named once.
        alone = np.concatenate([np.zeros(len(hosts), np.bool_), hosts[:, 0] == hosts[:, 1]])
        each, times = np.unique(_joined(of_host[~alone], named[~alone]), return_counts=True)
        most = np.zeros(len(single), np.int64)
        np.maximum.at(most, each >> WORD, times)
        different = np.bincount(each >> WORD, minlength=len(single))
        triangle = (sets == 3) & (different == 3) & (most == 2)
        found: Int64s = single[(most < sets) & ~triangle]
        return found


# Two numbers below 2**31 in one key that sorts by the first.
WORD: Final = 32
MASK: Final = (1 << WORD) - 1


def _joined(first: Int64s, second: Int64s) -> Int64s:
    return (first << WORD) | second


def _numbered(names: Iterable[K]) -> Int64s:
    """Return a number for each name, equal ones for equal names."""
    known: dict[K, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], np.int64)


def _hosts_by_number(losses: Sequence[PooledLoss], ends: Int64s) -> Int64s:
    """Return the two hosts of each set of hosts, by number; twice the same of one host alone."""
    known: dict[str, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for number, loss in zip(ends.tolist(), losses, strict=True):
        if number not in found:
            a, b = (known.setdefault(host, len(known)) for host in loss.hosts)
            found[number] = a, b
    return np.array(list(found.values()), np.int64).reshape(-1, 2)
