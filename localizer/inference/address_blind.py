"""Cables that let others pass: what a cable loses does not depend on addresses.

A cable and the ports at its ends read no addresses. Cut in one direction, it loses all that crosses
it there; damaged, a share of the packets of each 5-tuple. A switch does read them: a route that
leads nowhere, an access list, a damaged entry drop all packets of some 5-tuples, always, and none
of the others'. So 5-tuples that are cut off are hardly cut off by a cable that others cross in the
same direction at the same time without a loss.

The search knows one severity for each component: how many of the 5-tuples that cross it are bad, in
either direction. Of a switch it may be any, of a cable this is too much. Here what the 5-tuples of
a direction show is held against the best severity: under a loss of p of all packets a 5-tuple has
lost its last n probes with probability p to the power of n, and no three in a row of n, so that
nothing is detected, with less than (1 - p³) to the power of n - 2. Where that is less likely, the
cable is only a possible cause of the direction's bad 5-tuples, with such a probability that all of
them together are as unlikely as that. Of parallel cables nobody knows which one a 5-tuple crosses:
these do choose by addresses.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import floor, log, log1p
from typing import Final, NamedTuple

import numpy as np

from localizer.facts.bad_flows import BadFlow
from localizer.inference.detection_lag import MOST, Shown
from localizer.inference.good_flows import GoodFlows
from localizer.inference.search import FLOW_SEVERITIES
from localizer.network.directions import Directions
from schemas.columns.arrays import Floats
from schemas.enums import AnomalyKind
from schemas.ids import FlowId

# Shares of the packets that a cable may lose; the last is that of a cut. It is near enough to all,
# as a record counts the losses of ten seconds only.
LOSSES: Final = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.999)
# Losses in a row by which a 5-tuple is known to be cut off.
RUN: Final = 3
# Probabilities are powers of a half, down to this one: the same ones at one decision and the next.
MOST_HALVES: Final = 10
# A likelihood ratio of less is rather unlikely: enough to wait for more.
UNLIKELY: Final = 0.5
# Of 5-tuples that are well for longer than a cut needs to show, that share does cross what their
# last traces show.
KNOWN: Final = 0.99
# Of more 5-tuples the search tells a cable from a switch by itself, and each that is doubted is a
# row of its own: in a storm that takes longer than the rest of the decision.
MAX_CUT: Final = 512


class Doubts(NamedTuple):
    """What is doubted.

    Attributes
    ----------
    bad
        The bad 5-tuples, with the cables that they cross and that let others pass.
    contested
        Cables that are not cut, for others pass: whether they lose a share may not be known yet.
    """

    bad: list[BadFlow]
    contested: frozenset[str] = frozenset()


def find_doubts(
    bad: list[BadFlow],
    good: GoodFlows,
    shown: Shown,
    places: Directions,
    way_of: Callable[[FlowId, int], tuple[str, ...]],
) -> Doubts:
    """Find the cables that let others pass than the 5-tuples that are cut off.

    Parameters
    ----------
    bad
        5-tuples that are bad because of lost probes.
    good, shown
        The good ones, and which share of the truly bad ones is detected by now.
    places
        The directed cables of all.
    way_of
        `PathBook.components`: what a bad one crosses, with what its lost probes have passed.
    """
    cut = [flow for flow in bad if flow.open and flow.cut]
    if not cut or sum(flow.stands_for for flow in cut) > MAX_CUT:
        return Doubts(bad)
    keys = {flow.key for flow in cut}
    ways = {f.key: places.crossed(way_of(f.key, f.onset_ns)) for f in bad}
    through: defaultdict[str, list[BadFlow]] = defaultdict(list)
    # What is known to lose a share, or lost all for a moment, is not cut.
    partial: set[str] = set()
    for flow in bad:
        if flow.key not in keys:
            partial.update(ways[flow.key])
            continue
        for place in filter(places.is_directed, ways[flow.key]):
            through[place].append(flow)
    lag_of = good.lag_of(shown)
    chances: dict[str, float] = {}
    contested = set()
    for place in filter(places.is_alone, sorted(through.keys() - partial)):
        rows = places.rows(place)
        lags = good.lags(rows[good.mask[rows]], lag_of)
        lags[lags >= MOST["cut"]] = KNOWN
        lost = [_lost(flow) for flow in through[place]]
        chances[place] = chance_of_each(lost, lags)
        if is_no_cut(len(lost), len(lags)):
            contested.add(places.cable(place))
    found = []
    for flow in bad:
        doubted = tuple(
            (cable, chances[place])
            for place in (ways[flow.key] if flow.key in keys else ())
            if chances.get(place, 1.0) < 1.0 and (cable := places.cable(place)) in flow.components
        )
        found.append(replace(flow, doubted=doubted) if doubted else flow)
    return Doubts(found, frozenset(contested))


def chance_of_each(lost: Sequence[int], lags: Floats) -> float:
    """Return with which probability each 5-tuple that a direction's are cut off was lost there.

    Parameters
    ----------
    lost
        How many of its latest probes each of the bad ones lost.
    lags
        Of the good ones, the share of truly bad ones that is detected, shape (good,).

    Returns
    -------
    float
        A power of a half; 1 if a loss of packets explains what is seen as well as any severity.

    Examples
    --------
    >>> chance_of_each([10, 10, 10], np.empty(0))
    1.0
    >>> chance_of_each([10, 10, 10], np.full(3, 0.98))
    0.0625
    """
    ratio = of_a_cable(lost, lags) - of_a_share(len(lost), lags)
    halves = -ratio / len(lost) / log(2.0)
    return 2.0 ** -min(MOST_HALVES, max(0, floor(round(halves, 6) + 0.5)))


def is_no_cut(bad: int, good: int) -> bool:
    """Return whether a direction is not cut if those of its 5-tuples that are well now remain so.

    Parameters
    ----------
    bad, good
        How many are cut off, and how many are well.

    Examples
    --------
    >>> is_no_cut(100, 1), is_no_cut(2, 2)
    (False, True)
    """
    lags, cut = np.full(good, KNOWN), LOSSES[-1]
    all_lost = bad * log(cut) + good * log1p(-KNOWN * cut)
    return all_lost - of_a_share(bad, lags) < log(UNLIKELY)


def of_a_cable(lost: Sequence[int], lags: Floats) -> float:
    """Return the log-likelihood of the best share of packets that is lost whatever their address.

    Parameters
    ----------
    lost, lags
        As of `chance_of_each`.
    """
    tries = max(1, min(lost) - RUN + 1)
    return max(
        sum(lost) * log(p) + float(np.log1p(-lags * (1.0 - (1.0 - p**RUN) ** tries)).sum())
        for p in LOSSES
    )


def of_a_share(bad: int, lags: Floats) -> float:
    """Return the log-likelihood of the best share of 5-tuples that are cut off.

    Parameters
    ----------
    bad
        How many are.
    lags
        As of `chance_of_each`.
    """
    return max(bad * log(s) + float(np.log1p(-lags * s).sum()) for s in FLOW_SEVERITIES)


def _lost(flow: BadFlow) -> int:
    """Return how many probes of a 5-tuple that is cut off were lost in the last seconds."""
    return max(RUN, *(s.lost for s in flow.symptoms if s.kind is AnomalyKind.CONNECTIVITY))
