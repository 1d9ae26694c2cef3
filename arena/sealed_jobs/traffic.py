"""Transfers of a job: when, how much, through which RNICs; and which pairs they join."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from arena.sealed_jobs.collectives import Pattern
from arena.sealed_jobs.fleet import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What flows at the same time in each iteration and unit.

    Attributes
    ----------
    rnics, tx, rx
        Shape (units, ports): ports and bytes per byte of payload.
    start, seconds, payload
        Shape (iterations, units): since the start of the iteration; bytes.
    """

    rnics: IntArray
    tx: FloatArray
    rx: FloatArray
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
        patterns: Sequence[Pattern],
        *,
        start: FloatArray,
        seconds: FloatArray,
        payload: FloatArray | float,
    ) -> None:
        """Add a transfer that happens in each iteration, with a pattern for each unit.

        Parameters
        ----------
        kind
            `dp`, `pp`, `ep` or `cp`.
        patterns
            One for each unit; those without pairs over the network carry nothing.
        start, seconds, payload
            Shape (iterations, units), or a payload for all.
        """
        ports = max(len(p.rnics) for p in patterns)
        if not ports:
            return
        for each in patterns:
            for source, destination in each.shares:
                self.kinds[min(source, destination), max(source, destination)].add(kind)
        self.transfers.append(
            Transfer(
                rnics=np.array([np.pad(p.rnics, (0, ports - len(p.rnics))) for p in patterns]),
                tx=np.array([np.pad(p.tx, (0, ports - len(p.tx))) for p in patterns]),
                rx=np.array([np.pad(p.rx, (0, ports - len(p.rx))) for p in patterns]),
                start=np.broadcast_to(start, (len(start), len(patterns))),
                seconds=np.broadcast_to(seconds, (len(start), len(patterns))),
                payload=np.broadcast_to(payload, (len(start), len(patterns))),
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
        np.add.at(tx, transfer.rnics, transfer.tx * payload)
        np.add.at(rx, transfer.rnics, transfer.rx * payload)
    return tx, rx
