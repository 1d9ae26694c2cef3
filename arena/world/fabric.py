"""The physical network: a rail-optimised Clos, and the path of each 5-tuple through it.

A host has one RNIC on each rail. In a segment (hosts that share their top-of-rack
switches) every rail has a ToR of its own, or a pair of them. Two tiers: every ToR
is joined to every spine. Three tiers: segments form pods; a pod's ToRs are joined to
its aggregation switches, and the aggregation switches of one plane, one of each pod,
to the cores of that plane. (The shape of Alibaba HPN, SIGCOMM 2024, and of Meta's and
ByteDance's published training clusters.)

Components are numbered; paths are arrays of numbers, so that a million 5-tuples are
routed at once. Everything follows from the shape: the same on every machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arena.world.topology import Cable, component, host_id, link_id, rnic_id, spine_id
from schemas.columns.arrays import Int64s
from schemas.enums import ComponentKind
from schemas.records import Component

Words = NDArray[np.uint64]

# The increment of SplitMix64: successive multiples share few bits.
GOLDEN_GAMMA: Final = 0x9E3779B97F4A7C15

# RNIC, cable, ToR, cable, aggregation, cable, core, and down again.
MAX_CROSSED: Final = 13
NOWHERE: Final = -1
# 40,000 RNICs are the published cluster; ten times that is beyond what fits a run.
MAX_RNICS: Final = 400_000
MAX_RAILS: Final = 16
MAX_SWITCHES_OF_A_SORT: Final = 1024


class FabricError(ValueError):
    """A shape that cannot be built; the message names every parameter that is wrong."""


@dataclass(frozen=True, kw_only=True)
class FabricShape:
    """Sizes of a fabric.

    Attributes
    ----------
    hosts : hosts; each has one RNIC on every rail
    rails : RNICs of a host
    segment_hosts : hosts that share their ToRs
    tors : ToRs of one segment and rail: 1, or 2 that a bonded RNIC is joined to both
    tiers : 2, or 3
    spines : switches above the ToRs: of the fabric with two tiers, of each pod with three
    pod_segments : segments of a pod, with three tiers
    plane_cores : cores of a plane, with three tiers

    Raises
    ------
    FabricError
        If a number is out of its bounds.
    """

    hosts: int = 8
    rails: int = 8
    segment_hosts: int = 4
    tors: int = 1
    tiers: int = 2
    spines: int = 4
    pod_segments: int = 2
    plane_cores: int = 2

    def __post_init__(self) -> None:
        wrong = [
            f"{name}={value}: {low} to {high}"
            for name, value, low, high in (
                ("hosts", self.hosts, 1, MAX_RNICS),
                ("rails", self.rails, 1, MAX_RAILS),
                ("segment_hosts", self.segment_hosts, 1, max(1, self.hosts)),
                ("tors", self.tors, 1, 2),
                ("tiers", self.tiers, 2, 3),
                ("spines", self.spines, 1, MAX_SWITCHES_OF_A_SORT),
                ("pod_segments", self.pod_segments, 1, MAX_SWITCHES_OF_A_SORT),
                ("plane_cores", self.plane_cores, 1, MAX_SWITCHES_OF_A_SORT),
            )
            if not low <= value <= high
        ]
        if self.hosts * self.rails > MAX_RNICS:
            wrong.append(f"hosts × rails={self.hosts * self.rails}: at most {MAX_RNICS} RNICs")
        if wrong:
            raise FabricError("; ".join(wrong))

    def as_dict(self) -> dict[str, int]:
        """Return the parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def rnics(self) -> int:
        """RNICs of all hosts."""
        return self.hosts * self.rails

    @property
    def segments(self) -> int:
        """Segments; the last may have fewer hosts."""
        return -(-self.hosts // self.segment_hosts)

    @property
    def pods(self) -> int:
        """Pods; one with two tiers."""
        return 1 if self.tiers == 2 else -(-self.segments // self.pod_segments)


@dataclass(frozen=True)
class Fabric:
    """Names, numbers and routes of a fabric's components.

    Numbers run RNICs, ToRs, spines (or aggregation switches), cores, then the cables
    RNIC–ToR, ToR–spine, spine–core.
    """

    shape: FabricShape

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        s = self.shape
        tors = s.segments * s.rails * s.tors
        spines = s.pods * s.spines
        cores = s.spines * s.plane_cores if s.tiers == 3 else 0
        sizes = (s.rnics, tors, spines, cores, s.rnics * s.tors, tors * s.spines,
                 spines * s.plane_cores if s.tiers == 3 else 0)  # fmt: skip
        return tuple(int(n) for n in np.cumsum((0, *sizes)))

    def __len__(self) -> int:
        return self._starts[-1]

    def numbers(self, sort: int) -> range:
        """Return the numbers of one sort of component, 0 to 6 in the order of the class."""
        return range(self._starts[sort], self._starts[sort + 1])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Component ids by number."""
        return tuple(self._names())

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Numbers by component id."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def ends(self) -> Int64s:
        """The two ends of each cable, shape (cables, 2), in the order of the numbers."""
        s = self.shape
        rnic, tor, spine, core, *_ = self._starts
        rnics, tors = np.arange(s.rnics), np.arange(self._starts[2] - tor)
        up = np.stack(
            [
                np.repeat(rnic + rnics, s.tors),
                tor + (self._tor(rnics)[:, None] + np.arange(s.tors)).ravel(),
            ],
            axis=1,
        )
        pod = self._pod_of_tor(tors)
        middle = np.stack(
            [
                np.repeat(tor + tors, s.spines),
                spine + (pod[:, None] * s.spines + np.arange(s.spines)).ravel(),
            ],
            axis=1,
        )
        if s.tiers == 2:
            return np.concatenate([up, middle])
        spines = np.arange(self._starts[3] - spine)
        plane = spines % s.spines
        top = np.stack(
            [
                np.repeat(spine + spines, s.plane_cores),
                core + (plane[:, None] * s.plane_cores + np.arange(s.plane_cores)).ravel(),
            ],
            axis=1,
        )
        return np.concatenate([up, middle, top])

    def paths(self, src: Int64s, dst: Int64s, entropy: Int64s) -> Int64s:
        """Return what 5-tuples cross, in order.

        Parameters
        ----------
        src, dst
            RNIC numbers, shape (n,).
        entropy
            What tells the 5-tuples of a pair apart (the UDP source port), shape (n,).

        Returns
        -------
        ndarray
            Component numbers, shape (n, 13), padded by -1: from the sending RNIC to the
            receiving one, both included.
        """
        s = self.shape
        _, tor0, spine0, core0, up0, mid0, top0, _ = self._starts
        mixed = _mix(src, dst, entropy)
        tor_a = self._tor(src) + _choice(mixed, 1, s.tors)
        tor_b = self._tor(dst) + _choice(mixed, 2, s.tors)
        # A ToR that serves both is used for both; a bond's hash is not asked twice.
        shared = self._tor(src) == self._tor(dst)
        tor_b = np.where(shared, tor_a, tor_b)
        plane = _choice(mixed, 3, s.spines)
        spine_a = self._pod_of_tor(tor_a) * s.spines + plane
        spine_b = self._pod_of_tor(tor_b) * s.spines + plane
        way = np.full((len(src), MAX_CROSSED), NOWHERE, np.int64)
        way[:, 0] = src
        way[:, 1] = up0 + src * s.tors + tor_a - self._tor(src)
        way[:, 2] = tor0 + tor_a
        down = up0 + dst * s.tors + tor_b - self._tor(dst)
        way[shared, 3], way[shared, 4] = down[shared], dst[shared]
        near = ~shared & (spine_a == spine_b)
        far = ~shared & ~near
        over = ~shared
        way[over, 3] = (mid0 + tor_a * s.spines + plane)[over]
        way[over, 4] = (spine0 + spine_a)[over]
        ends = np.stack([mid0 + tor_b * s.spines + plane, tor0 + tor_b, down, dst], axis=1)
        way[near, 5:9] = ends[near]
        if far.any():
            core = _choice(mixed, 4, s.plane_cores)
            way[far, 5] = (top0 + spine_a * s.plane_cores + core)[far]
            way[far, 6] = (core0 + plane * s.plane_cores + core)[far]
            way[far, 7] = (top0 + spine_b * s.plane_cores + core)[far]
            way[far, 8] = (spine0 + spine_b)[far]
            way[far, 9:13] = ends[far]
        way[src == dst, 1:] = NOWHERE
        return way

    def components(self, cluster: str, updated_at: int) -> Iterator[Component]:
        """Yield what `topology.v1` says of the fabric: hosts, RNICs, switches, cables."""
        names = self.names
        for host in range(self.shape.hosts):
            yield component(cluster, host_id(host), ComponentKind.HOST, updated_at)
        for number in self.numbers(0):
            yield component(
                cluster, names[number], ComponentKind.RNIC, updated_at,
                parent=host_id(number // self.shape.rails), address=address(number),
            )  # fmt: skip
        for tier, sort in enumerate((1, 2, 3)):
            for number in self.numbers(sort):
                yield component(
                    cluster, names[number], ComponentKind.SWITCH, updated_at,
                    tier=tier, address=address(number),
                )  # fmt: skip
        for a, b in self.ends.tolist():
            cable = Cable.between(names[a], names[b])
            yield component(cluster, cable.link_id, ComponentKind.LINK, updated_at, cable=cable)

    def _tor(self, rnic: Int64s) -> Int64s:
        """Return the first ToR of each RNIC, counted from the first ToR."""
        s = self.shape
        segment, rail = rnic // s.rails // s.segment_hosts, rnic % s.rails
        first: Int64s = (segment * s.rails + rail) * s.tors
        return first

    def _pod_of_tor(self, tor: Int64s) -> Int64s:
        s = self.shape
        if s.tiers == 2:
            return np.zeros_like(tor)
        pod: Int64s = tor // (s.rails * s.tors) // s.pod_segments
        return pod

    def _names(self) -> Iterator[str]:
        s = self.shape
        nodes = [rnic_id(*divmod(n, s.rails)) for n in range(s.rnics)]
        for tor in range(self._starts[2] - self._starts[1]):
            place, twin = divmod(tor, s.tors)
            segment, rail = divmod(place, s.rails)
            nodes.append(f"leaf:s{segment}-r{rail}" + ("ab"[twin] if s.tors == 2 else ""))
        for spine in range(self._starts[3] - self._starts[2]):
            pod, plane = divmod(spine, s.spines)
            nodes.append(spine_id(plane) if s.tiers == 2 else f"agg:p{pod}-{plane}")
        for core in range(self._starts[4] - self._starts[3]):
            plane, number = divmod(core, s.plane_cores)
            nodes.append(f"core:{plane}-{number}")
        yield from nodes
        for a, b in self.ends.tolist():
            yield link_id(nodes[a], nodes[b])


def address(number: int) -> str:
    """Return the address with which a component answers traces; unique below 2^24."""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _mix(src: Int64s, dst: Int64s, entropy: Int64s) -> Words:
    """Return 64 well mixed bits of a 5-tuple (the finaliser of SplitMix64, Steele et al. 2014)."""
    words: Words = src.astype(np.uint64) << np.uint64(40)
    words ^= dst.astype(np.uint64) << np.uint64(16)
    words ^= entropy.astype(np.uint64)
    return _finalise(words)


def _choice(mixed: Words, stage: int, count: int) -> Int64s:
    """Return which of `count` equal ways a switch takes; each stage hashes by its own seed."""
    seed = np.uint64(stage * GOLDEN_GAMMA % 2**64)
    return (_finalise(mixed + seed) % np.uint64(count)).astype(np.int64)


def _finalise(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
