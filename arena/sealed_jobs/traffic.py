"""Transfers of a job: when, how much, through which RNICs; and which pairs they join."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from arena.sealed_jobs.collectives import Pattern
from arena.sealed_jobs.fleet import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Patterns of all units, one below the other.

    Attributes
    ----------
    rnics, tx, rx
        Shape (units, ports): ports and bytes per byte of payload; 0 where a unit has fewer ports.
    pairs
        Unordered pairs of RNICs that exchange bytes, the smaller number first.
    peak
        Bytes per byte of payload through the busiest port in its busier direction.
    """

    rnics: IntArray
    tx: FloatArray
    rx: FloatArray
    pairs: frozenset[tuple[int, int]]
    peak: float


def bundle(patterns: Sequence[Pattern], *, bursts: int = 1) -> Bundle:
    """Put the patterns of units together, repeated for each of several bursts."""
    ports = max(len(p.rnics) for p in patterns)
    repeated = [*patterns] * bursts
    return Bundle(
        rnics=np.array([np.pad(p.rnics, (0, ports - len(p.rnics))) for p in repeated]),
        tx=np.array([np.pad(p.tx, (0, ports - len(p.tx))) for p in repeated]),
        rx=np.array([np.pad(p.rx, (0, ports - len(p.rx))) for p in repeated]),
        pairs=frozenset((min(p), max(p)) for each in patterns for p in each.shares),
        peak=max(p.peak for p in patterns),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What flows at the same time in each iteration and unit.

    Attributes
    ----------
    ways
        Through which ports, and how much per byte of payload.
    start, seconds, payload
        Shape (iterations, units): since the start of the iteration; bytes.
    """

    ways: Bundle
    start: FloatArray
    seconds: FloatArray
    payload: FloatArray


@dataclass(slots=True)
class Traffic:
    """All transfers of the iterations of a job.

    Attributes
    ----------
    kinds
        Unordered pair of RNICs, the smaller number first → kinds of traffic between them.
    seconds
        How long each iteration lasts; shape (iterations,).
    """

    transfers: list[Transfer] = field(default_factory=list)
    kinds: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    seconds: FloatArray = field(default_factory=lambda: np.zeros(0))

    def add_transfer(
        self,
        kind: str,
        ways: Bundle,
        *,
        start: FloatArray,
        seconds: FloatArray,
        payload: FloatArray | float,
    ) -> None:
        """Add a transfer that happens in each iteration; nothing without ports.

        Parameters
        ----------
        kind
            `dp`, `pp`, `ep` or `cp`.
        ways
            Through which ports, for each unit.
        start, seconds, payload
            Shape (iterations, units), or a payload for all.
        """
        if not ways.peak:
            return
        for pair in ways.pairs:
            self.kinds[pair].add(kind)
        shape = (len(start), len(ways.rnics))
        self.transfers.append(
            Transfer(
                ways=ways,
                start=np.broadcast_to(start, shape),
                seconds=np.broadcast_to(seconds, shape),
                payload=np.broadcast_to(payload, shape),
            )
        )


def bytes_each_way(traffic: Traffic, rnics: int) -> tuple[FloatArray, FloatArray]:
    """Return what each RNIC sends and receives in all iterations together.

    Returns
    -------
    tuple of arrays
        Bytes sent and received, each of shape (rnics,).
    """
    tx, rx = np.zeros(rnics), np.zeros(rnics)
    for transfer in traffic.transfers:
        payload = transfer.payload.sum(axis=0)[:, None]
        np.add.at(tx, transfer.ways.rnics, transfer.ways.tx * payload)
        np.add.at(rx, transfer.ways.rnics, transfer.ways.rx * payload)
    return tx, rx
