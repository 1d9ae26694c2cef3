"""Switches that drop what goes to one endpoint, or comes from it.

A cable does not read addresses: what it loses is a share of everything that crosses it. A switch
does: a route that is missing or leads nowhere, or an access list, stops all that goes to one
endpoint and lets all else pass. Over everything that crosses the switch this is a small severity,
and a cable of which these 5-tuples are a larger share would explain them better.

The search knows one severity for each component. By how much the other model explains a switch's
5-tuples better is therefore added to its prior, as the evidence of states is.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, log, log1p
from typing import Final

import numpy as np

from localizer.facts.bad_flows import BadFlow
from localizer.inference.detection_lag import Shown
from localizer.inference.good_flows import GoodFlows
from localizer.inference.search import FLOW_SEVERITIES
from localizer.network.flow_index import CROSSED, NOTHING, FlowIndex
from schemas.columns.arrays import Floats, Int64s
from schemas.ids import FlowId

# Whether an endpoint's packets are dropped on their way from it or to it.
DIRECTIONS: Final = (0, 1)
# All of them are.
SEVERITY: Final = max(FLOW_SEVERITIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """The 5-tuples that cross a switch.

    Attributes
    ----------
    bad : their keys
    replies : the keys of bad 5-tuples that do not cross it, but whose replies may
    good : the keys of those among the good ones that have the common endpoint, and the share of
        the truly bad ones of their prober that are detected by now
    good_replies : the same of good ones that do not cross it, but whose replies may
    lags : these shares of all good ones
    endpoint_count : of all good ones
    reply_share : probability that the reply of a 5-tuple crosses the switch
    chance : probability that a 5-tuple is bad by chance
    """

    bad: Sequence[FlowId]
    replies: Sequence[FlowId]
    good: Sequence[tuple[FlowId, float]]
    good_replies: Sequence[tuple[FlowId, float]]
    lags: Floats
    endpoint_count: int
    reply_share: Callable[[FlowId], float]
    chance: float


def selective_evidence(
    good: GoodFlows,
    shares: Callable[[str, str], Mapping[str, float]],
    through: Mapping[str, Sequence[BadFlow]],
    shown: Shown,
    *,
    leaves: Callable[[str], frozenset[str]],
    all_bad: Sequence[BadFlow],
    chance: float,
) -> dict[str, float]:
    """Return by how much dropping one endpoint's packets explains a switch's 5-tuples better.

    Parameters
    ----------
    good
        The good 5-tuples.
    shares
        `ReplyWays.shares`: what replies between two endpoints may cross, with probabilities.
    through
        The bad 5-tuples that cross each switch.
    shown
        Share of the bad 5-tuples that are detected by now.
    leaves
        The switches that an endpoint is joined to. What one of them loses of the endpoint's, its
        cable there may lose as well: so replies are no evidence for the leaf.
    all_bad
        The bad 5-tuples, also those that cross no switch: their replies may.
    chance
        Probability that a 5-tuple is bad by chance.

    Returns
    -------
    dict of str to float
        Log-likelihood ratio against the best single severity, for the switches where it is
        positive. All bad 5-tuples are cut off there and have one endpoint in common.
    """
    found = {}
    # Those that a sample leaves out may have no end in common with those that it shows.
    cut = {
        switch: bad
        for switch, bad in through.items()
        if all(flow.cut and flow.stands_for == 1 for flow in bad)
    }
    shared = {
        switch: set(bad[0].key[:2]).intersection(*(flow.key[:2] for flow in bad))
        for switch, bad in cut.items()
    }
    at_end = _rows_by_end(good.index, set().union(*shared.values()))
    lag_of = good.lag_of(shown)
    for switch, common in shared.items():
        if not common:
            continue
        bad, index = cut[switch], good.index
        number = index.components.get(switch, NOTHING)
        places = index.rows_with(number)
        places = places[good.mask[places]]
        lags = good.lags(places, lag_of)
        ours = np.unique(np.concatenate([at_end[end] for end in common]))
        ours = ours[good.mask[ours]]
        touched = (index.rows[ours, CROSSED:] == number).any(axis=1)
        far = all(switch not in leaves(endpoint) for endpoint in common)
        mine = {flow.key for flow in bad}
        crossing = Crossing(
            bad=[flow.key for flow in bad],
            replies=[
                flow.key
                for flow in (all_bad if far else ())
                if flow.cut and flow.key not in mine and not common.isdisjoint(flow.key[:2])
            ],
            good=_with_lags(good, ours[touched], lag_of),
            good_replies=_with_lags(good, ours[~touched] if far else ours[:0], lag_of),
            lags=lags,
            endpoint_count=len(np.unique(index.ends[places])),
            reply_share=partial(_reply_share, shares, switch),
            chance=chance,
        )
        ratio = max(
            of_one_endpoint(crossing, endpoint, direction)
            for endpoint in sorted(common)
            for direction in DIRECTIONS
        ) - of_a_share(crossing)
        if ratio > 0:
            found[switch] = ratio
    return found


def _rows_by_end(index: FlowIndex, ends: Collection[str]) -> dict[str, Int64s]:
    """Return the rows of an index that begin or end at each of some endpoints."""
    found = dict.fromkeys(ends, np.empty(0, np.int64))
    names = [end for end in ends if end in index.endpoints]
    if not names:
        return found
    numbers = np.array([index.endpoints[name] for name in names], np.int32)
    places = np.flatnonzero(np.isin(index.ends.ravel(), numbers))
    rows, which = places // 2, index.ends.ravel()[places]
    order = np.argsort(which, kind="stable")
    rows, which = rows[order], which[order]
    begins = np.searchsorted(which, numbers, "left").tolist()
    ends_at = np.searchsorted(which, numbers, "right").tolist()
    for name, begin, end in zip(names, begins, ends_at, strict=True):
        ours = rows[begin:end]
        found[name] = ours[index.live[ours]]
    return found


def _with_lags(good: GoodFlows, places: Int64s, lag_of: Floats) -> list[tuple[FlowId, float]]:
    lags = good.lags(places, lag_of).tolist()
    return [(good.index.key(p), lag) for p, lag in zip(places.tolist(), lags, strict=True)]


def _reply_share(
    shares: Callable[[str, str], Mapping[str, float]], switch: str, key: FlowId
) -> float:
    return shares(*key[:2]).get(switch, 0.0)


def of_a_share(crossing: Crossing) -> float:
    """Return the log-likelihood if the switch loses a share of all that crosses it.

    As the search counts it: good 5-tuples of which only the reply may cross it say nothing.
    """
    return max(
        len(crossing.bad) * log(severity)
        + sum(
            _log_bad(severity * crossing.reply_share(key), crossing.chance)
            for key in crossing.replies
        )
        + float(np.log1p(-severity * crossing.lags).sum())
        for severity in FLOW_SEVERITIES
    )


def of_one_endpoint(crossing: Crossing, endpoint: str, direction: int) -> float:
    """Return the log-likelihood if the switch drops all from (0) or to (1) one endpoint.

    A probe whose reply would be dropped is lost if the reply comes back through this switch.
    """

    def reply_lost(key: FlowId) -> float:
        return SEVERITY * crossing.reply_share(key) if key[1 - direction] == endpoint else 0.0

    def lost(key: FlowId) -> float:
        return SEVERITY if key[direction] == endpoint else reply_lost(key)

    chances = [lost(key) for key in crossing.bad]
    if min(chances) == 0:
        return -inf
    # Which endpoint, and in which direction, nobody knew before; the bad ones' may be one more.
    choices = len(DIRECTIONS) * (crossing.endpoint_count + 1)
    return (
        sum(log(chance) for chance in chances)
        + sum(_log_bad(reply_lost(key), crossing.chance) for key in crossing.replies)
        + sum(log1p(-lag * lost(key)) for key, lag in crossing.good)
        + sum(log1p(-lag * reply_lost(key)) for key, lag in crossing.good_replies)
        - log(choices)
    )


def _log_bad(lost: float, chance: float) -> float:
    """Return the log-probability that a 5-tuple is bad: it is lost, or by chance."""
    bad = lost + (1.0 - lost) * chance
    return log(bad) if bad > 0 else -inf
