"""The order of pipeline stages, from independent cues in their mean iterations.

* Gradient sum: the last stage ends its backward pass first, so the bursts that are sent and
  received at once come in reverse order.
* Onset: after the pause between iterations, each stage sends its first activations when it has
  received those of the stage before.
* Flow: what a stage sends less what it receives contains no gradient sum (a ring sends and
  receives alike) but the pipeline's traffic. Summed along the pipeline, it is the flow over each
  edge. The right order needs the least flow, and none that the counters at both ends forbid. It
  has no direction.

A fourth cue says in which direction an order is passed: where bytes are under way. A fifth tells
which stages are neighbours, but takes every iteration of every block: what replicas of one stage
send late, those of its neighbours receive late (`skeleton_job.rhythm.chains`).

`order_stages` decides between the first three, and where it cannot, `by_chains` does.
"""

from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Final

import numpy as np

from schemas.columns.arrays import Floats

Order = tuple[int, ...]

# Up to this number of stages all orders are compared (360 without direction).
MAX_EXHAUSTIVE: Final = 6
# Onset: when this share of what a pipeline moves has been sent.
ONSET_SHARE: Final = 0.15
# A point belongs to the pause below this share of the way from the least to the most traffic.
QUIET_SHARE: Final = 0.1
# Under way: gradients are summed if less than this share of the traffic goes one way at a time.
SUMMED: Final = 0.4
# They are where more than this part of the most is sent and received at once.
BURST_PART: Final = 0.5
# What is under way then is known if it is this far from its mean, as a share of the range: noise
# and a burst that is none leave it near the mean.
CLEAR_BURST: Final = 0.25
# A direction is known from this share on; from the second one it was right in 55 of 56 foreign jobs
# of two stages.
MIN_UNDER_WAY: Final = 0.2
CLEAR_WAY: Final = 0.3
# Smooths the edges of ticks; the profile has about two points per tick.
SMOOTHING: Final = np.array([0.25, 0.5, 0.25])


@dataclass(frozen=True, slots=True)
class OrderCue:
    """An order, and how clear it is in the cue's own unit (see each function)."""

    order: Order
    clarity: float


def gradient_cue(tx: Floats, rx: Floats) -> OrderCue:
    """Return the reverse order of the gradient bursts.

    Clarity is the least ratio, over the stages, of the burst's height to the highest other point of
    what is sent and received at once; 0 if two bursts coincide.

    Parameters
    ----------
    tx, rx : (n_classes, points) bytes per second
    """
    both = np.minimum(tx, rx)
    points = both.shape[1]
    centres, contrasts = [], []
    for row in both:
        smooth = _smooth(row - np.quantile(row, 0.2))
        top = int(np.argmax(smooth))
        centre, contrast = _burst(smooth, top)
        centres.append(centre % points)
        contrasts.append(contrast)
    position = np.array(centres)
    around = np.argsort(position, kind="stable")
    gaps = np.diff(np.concatenate([position[around], [position[around[0]] + points]]))
    # The bursts of one iteration are close together; the largest gap separates iterations.
    last = int(np.argmax(gaps))
    rising = np.roll(around, -(last + 1))
    closest = float(np.delete(gaps, last).min()) if gaps.size > 1 else np.inf
    order = tuple(int(c) for c in rising[::-1])
    return OrderCue(order, min(contrasts) if closest > 0.1 else 0.0)


def _smooth(row: Floats) -> Floats:
    out: Floats = np.convolve(np.tile(row, 3), SMOOTHING, "same")[row.size : 2 * row.size]
    return out


def _burst(smooth: Floats, top: int) -> tuple[float, float]:
    """Return the middle between the half heights of a burst, and its contrast."""
    points = smooth.size
    half = 0.5 * smooth[top]
    if half <= 0:
        return float(top), 0.0
    left = right = top
    while smooth[(left - 1) % points] > half and top - left < points // 2:
        left -= 1
    while smooth[(right + 1) % points] > half and right - top < points // 2:
        right += 1
    outside = np.delete(smooth, np.arange(left, right + 1) % points)
    contrast = float(smooth[top]) / max(float(outside.max()) if outside.size else 0.0, 1e-12)
    lead = left - _crossing(smooth[left % points], smooth[(left - 1) % points], half)
    trail = right + _crossing(smooth[right % points], smooth[(right + 1) % points], half)
    return (lead + trail) / 2, contrast


def _crossing(above: float, below: float, level: float) -> float:
    return float((above - level) / max(above - below, 1e-12))


def onset_cue(tx: Floats, rx: Floats) -> OrderCue | None:
    """Return the order in which stages send their first bytes; None without a pause.

    Clarity is the smallest distance between two onsets, in points.

    Parameters
    ----------
    tx, rx : (n_classes, points) bytes per second
    """
    points = tx.shape[1]
    pause = longest_pause(_smooth((tx + rx).sum(axis=0)))
    if not pause.any():
        return None
    turn = np.exp(2j * np.pi * np.arange(points) / points)
    cut = round(float(np.angle((pause * turn).sum())) / (2 * np.pi) * points) % points
    sent, got = (_above_pause(np.roll(x, -cut, axis=1)) for x in (tx, rx))
    volume = ONSET_SHARE * float(np.abs(sent - got).sum(axis=1).mean()) / 2
    if volume <= 0:
        return None
    onset = np.array([_first(np.cumsum(row), volume) for row in sent])
    order = np.argsort(onset, kind="stable")
    clarity = float(np.diff(onset[order]).min()) if onset.size > 1 else np.inf
    return OrderCue(tuple(int(c) for c in order), clarity)


def _above_pause(rates: Floats) -> Floats:
    """Return the rates less those in the pause, at both ends of the profile."""
    ends = np.concatenate([rates[:, :2], rates[:, -2:]], axis=1)
    out: Floats = np.maximum(rates - np.median(ends, axis=1, keepdims=True), 0.0)
    return out


def _first(cumulated: Floats, volume: float) -> float:
    """Return where a cumulated curve reaches a volume; its length if it does not."""
    at = int(np.searchsorted(cumulated, volume))
    if at >= cumulated.size:
        return float(cumulated.size)
    before = float(cumulated[at - 1]) if at else 0.0
    return at + (volume - before) / max(float(cumulated[at]) - before, 1e-12)


def longest_pause(total: Floats) -> Floats:
    """Return 1.0 in the longest cyclic section with little traffic, 0.0 elsewhere, (points,).

    Examples
    --------
    >>> longest_pause(np.array([9.0, 9.0, 0.0, 0.0, 9.0, 0.0])).tolist()
    [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    """
    quiet = total < total.min() + QUIET_SHARE * (total.max() - total.min())
    if quiet.all() or not quiet.any():
        return np.zeros_like(total)
    turn = int(np.argmin(quiet))
    rolled = np.roll(quiet, -turn)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], rolled.astype(np.int8), [0]])))
    begins, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - begins))
    out = np.zeros_like(total)
    out[begins[longest] : ends[longest]] = 1.0
    return np.roll(out, turn)


def flow_cue(tx: Floats, rx: Floats) -> OrderCue:
    """Return the order that needs the least flow; its direction is arbitrary.

    Clarity is the cost of the best order with other neighbours over that of this one.

    Parameters
    ----------
    tx, rx : (n_classes, points) bytes per second
    """
    net = tx - rx
    orders = _candidates(tx, rx, net)
    costs = np.array([_cost(o, tx, rx, net) for o in orders])
    best = int(np.argmin(costs))
    others = np.delete(costs, best)
    clarity = float(others.min()) / max(float(costs[best]), 1e-300) if others.size else np.inf
    return OrderCue(orders[best], clarity)


def _candidates(tx: Floats, rx: Floats, net: Floats) -> list[Order]:
    """Return the orders to compare, one of each pair that differ in direction only."""
    count = tx.shape[0]
    if count <= MAX_EXHAUSTIVE:
        return [o for o in permutations(range(count)) if o[0] <= o[-1]]
    found: dict[Order, None] = {}
    for first in range(count):
        order = [first]
        rest = [c for c in range(count) if c != first]
        while rest:
            flow = net[order].sum(axis=0)
            costs = [
                float(np.abs(flow + net[c]).sum()) + _excess(flow, order[-1], c, tx, rx)
                for c in rest
            ]
            order.append(rest.pop(int(np.argmin(costs))))
        found[tuple(order if order[0] < order[-1] else order[::-1])] = None
    return list(found)


def _excess(flow: Floats, a: int, b: int, tx: Floats, rx: Floats) -> float:
    """Return how much of a net flow from a to b the counters at both ends forbid."""
    over = np.maximum(flow - np.minimum(tx[a], rx[b]), 0.0)
    back = np.maximum(-flow - np.minimum(tx[b], rx[a]), 0.0)
    return float(over.sum() + back.sum())


def _cost(order: Order, tx: Floats, rx: Floats, net: Floats) -> float:
    flows = np.cumsum(net[list(order)], axis=0)[:-1]
    return sum(
        float(np.abs(flow).sum()) + _excess(flow, a, b, tx, rx)
        for flow, (a, b) in zip(flows, pairwise(order), strict=True)
    )


def under_way(tx: Floats, rx: Floats) -> float:
    """Return whether bytes are under way from the first class to the last (1), or back (-1).

    A microbatch crosses each border of a pipeline forward before its gradient comes back, whatever
    the schedule, and none is under way between iterations. So what crossed forward less what came
    back is least while gradients are summed, or in the pause if there is no such sum; in the other
    direction it is greatest then.

    Parameters
    ----------
    tx, rx : (n_classes, points) bytes per second, in the order of the pipeline or its reverse

    Returns
    -------
    -1 to 1: by what share of its range the mean exceeds what is under way then
    """
    net = tx - rx
    net = net - net.mean(axis=1, keepdims=True)
    crossed = np.cumsum(np.cumsum(net, axis=0)[:-1], axis=1)
    spread = max(float(np.ptp(crossed, axis=1).sum()), 1e-300)
    usual = crossed.mean(axis=1, keepdims=True)
    if float((net**2).sum()) < SUMMED**2 * float(((tx + rx) ** 2).sum()):
        both = np.minimum(tx, rx)
        both = both[:-1] + both[1:]
        both -= both.min(axis=1, keepdims=True)
        burst = np.maximum(both - BURST_PART * both.max(axis=1, keepdims=True), 0.0)
        burst /= np.maximum(burst.sum(axis=1, keepdims=True), 1e-300)
        least = float((burst * (usual - crossed)).sum()) / spread
        if abs(least) >= CLEAR_BURST:
            return least
    pause = longest_pause(_smooth((tx + rx).sum(axis=0)))
    pause = pause / max(float(pause.sum()), 1.0)
    return float((pause * (usual - crossed)).sum()) / spread if pause.any() else 0.0


# Bursts with this contrast are gradient bursts: on generated jobs their order was right in 98 of
# 100 cases, below it in 24 of 100.
MIN_CONTRAST: Final = 1.5
# Onsets this many points apart differ by more than noise.
MIN_ONSET_GAP: Final = 0.5

# Shares of right orders on generated jobs of 3 to 8 stages, for each way to decide.
TWO_CUES: Final = 1.0
GRADIENT_ALONE: Final = 0.85
ONSET_ALONE: Final = 0.9
ONSET_AND_FLOW: Final = 0.9
DISPUTED: Final = 0.5
# Two stages have one order, so only its direction is asked.
PAIR: Final = 2
# Chains decide for another order if they are clearer by this much per pair of its neighbours: of
# eight disputed orders of foreign jobs four became right, and none wrong.
CLEARER: Final = 0.15


@dataclass(frozen=True, slots=True)
class StageOrder:
    """Classes in pipeline order.

    Attributes
    ----------
    trust
        How often such an order has the right neighbours, 0 to 1.
    directed
        Whether the first class is known to be the first stage.
    cues
        What each cue says for itself, where they disagree.
    """

    order: Order
    trust: float
    directed: bool
    cues: tuple[Order, ...] = ()


def order_stages(tx: Floats, rx: Floats, *, replicas: int) -> StageOrder:
    """Return the order of the classes.

    Parameters
    ----------
    tx, rx : (n_classes, points), mean iteration of each class, bytes per second
    replicas : blocks in each class; with one there is no gradient sum
    """
    if tx.shape[0] == 1:
        return StageOrder((0,), 1.0, True)
    found = _by_cues(tx, rx, replicas)
    pair = tx.shape[0] == PAIR
    if found.directed and not pair:
        return found
    way = under_way(tx[list(found.order)], rx[list(found.order)])
    if pair:
        # All neighbours of two stages agree, so that cues agree means nothing.
        clear = abs(way) >= CLEAR_WAY
        found = replace(found, trust=TWO_CUES if clear else min(found.trust, GRADIENT_ALONE))
    return _passed(found, way)


def by_chains(found: StageOrder, gains: Floats, tx: Floats, rx: Floats) -> StageOrder:
    """Return the order of a cue whose neighbours the chains show more clearly, or the same one.

    Parameters
    ----------
    found : which is not sure
    gains : (n_classes, n_classes), how clearly the chains of two classes show, see `chain_gains`
    tx, rx : as in `order_stages`
    """

    def shown(order: Order) -> float:
        return float(np.mean([gains[a, b] for a, b in pairwise(order)]))

    best = max(found.cues, key=shown, default=found.order)
    if shown(best) < shown(found.order) + CLEARER:
        return found
    way = under_way(tx[list(best)], rx[list(best)])
    return _passed(StageOrder(best, GRADIENT_ALONE, directed=False), way)


def _passed(found: StageOrder, way: float) -> StageOrder:
    """Return an order in the direction in which bytes are under way, if that is known."""
    if abs(way) < MIN_UNDER_WAY:
        return found
    return replace(found, order=found.order if way > 0 else found.order[::-1], directed=True)


def _by_cues(tx: Floats, rx: Floats, replicas: int) -> StageOrder:
    """Return the order by gradient sums, onsets and flows; see `order_stages`."""
    flow = flow_cue(tx, rx)
    onset = onset_cue(tx, rx)
    gradient = gradient_cue(tx, rx) if replicas > 1 else None
    if gradient is not None and gradient.clarity >= MIN_CONTRAST:
        agreed = _same_neighbours(gradient, flow)
        return StageOrder(gradient.order, TWO_CUES if agreed else GRADIENT_ALONE, True)
    if onset is not None and _same_neighbours(onset, flow):
        return StageOrder(onset.order, TWO_CUES if gradient is None else ONSET_AND_FLOW, True)
    cues = tuple(cue.order for cue in (flow, onset, gradient) if cue is not None)
    if onset is None:
        return StageOrder(flow.order, DISPUTED, False, cues)
    clear = gradient is None and onset.clarity >= MIN_ONSET_GAP
    return StageOrder(onset.order, ONSET_ALONE if clear else DISPUTED, clear, cues)


def _same_neighbours(one: OrderCue, other: OrderCue) -> bool:
    return one.order in (other.order, other.order[::-1])
