"""Baselines of skeleton inference, as their descriptions allow.

* `published`: the pipeline as printed (SIGCOMM 2025): throughput at 1 s, the magnitude of its
  short-time Fourier transform, hierarchical clustering with average linkage; equal groups whose
  size divides the number of RNICs, none with two of a host; stages in the order of their first
  burst. All pairs inside a group, and neighbours in the pipeline, are probed.
* `rail-mesh`: every pair on one rail: the list that needs no inference.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.signal import stft

from arena.workload.capture import Capture
from schemas.columns.arrays import Floats
from skeleton_job.offline.meta import parse_meta
from skeleton_job.offline.table import infer_table

Document = Mapping[str, Any]
STEP_NS: Final = 10**9
WINDOW_S: Final = 64
IDLE_BYTES_PER_S: Final = 125_000.0


def ours(made: Capture) -> Document:
    """Return what `skeleton infer` says."""
    return infer_table(made.table, parse_meta(made.meta))


def rail_mesh(made: Capture) -> Document:
    """Return all pairs on one rail, per known task or over all RNICs."""
    pairs = []
    for rnics in _tasks(made):
        rails: dict[int, list[str]] = {}
        for host, rail in rnics:
            rails.setdefault(rail, []).append(host)
        pairs += [
            [a, rail, b, rail]
            for rail, hosts in rails.items()
            for i, a in enumerate(hosts)
            for b in hosts[i + 1 :]
        ]
    return {"ping_list": pairs, "tasks": []}


def published(made: Capture) -> Document:
    """Return what the published pipeline infers."""
    series = _throughput(made)
    pairs: list[list[Any]] = []
    tasks = []
    for known in _tasks(made):
        rows = np.array([series[p] for p in known])
        busy = rows.mean(axis=1) > IDLE_BYTES_PER_S
        rnics = [p for p, b in zip(known, busy, strict=True) if b]
        if len({h for h, _ in rnics}) < 2:
            continue
        groups = _groups(rnics, rows[busy])
        stages = sorted({g for g, _ in groups}, key=lambda g: _burst(rows[busy], groups, g))
        members: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for place, group in zip(rnics, groups, strict=True):
            members.setdefault(group, []).append(place)
        listed = [[*a, *b] for m in members.values() for i, a in enumerate(m) for b in m[i + 1 :]]
        for here, there in pairwise(stages):
            for (stage, rail), m in members.items():
                if stage == here:
                    listed += [
                        [*a, *b]
                        for a, b in zip(m, members.get((there, rail), []), strict=False)
                        if a[0] != b[0]
                    ]
        pairs += listed
        dp = len(rnics) // max(1, len(members))
        tasks.append(
            {
                "rnics": [list(p) for p in rnics], "dp": dp, "pp": len(stages),
                "tp": len(rnics) // max(1, dp * len(stages)), "ep": 1, "cp": 1,
                "confidence": 1.0,
                "stages": [[p for p, g in zip(rnics, groups, strict=True) if g[0] == s]
                           for s in stages],
            }
        )  # fmt: skip
    return {"ping_list": pairs, "tasks": tasks}


BASELINES: Final[Mapping[str, Callable[[Capture], Document]]] = {
    "ours": ours,
    "published": published,
    "rail-mesh": rail_mesh,
}


def _tasks(made: Capture) -> list[list[tuple[str, int]]]:
    if "tasks" in made.meta:
        return [[(h, r) for h, r in t["rnics"]] for t in made.meta["tasks"]]
    return [made.table.select("host", "rail").unique().sort("host", "rail").rows()]


def _throughput(made: Capture) -> dict[tuple[str, int], Floats]:
    """Return bytes per second of each RNIC, both directions, in bins of 1 s."""
    times = made.table["time_ns"]
    stamps = times.to_numpy()
    edges = np.arange(stamps.min(), stamps.max(), STEP_NS, dtype=np.int64)
    bits = made.meta["counter"]["bits"]
    out = {}
    for key, part in made.table.sort("time_ns").partition_by(
        "host", "rail", as_dict=True
    ).items():  # fmt: skip
        total = np.zeros(edges.size)
        for name in ("tx_bytes", "rx_bytes"):
            step = np.diff(part[name].to_numpy()) & np.uint64(2**bits - 1)
            moved = np.where(step > np.uint64(2**40), 0.0, step.astype(np.float64))
            total += np.interp(
                edges, part["time_ns"].to_numpy(), np.concatenate([[0.0], np.cumsum(moved)])
            )
        out[str(key[0]), int(key[1])] = np.diff(total)
    return out


def _groups(rnics: list[tuple[str, int]], rows: Floats) -> list[tuple[int, int]]:
    """Return (cluster, rail) of each RNIC: the cut whose sizes vary least, then the clearest."""
    span = min(WINDOW_S, rows.shape[1])
    features = np.abs(stft(rows - rows.mean(axis=1, keepdims=True), nperseg=span)[2]).mean(axis=-1)
    tree = linkage(features, "average")
    heights = np.concatenate([[0.0], tree[:, 2]])
    n = len(rnics)
    hosts = len({h for h, _ in rnics})
    best = (np.inf, 0.0, np.ones(n, dtype=np.int64))
    for count in (k for k in range(1, hosts + 1) if n % k == 0):
        labels = fcluster(tree, count, "maxclust").astype(np.int64)
        variance = float(np.var(np.bincount(labels)[1:]))
        gap = float(heights[n - count + 1] - heights[n - count]) if count > 1 else 0.0
        if (variance, -gap) < best[:2]:
            best = (variance, -gap, labels)
    return [(int(c), r) for c, (_, r) in zip(best[2], rnics, strict=True)]


def _burst(rows: Floats, groups: list[tuple[int, int]], stage: int) -> float:
    """Return when a cluster's mean throughput first rises above half of its largest."""
    mean = rows[[g == stage for g, _ in groups]].mean(axis=0)
    return float(np.argmax(mean > 0.5 * mean.max()))
