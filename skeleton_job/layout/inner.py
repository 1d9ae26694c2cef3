"""Expert (EP) and context (CP) groups inside the stages.

Hosts of one group vary alike (`skeleton_job.rhythm.likeness`), or run in lock step
(`skeleton_job.rhythm.groups`), or share a ring (`skeleton_job.rhythm.rings`). Experts send and
receive changing numbers of tokens; members of a context group send what they receive. A fully
sharded model gathers its parameters in lock step as well, but at the same rate as it sums
gradients.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas.columns.arrays import Floats
from skeleton_job.layout.blocks import MIN_UNEQUAL, Blocks, unequal
from skeleton_job.layout.pipelines import StageIterations
from skeleton_job.rhythm.clusters import Labels
from skeleton_job.rhythm.groups import Lags, groups_of, host_lags, shared_size
from skeleton_job.rhythm.likeness import HostGroups, alike_hosts
from skeleton_job.rhythm.rings import MIN_ITERATIONS, equal_groups, likeness_of_hosts, ring_size

# Larger expert groups are paired along a ring of this size.
MAX_ALL: Final = 16
# What an expert group's hosts send and receive differs by this share at least (acknowledgements and
# retransmissions are some thousandths of all bytes), and by so many times what changes.
MIN_IMBALANCE: Final = 0.004
LASTING: Final = 2.0
# Context groups move bytes at less than half the rate of the gradient sum, for which links are
# full; and that takes a fifth of the iteration at most. Parameters of a sharded model fill links
# as well; such a model has no pipeline, as a rule.
BURST_LEVEL: Final = 0.5
MAX_BURST: Final = 0.2


@dataclass(frozen=True, slots=True)
class Inner:
    """Groups inside the stages.

    Attributes
    ----------
    kind : "ep", "cp" or None
    size : blocks of a group
    groups : blocks of each group
    """

    kind: str | None
    size: int
    groups: tuple[tuple[int, ...], ...]


NONE: Final = Inner(None, 1, ())


def find_inner(stage_iterations: StageIterations, *, rings: bool) -> Inner:
    """Return expert or context groups, if all stages show groups of one size.

    A group holds all blocks of its stage in its hosts: blocks of one host share its clock.

    Parameters
    ----------
    rings : whether rings turn through hosts all the time, see `blocks.lasting_rings`
    """
    stages, blocks = stage_iterations.stages, stage_iterations.blocks
    hosts = _equal_hosts(stages, blocks)
    if hosts is None:
        return NONE
    found = alike_hosts(_totals(stage_iterations, hosts)) or (
        _on_rings(stage_iterations, hosts) if rings else _in_lock_step(stage_iterations, hosts)
    )
    if found is None:
        return NONE
    kind = "cp" if rings or not _are_experts(stage_iterations, hosts) else "ep"
    if kind == "cp" and not rings and len(stages) == 1:
        bursts = _bursts(blocks, stages[0], hosts.of_stage[0])
        if bursts > MAX_BURST:
            # A fully sharded model.
            return NONE
    groups = []
    for stage, of_host, of_group in zip(stages, hosts.of_stage, found.of_stage, strict=True):
        label = of_group[of_host]
        groups += [tuple(stage[label == g].tolist()) for g in dict.fromkeys(label.tolist())]
    return Inner(kind, found.size * hosts.width, tuple(groups))


@dataclass(frozen=True, slots=True)
class _Hosts:
    """The hosts of stages that have equally many hosts and blocks.

    Attributes
    ----------
    count : hosts of a stage
    width : blocks of a host
    of_stage : for each stage the host of each block
    """

    count: int
    width: int
    of_stage: tuple[Labels, ...]


def _equal_hosts(stages: list[Labels], blocks: Blocks) -> _Hosts | None:
    """Return the hosts of the stages; None where stages differ, or have one host."""
    found = [np.unique(blocks.hosts[stage], return_inverse=True) for stage in stages]
    sizes = {(hosts.size, stage.size) for (hosts, _), stage in zip(found, stages, strict=True)}
    if len(sizes) > 1:
        return None
    ((n_hosts, n_blocks),) = sizes
    if n_hosts < 2 or n_blocks % n_hosts:
        return None
    return _Hosts(n_hosts, n_blocks // n_hosts, tuple(of_host for _, of_host in found))


def _totals(stage_iterations: StageIterations, hosts: _Hosts) -> list[Floats]:
    """Return what the hosts of each stage send and receive, (n_hosts, n_iterations, points)."""
    totals = []
    for of_host, (tx, rx) in zip(hosts.of_stage, stage_iterations.pieces, strict=True):
        total = np.zeros((hosts.count, *tx.shape[1:]))
        np.add.at(total, of_host, tx + rx)
        totals.append(total)
    return totals


def _in_lock_step(stage_iterations: StageIterations, hosts: _Hosts) -> HostGroups | None:
    """Return the groups of hosts that hardly lag behind each other."""
    lags = [
        _lags(stage_iterations, stage, of_host)
        for stage, of_host in zip(stage_iterations.stages, hosts.of_stage, strict=True)
    ]
    found = [lag for lag in lags if lag is not None]
    if len(found) < len(lags):
        return None
    size = shared_size(found)
    return HostGroups(size, tuple(groups_of(lag, size) for lag in found)) if size > 1 else None


def _on_rings(stage_iterations: StageIterations, hosts: _Hosts) -> HostGroups | None:
    """Return the hosts that share a ring, by the delays of what turns around it."""
    blocks = stage_iterations.blocks
    found = []
    for stage, of_host, (tx, rx) in zip(
        stage_iterations.stages, hosts.of_stage, stage_iterations.pieces, strict=True
    ):
        leaves = blocks.tx[stage].mean(axis=1) > blocks.rx[stage].mean(axis=1)
        flows = np.zeros((hosts.count, tx.shape[1], 2 * tx.shape[2]))
        for way, half in ((leaves, slice(None, tx.shape[2])), (~leaves, slice(tx.shape[2], None))):
            np.add.at(flows[:, :, half], of_host[way], (tx - rx)[way])
        likeness = likeness_of_hosts(flows)
        if likeness is None:
            return None
        found.append(likeness)
    size = ring_size(found)
    return HostGroups(size, tuple(equal_groups(likeness, size) for likeness in found))


def _lags(stage_iterations: StageIterations, stage: Labels, of_host: Labels) -> Lags | None:
    """Return how much the hosts of a stage lag; None if one of them is not seen."""
    blocks = stage_iterations.blocks
    hosts, twins = [], []
    for host in range(int(of_host.max()) + 1):
        mine = stage[of_host == host]
        seen = blocks.rows[mine][blocks.seen[mine]]
        if not seen.size:
            return None
        hosts.append(seen)
        inside = seen if blocks.width == 1 else blocks.rows[mine[0]][blocks.seen[mine[0]]]
        first = int(inside[0]) if inside.size else int(seen[0])
        second = int(inside[1]) if inside.size > 1 and blocks.width > 1 else first
        twins.append((first, second))
    return host_lags(stage_iterations.matrix, stage_iterations.rhythm, hosts, twins)


def _are_experts(stage_iterations: StageIterations, hosts: _Hosts) -> bool:
    """Return whether hosts, or RNICs of a host, move bytes as experts do that differ in popularity.

    Blocks of one host and stage that move different bytes serve other experts, unless they are the
    ends of a ring.
    """
    blocks = stage_iterations.blocks
    ends = unequal(blocks, np.arange(blocks.known.size)) >= MIN_UNEQUAL
    if blocks.unlike and hosts.width > 1 and not ends:
        return True
    uneven = [
        _uneven(tx, rx, of_host)
        for of_host, (tx, rx) in zip(hosts.of_stage, stage_iterations.pieces, strict=True)
    ]
    return 2 * sum(uneven) > len(uneven)


def _bursts(blocks: Blocks, stage: Labels, of_host: Labels) -> float:
    """Return in what share of the iteration hosts send and receive at once near the highest rate.

    Parameters
    ----------
    stage, of_host : blocks of the stage, and the host of each
    """
    known = blocks.known[stage]
    total = np.zeros((2, int(of_host.max()) + 1, blocks.tx.shape[1]))
    for out, rates in zip(total, (blocks.tx, blocks.rx), strict=True):
        np.add.at(out, of_host[known], rates[stage][known])
    both = total.mean(axis=1).min(axis=0)
    return float((both > BURST_LEVEL * both.max()).mean())


def _uneven(tx: Floats, rx: Floats, of_host: Labels) -> bool:
    """Return whether hosts send more in all than they receive, or less, by a lasting share.

    Popular experts do. Storage does as well, but not in each iteration.

    Parameters
    ----------
    tx, rx : (n_blocks, n_iterations, points), NaN where samples are missing
    of_host : (n_blocks,) a ring enters a host at one block and leaves it at another
    """
    n_hosts = int(of_host.max()) + 1
    sent, got = np.zeros((2, n_hosts, tx.shape[1]))
    np.add.at(sent, of_host, tx.sum(axis=2))
    np.add.at(got, of_host, rx.sum(axis=2))
    seen = ~np.isnan(sent + got).any(axis=0)
    if int(seen.sum()) < MIN_ITERATIONS:
        return True
    net = (sent - got)[:, seen]
    usual = np.median(net, axis=1, keepdims=True)
    # What experts of some hosts receive more, others send; of storage all receive alike.
    lasting = float(np.median(np.abs(usual - np.median(usual))))
    changing = float(np.median(np.abs(net - usual)))
    total = float(np.median((sent + got)[:, seen]))
    return lasting > max(MIN_IMBALANCE * total, LASTING * changing)


def positions(stages: list[Labels], groups: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    """Return the blocks at one place of their context groups, stage after stage."""
    at = {block: place for group in groups for place, block in enumerate(group)}
    size = len(groups[0])
    return [[int(b) for b in stage if at[int(b)] == c] for stage in stages for c in range(size)]


def inner_distances(inner: Inner) -> tuple[int, ...]:
    """Return the distances to pair along a group: EP groups are meshed, CP groups form a ring."""
    return tuple(range(1, min(inner.size, MAX_ALL) // 2 + 1)) if inner.kind == "ep" else (1,)
