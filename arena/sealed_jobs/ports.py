"""Bytes through each port over time, as sums of ramps on a fine grid.

A transfer moves bytes at an even rate. A port that is asked for more than its line rate queues the
rest. Bytes between two points of the grid flow evenly; totals are exact.
"""

import numpy as np

from arena.sealed_jobs.fleet import FloatArray, IntArray
from arena.sealed_jobs.runs import Run
from arena.sealed_jobs.traffic import Traffic, Transfer

MARGIN_S = 1.0
PENDING = 3_000_000


class Ports:
    """Changes of the rates of all ports, from a second before the capture to one after it.

    Parameters
    ----------
    rnics
        Number of RNICs.
    seconds
        Length of the capture.
    cell_s
        Distance of the points of the grid.
    """

    def __init__(self, rnics: int, seconds: float, cell_s: float) -> None:
        self.rnics, self.seconds, self.cell_s = rnics, seconds, cell_s
        self.cells = int(np.ceil((seconds + 2 * MARGIN_S) / cell_s)) + 1
        self._changes = np.zeros((2, rnics * (self.cells + 2)))
        self._places: list[IntArray] = []
        self._weights: list[tuple[FloatArray, FloatArray]] = []
        self._pending = 0

    def add_ramps(
        self,
        rnics: IntArray,
        *,
        start: FloatArray,
        end: FloatArray,
        tx: FloatArray,
        rx: FloatArray,
    ) -> None:
        """Add transfers.

        Parameters
        ----------
        rnics
            Number of the RNIC of each transfer.
        start, end
            Seconds since the start of the capture.
        tx, rx
            Bytes sent and received. All arrays have one shape.
        """
        span = np.maximum(end - start, 1e-6)
        low, high = -MARGIN_S, self.seconds + MARGIN_S
        first, last = np.clip(start, low, high), np.clip(start + span, low, high)
        inside = last > first
        rnics, first, last = rnics[inside], first[inside], last[inside]
        rates = tx[inside] / span[inside], rx[inside] / span[inside]
        for at, sign in ((first, 1.0), (last, -1.0)):
            place = (at + MARGIN_S) / self.cell_s
            cell = place.astype(np.int64)
            share = place - cell
            base = rnics * (self.cells + 2) + cell
            self._places += [base, base + 1]
            for part in (sign * (1 - share), sign * share):
                self._weights.append((rates[0] * part, rates[1] * part))
        self._pending += 4 * len(rnics)
        if self._pending > PENDING:
            self._flush()

    def add_run(self, run: Run) -> None:
        """Add all transfers of a job."""
        self._add_traffic(run.training, run.starts[None])
        if run.evaluation is not None:
            self._add_traffic(run.evaluation, run.evaluation_starts)

    def _add_traffic(self, traffic: Traffic, starts: FloatArray) -> None:
        """Add the transfers of iterations for each row of starts."""
        for row in starts:
            shown = np.isfinite(row)
            for transfer in traffic.transfers:
                self._add_transfer(transfer, row[shown], shown)

    def _add_transfer(self, transfer: Transfer, starts: FloatArray, shown: FloatArray) -> None:
        """Add a transfer of all iterations, units and ports."""
        ways = transfer.ways
        start = (transfer.start[shown] + starts[:, None])[:, :, None]
        end = start + transfer.seconds[shown][:, :, None]
        payload = transfer.payload[shown][:, :, None]
        shape = (*start.shape[:2], ways.rnics.shape[1])
        busy = np.broadcast_to((ways.tx + ways.rx > 0)[None], shape)
        self.add_ramps(
            np.broadcast_to(ways.rnics[None], shape)[busy],
            start=np.broadcast_to(start, shape)[busy],
            end=np.broadcast_to(end, shape)[busy],
            tx=(ways.tx[None] * payload)[busy],
            rx=(ways.rx[None] * payload)[busy],
        )

    def _flush(self) -> None:
        if not self._places:
            return
        places = np.concatenate(self._places)
        for way in range(2):
            weights = np.concatenate([w[way] for w in self._weights])
            size = self._changes.shape[1]
            self._changes[way] += np.bincount(places, weights, minlength=size)
        self._places, self._weights, self._pending = [], [], 0

    def times(self) -> FloatArray:
        """Return the points of the grid in seconds since the start of the capture."""
        return np.arange(self.cells, dtype=np.float64) * self.cell_s - MARGIN_S

    def carried(self, bytes_per_s: float) -> tuple[FloatArray, FloatArray]:
        """Return the bytes that each port has sent and received up to each point of the grid.

        Parameters
        ----------
        bytes_per_s
            Line rate; what is offered above it waits.

        Returns
        -------
        tuple of arrays
            Each of shape (rnics, cells), from 0 on.
        """
        self._flush()
        sent, received = (self._served(way, bytes_per_s) for way in range(2))
        return sent, received

    def _served(self, way: int, bytes_per_s: float) -> FloatArray:
        rates = np.cumsum(self._changes[way].reshape(self.rnics, -1)[:, : self.cells - 1], axis=1)
        offered = np.zeros((self.rnics, self.cells))
        np.cumsum(np.maximum(rates, 0.0) * self.cell_s, axis=1, out=offered[:, 1:])
        line = np.arange(self.cells) * (self.cell_s * bytes_per_s)
        served = np.minimum.accumulate(offered - line, axis=1) + line
        return np.asarray(np.maximum.accumulate(np.minimum(served, offered), axis=1))
