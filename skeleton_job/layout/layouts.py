"""Which blocks share a pipeline stage: the layout with the shortest description.

A layout splits the blocks into classes of equal size. Candidates are the regular layouts along the
platform's order, in which frameworks number ranks, and free ones found by clustering. A layout
costs what it leaves unexplained of each block, plus what it takes to write it down: a mean
iteration per class, and for a free one the class of each block. So a platform order that is true
needs little evidence, and one that is wrong is overruled by it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import gammaln

from schemas.columns.arrays import Bools, Floats
from skeleton_job.layout.description import Evidence, description, unexplained_from_each
from skeleton_job.layout.flows import flows_differ, one_sign, pipelines_of
from skeleton_job.layout.host_sums import classes_in_hosts, sums_cross_hosts
from skeleton_job.layout.single_pipeline import (
    ENDS,
    ends_sum_alone,
    half_at_ends,
    one_pipeline,
    send_to_one_each,
    upper_level,
)
from skeleton_job.rhythm.clusters import MAX_ROUNDS, Labels, assign, divisors

# One-way share that separates collectives from pipelines; nats for each factor e beyond it, and the
# largest such factor.
ONE_WAY: Final = 0.018
FLOW_COST: Final = 6.0
FLOW_LIMIT: Final = 2.5
# From this number of blocks and of nats per block on, a regular layout is accepted without a
# search, unless its classes fall apart by as many.
MIN_SETTLED: Final = 64
SETTLED_NATS: Final = 3.0
# Free layouts are searched up to this number of blocks and of classes.
MAX_FREE: Final = 512
MAX_FREE_CLASSES: Final = 16


@dataclass(frozen=True, slots=True)
class Choice:
    """A split of the blocks into classes of equal size.

    Attributes
    ----------
    labels : (n_blocks,) class of each block; of a regular layout in the platform's order
    count : number of classes
    regular : consecutive blocks that share a class, along the platform's order; None: a free layout
    margin : nats by which the best layout with another number of classes is worse
    flow_margin : the same by the net flows alone, which collectives do not affect; below 0: another
        number of classes describes them better
    uneven : whether blocks differ in what they send and receive at once, as in a tree
    length : description length, nats
    units : classes that were joined to one, since they exchange nothing with each other
    searched : whether layouts that do not follow the platform's order were compared, or need not be
    """

    labels: Labels
    count: int
    regular: int | None
    margin: float
    flow_margin: float = 0.0
    uneven: bool = False
    length: float = 0.0
    units: int = 1
    searched: bool = True


def regular_layouts(n: int) -> list[tuple[int, int]]:
    """Return (classes, consecutive blocks) of all layouts that repeat along the platform's order.

    >>> regular_layouts(4)
    [(1, 4), (2, 1), (2, 2), (4, 1)]
    """
    return [(k, q) for k in divisors(n) for q in divisors(n // k) if k > 1 or q == n]


def choose(evidence: Evidence) -> Choice:
    """Return the layout with the shortest description.

    Raises
    ------
    ValueError
        If no block is known, or no number of classes is possible.
    """
    n = evidence.known.size
    if not evidence.known.any():
        raise ValueError("no block has data")
    n_hosts = np.unique(evidence.apart).size
    allowed = [k for k in divisors(n) if n // k <= n_hosts and k <= int(evidence.known.sum())]
    if not allowed:
        raise ValueError(f"{n} blocks on {n_hosts} hosts: no equal classes without two of a host")
    found: list[Choice] = []
    shapes = [(k, q) for k, q in regular_layouts(n) if k in allowed]
    at = np.arange(n)
    half = evidence.profiles.shape[1] // 2
    summed = sums_cross_hosts(
        evidence.profiles[:, :half],
        evidence.profiles[:, half:],
        evidence.known,
        evidence.hosts,
        one_way=evidence.one_way,
    )
    for k, q in shapes:
        labels = at // q % k
        if _host_twice(labels, evidence.apart) or (
            summed and classes_in_hosts(labels, evidence.hosts)
        ):
            continue
        found += _described(evidence, Choice(labels, k, q, 0.0), float(np.log(len(shapes))))
    net = replace(evidence, profiles=_net(evidence.profiles))
    settled = _settled(evidence, found)
    if n <= MAX_FREE and not settled:
        for k in allowed:
            if not 1 < k <= max(MAX_FREE_CLASSES, n_hosts // 2) or k > MAX_FREE_CLASSES * 2:
                continue
            # Also by the net flow alone, which collectives do not affect.
            for view, uneven in ((evidence, False), (evidence, True), (net, False)):
                free = free_layout(view, k, uneven=uneven)
                if free is not None and not (summed and classes_in_hosts(free, evidence.hosts)):
                    cost = _free_cost(n, k)
                    found += _described(evidence, Choice(free, k, None, 0.0), cost)
    if not found:
        raise ValueError(f"{n} blocks on {n_hosts} hosts: no layout obeys the rules")
    found = [replace(c, length=c.length + _flow_cost(evidence.one_way, c.count)) for c in found]
    found = _at_levels(evidence, found)
    # Without a layout of one stage, all may be such.
    found = [choice for choice in found if not _lasting(evidence, choice)] or found
    shortest = {c.count: c for c in sorted(found, key=lambda c: -c.length)}
    joined = [_pipelines(evidence, choice) for choice in shortest.values()]
    lengths = np.array([c.length for c in joined])
    by_flows = lengths + [_more_by_flows(evidence, net, c) for c in shortest.values()]
    best = joined[int(np.argmin(lengths))]
    same = np.array([c.count == best.count for c in joined])
    if best.regular is None:
        best = _as_regular(best, shapes)
    return replace(
        best,
        margin=_margin(lengths, same),
        flow_margin=_margin(by_flows, same),
        searched=settled or n <= MAX_FREE,
    )


def _more_by_flows(evidence: Evidence, net: Evidence, choice: Choice) -> float:
    """Return nats by which net flows alone make the description of a layout longer."""
    whole, flows = (
        description(view, choice.labels, uneven=choice.uneven) for view in (evidence, net)
    )
    return flows - whole


def _margin(lengths: Floats, same: Bools) -> float:
    """Return nats by which the best of the other layouts is worse; infinite without any.

    Parameters
    ----------
    lengths : (n_layouts,)
    same : (n_layouts,) bool, those with the number of classes of the chosen one
    """
    return float(lengths[~same].min(initial=np.inf) - lengths[same].min())


def _as_regular(choice: Choice, shapes: list[tuple[int, int]]) -> Choice:
    """Return a layout as the regular one that has the same split, if there is one."""
    for k, q in shapes:
        labels = np.arange(choice.labels.size) // q % k
        if k == choice.count and _same_split(labels, choice.labels):
            return replace(choice, labels=labels, regular=q)
    return choice


def _lasting(evidence: Evidence, choice: Choice) -> bool:
    """Return whether classes are told apart by flows that keep their sign, as experts' do."""
    if evidence.halves is None or choice.count == 1:
        return False
    return one_sign(choice.labels, choice.count, evidence.halves, evidence.known, evidence.hosts)


def _pipelines(evidence: Evidence, choice: Choice) -> Choice:
    """Return a layout whose classes exchange bytes; see `skeleton_job.layout.flows`."""
    if evidence.halves is None:
        return choice
    labels, count = pipelines_of(
        choice.labels, choice.count, evidence.halves, evidence.known, evidence.hosts
    )
    if count == choice.count:
        return choice
    units = choice.count // count
    return replace(choice, labels=labels, count=count, regular=None, units=units)


def _at_levels(evidence: Evidence, found: list[Choice]) -> list[Choice]:
    """Return the layouts without those of long pipelines with replicas, if bytes show one pipeline.

    Layouts of one or two stages stay: a tree of gradient sums has inner nodes and leaves, too.
    """
    view = evidence.profiles, evidence.known
    if half_at_ends(*view) or ends_sum_alone(*view) or send_to_one_each(*view, evidence.hosts):
        alone = [choice for choice in found if choice.count == evidence.known.size]
        return alone or found
    upper = upper_level(*view)
    if upper is None or not one_pipeline(upper):
        return found
    return [choice for choice in found if choice.count <= ENDS or choice.count == upper.size]


def _flow_cost(one_way: float, count: int) -> float:
    """Return nats against a number of classes, from the share of traffic that goes one way."""
    way = float(np.log(max(one_way, 1e-6) / ONE_WAY)) if count == 1 else float(
        np.log(ONE_WAY / max(one_way, 1e-6))
    )  # fmt: skip
    return FLOW_COST * float(np.clip(way, 0.0, FLOW_LIMIT))


def _described(evidence: Evidence, choice: Choice, cost: float) -> list[Choice]:
    return [
        replace(
            choice,
            uneven=uneven,
            length=cost + description(evidence, choice.labels, uneven=uneven),
        )
        for uneven in (False, True)
    ]


def _settled(evidence: Evidence, found: list[Choice]) -> bool:
    """Return whether a regular layout of a large job explains so much that no search is needed."""
    if evidence.known.size < MIN_SETTLED or not found:
        return False
    best = min(found, key=lambda c: c.length)
    one = min((c.length for c in found if c.count == 1), default=np.inf)
    explains = best.count > 1 and one - best.length > SETTLED_NATS * evidence.known.size
    return explains and not _falls_apart(evidence, best)


def _falls_apart(evidence: Evidence, choice: Choice) -> bool:
    """Return whether the first class of a layout is several, which are found without an index.

    Places in a host may be known while the order of hosts is not: then blocks at one place form a
    class, whatever stage they hold.
    """
    inside = choice.labels == 0
    view = replace(
        evidence,
        profiles=evidence.profiles[inside],
        known=evidence.known[inside],
        hosts=evidence.hosts[inside],
    )
    size = int(inside.sum())
    if size == 1 or not view.known.any():
        return False
    parts = divisors(size)[1]
    split = free_layout(view, parts, uneven=choice.uneven)
    if split is None:
        return False
    if evidence.halves is not None:
        odd, even = evidence.halves
        halves = odd[inside], even[inside]
        if not flows_differ(split, parts, halves, view.known):
            return False
    whole = description(view, np.zeros_like(split), uneven=choice.uneven)
    apart = description(view, split, uneven=choice.uneven) + _free_cost(size, parts)
    return apart + SETTLED_NATS * size < whole


def _same_split(one: Labels, other: Labels) -> bool:
    pairs = np.unique(np.stack([one, other]), axis=1).shape[1]
    return bool(pairs == np.unique(one).size == np.unique(other).size)


def _host_twice(labels: Labels, hosts: Labels) -> bool:
    seats = hosts * (int(labels.max()) + 1) + labels
    return np.unique(seats).size < seats.size


def _free_cost(n: int, k: int) -> float:
    """Return the logarithm of the number of splits of n blocks into k equal classes."""
    return float(gammaln(n + 1) - k * gammaln(n // k + 1) - gammaln(k + 1))


def free_layout(evidence: Evidence, count: int, *, uneven: bool) -> Labels | None:
    """Return classes of equal size found without the platform's order; None if impossible.

    Alternating assignment and means (k-means with equal sizes), started from blocks far apart.
    Distances leave out what clocks and collectives explain.
    """
    points = evidence.profiles[evidence.known]
    if points.shape[0] <= count:
        return None
    far = np.full(points.shape[0], 1.0)

    def off(centres: Floats) -> Iterator[Floats]:
        """Yield the unexplained deviations of the blocks from each centre, (n, n_features)."""
        return unexplained_from_each(points, centres, evidence.max_shift, uneven=uneven, share=far)

    def cost_of(centres: Floats) -> Floats:
        return np.stack([_square(apart) for apart in off(centres)], axis=1)

    best: tuple[float, Labels] | None = None
    middle = points.mean(axis=0, keepdims=True)
    for start in range(2):
        # Start from the block least or most like the mean.
        order = np.argsort(cost_of(middle)[:, 0], kind="stable")
        chosen = [int(order[-1 if start == 0 else 0])]
        nearest = cost_of(points[chosen])[:, 0]
        while len(chosen) < count:
            chosen.append(int(np.argmax(nearest)))
            nearest = np.minimum(nearest, cost_of(points[chosen[-1:]])[:, 0])
        centres = points[chosen].copy()
        labels: Labels | None = None
        for _ in range(MAX_ROUNDS):
            cost = np.zeros((evidence.known.size, count))
            cost[evidence.known] = cost_of(centres)
            new = assign(cost, evidence.apart, count)
            if new is None or (labels is not None and np.array_equal(new, labels)):
                break
            labels = new
            # The centres are independent: all are updated from their former values.
            for c, apart in enumerate(off(centres.copy())):
                inside = labels[evidence.known] == c
                if inside.any():
                    centres[c] += apart[inside].mean(axis=0)
        if labels is None:
            return None
        loss = float(cost[np.arange(labels.size), labels].sum())
        if best is None or loss < best[0]:
            best = (loss, labels)
    return None if best is None else best[1]


def _square(apart: Floats) -> Floats:
    """Return the squared length of each row, (n,)."""
    out: Floats = np.einsum("nf,nf->n", apart, apart)
    return out


def _net(profiles: Floats) -> Floats:
    """Return what is sent less what is received, and its opposite, (n, 2 * points)."""
    half = profiles.shape[1] // 2
    net = profiles[:, :half] - profiles[:, half:]
    return np.hstack([net, -net])
