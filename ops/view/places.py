"""Where endpoints stand in the network: pod, leaf, rail and host, in the order of the topology.

A *pod* is what is joined below the top tier of switches: leaves with the hosts that they serve, in
a network of three tiers with the spines above them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas.columns.arrays import Int32s
from schemas.enums import ComponentKind
from schemas.records import Component, Endpoint
from skeleton_job.job import NaturalKey, natural_key

if TYPE_CHECKING:
    from ops.view.cluster import ClusterView

# Where records do not say.
NO_LEAF: Final = "leaf not known"
NO_POD: Final = "pod not known"
# Endpoints of `<container>/r<rail>` without a rail in their name stand behind all others.
NO_RAIL: Final = 2**31


@dataclass(frozen=True, slots=True)
class Places:
    """All endpoints in the order of the topology.

    Attributes
    ----------
    endpoints, leaves, pods
        Names, in order: by pod, leaf, rail, host.
    leaf_of, pod_of
        Of each endpoint: places in `leaves` and `pods`.
    of_end
        Where each end of `FlowWindows.ends` stands in `endpoints`.
    rnic_of
        RNIC of each endpoint, where it is known.
    """

    endpoints: tuple[str, ...]
    leaves: tuple[str, ...]
    pods: tuple[str, ...]
    leaf_of: Int32s
    pod_of: Int32s
    of_end: Int32s
    rnic_of: Mapping[str, str]
    pod_of_switch: Mapping[str, str]


class PlaceBook:
    """The places of a view, found anew when what they depend on has changed."""

    def __init__(self) -> None:
        self._known: tuple[tuple[int, ...], Places] | None = None

    def of(self, view: "ClusterView") -> Places:
        """Return where the endpoints of a view stand."""
        windows = view.flow_windows
        basis = (
            view.records["topology.v1"],
            view.records["endpoint.v1"],
            windows.generation,
            len(windows.ends),
        )
        if self._known is None or self._known[0] != basis:
            self._known = basis, places(view.topology.values(), view.endpoints, windows.ends)
        return self._known[1]

    def copy(self) -> "PlaceBook":
        """Return a book that knows the same."""
        other = PlaceBook()
        other._known = self._known
        return other


def places(
    topology: Iterable[Component], endpoints: Mapping[str, Endpoint], ends: Sequence[str]
) -> Places:
    """Find where the registered endpoints, and the ends of 5-tuples, stand.

    Parameters
    ----------
    topology
        All components.
    endpoints
        Registered endpoints by id.
    ends
        Ends of 5-tuples, registered or not.
    """
    holder: dict[str, str] = {}
    tier: dict[str, int] = {}
    links: list[tuple[str, str]] = []
    ids: set[str] = set()
    for component in topology:
        ids.add(component.component_id)
        if component.kind is ComponentKind.LINK:
            if component.a is not None and component.b is not None:
                links.append((component.a, component.b))
        elif component.kind is ComponentKind.SWITCH:
            tier[component.component_id] = component.tier or 0
        elif component.parent is not None:
            holder[component.component_id] = component.parent
    leaf_at: dict[str, str] = {}
    for a, b in links:
        for end, other in ((a, b), (b, a)):
            # An RNIC with two leaves stands at the first.
            if tier.get(other) == 0 and end not in tier:
                leaf_at[end] = min(other, leaf_at.get(end, other))
    pods = _pods(holder, tier, links)
    found = []
    rnic_of = {}
    for name in {*endpoints, *ends}:
        known = endpoints.get(name)
        rnic = holder.get(name)
        rail = None if known is None else known.rail
        if rail is None:
            after = name.rpartition("/r")[2]
            rail = int(after) if after.isdecimal() and len(after) < 9 else NO_RAIL
        if rnic is None and known is not None:
            rnic = f"rnic:{known.host_id}/r{known.rail}"
        host = holder.get(rnic or "", "" if known is None else known.host_id)
        leaf = leaf_at.get(rnic or "")
        if rnic in ids:
            rnic_of[name] = rnic
        found.append((leaf, rail, host, name))
    return _ordered(found, ends, pods, rnic_of)


def _ordered(
    found: list[tuple[str | None, int, str, str]],
    ends: Sequence[str],
    pod_of_switch: dict[str, str],
    rnic_of: Mapping[str, str],
) -> Places:
    keys: dict[str, NaturalKey] = {}

    def key(name: str) -> NaturalKey:
        if name not in keys:
            keys[name] = natural_key(name)
        return keys[name]

    leaves = sorted(
        {leaf for leaf, *_ in found if leaf is not None},
        key=lambda leaf: (key(pod_of_switch.get(leaf, "")), key(leaf)),
    )
    leaf_place = {leaf: place for place, leaf in enumerate(leaves)}
    unknown = len(leaves)
    pods = list(dict.fromkeys(pod_of_switch.get(leaf, NO_POD) for leaf in leaves))
    if any(leaf is None for leaf, *_ in found):
        leaves.append(NO_LEAF)
        pods += [NO_POD] if NO_POD not in pods else []
    pod_place = {pod: place for place, pod in enumerate(pods)}
    pod_of_leaf = [pod_place[pod_of_switch.get(leaf, NO_POD)] for leaf in leaves]
    ordered = sorted(
        (unknown if leaf is None else leaf_place[leaf], rail, key(host), key(name), name)
        for leaf, rail, host, name in found
    )
    names = tuple(name for *_, name in ordered)
    leaf_of = np.fromiter((leaf for leaf, *_ in ordered), np.int32, len(ordered))
    index = {name: place for place, name in enumerate(names)}
    return Places(
        endpoints=names,
        leaves=tuple(leaves),
        pods=tuple(pods),
        leaf_of=leaf_of,
        pod_of=np.array(pod_of_leaf, np.int32)[leaf_of] if ordered else leaf_of,
        of_end=np.fromiter((index[end] for end in ends), np.int32, len(ends)),
        rnic_of=rnic_of,
        pod_of_switch=pod_of_switch,
    )


def _pods(
    holder: Mapping[str, str], tier: Mapping[str, int], links: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return the name of the pod of each switch below the top tier.

    A network without a tier above the leaves is all of one pod.
    """
    top = max(tier.values(), default=0)
    joined: dict[str, str] = {}

    def root(name: str) -> str:
        at = name
        while joined.setdefault(at, at) != at:
            joined[at] = joined[joined[at]]
            at = joined[at]
        return at

    for a, b in links:
        if top and top in (tier.get(a), tier.get(b)):
            continue
        # RNICs of one host join its leaves.
        ends = [end if end in tier else holder.get(end, end) for end in (a, b)]
        joined[root(ends[0])] = root(ends[1])
    members: dict[str, list[str]] = {}
    for switch, level in tier.items():
        if level < top or not top:
            members.setdefault(root(switch), []).append(switch)
    named: dict[str, list[list[str]]] = {}
    for switches in members.values():
        leaves = sorted((s for s in switches if tier[s] == 0), key=natural_key)
        named.setdefault(_pod_name(leaves or switches), []).append(switches)
    found: dict[str, str] = {}
    for name, pods in named.items():
        for switches in pods:
            # A name that two pods would have says nothing: each goes by its first leaf.
            own = name if len(pods) == 1 else min(switches, key=natural_key)
            found |= dict.fromkeys(switches, own)
    return found


def _pod_name(leaves: Sequence[str]) -> str:
    """Return what the names of the leaves have in common; `leaf:p0-0`, `leaf:p0-1`: `leaf:p0`.

    >>> _pod_name(["leaf:p0-0", "leaf:p0-1"]), _pod_name(["tor-7"]), _pod_name(["a1", "b1"])
    ('leaf:p0', 'tor-7', 'a1')
    """
    if len(leaves) == 1:
        return leaves[0]
    # What the first and the last in the order of the alphabet share, all between them share.
    first, last = min(leaves), max(leaves)
    common = first
    while not last.startswith(common):
        common = common[:-1]
    while common and common[-1].isalnum():
        common = common[:-1]
    return common.rstrip("-_.:/") or leaves[0]
