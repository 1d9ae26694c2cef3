"""The counters of the last minutes, as they come from the agents."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final

import numpy as np
import polars as pl

from schemas.records import CounterBatch
from skeleton_job.series import Ints, Unsigned

# A batch is a second of ticks; one that spans more is not ours.
MAX_BATCH_SPAN_NS: Final = 600 * 10**9
COLUMNS: Final = ("time_ns", "endpoint_id", "tx_bytes", "rx_bytes", "bits")


@dataclass(frozen=True, slots=True)
class _Batch:
    """Readings of one message; `code` numbers the endpoint."""

    end_ns: int
    time_ns: Ints
    code: Ints
    tx: Unsigned
    rx: Unsigned
    bits: Ints


@dataclass(slots=True)
class _Agent:
    latest_ns: int = 0
    batches: deque[_Batch] = field(default_factory=deque)


class CounterStore:
    """Holds `horizon_ns` of event time of each agent's readings."""

    def __init__(self, horizon_ns: int) -> None:
        self._horizon_ns = horizon_ns
        self._agents: dict[str, _Agent] = {}
        self._codes: dict[str, int] = {}

    def add(self, batch: CounterBatch) -> int:
        """Take a batch; return how many of its samples are of no use."""
        start_ns = batch.started_at * 1000
        rows = [
            (
                start_ns + s.tick_offset_ns + (s.read_delay_ns or 0),
                self._codes.setdefault(s.endpoint_id, len(self._codes)),
                s.tx_bytes,
                s.rx_bytes,
                s.counter_bits,
            )
            for s in batch.samples
            if s.tx_bytes is not None
            and s.rx_bytes is not None
            and s.tx_bytes >= 0
            and s.rx_bytes >= 0
            and 1 <= s.counter_bits <= 64
            and 0 <= s.tick_offset_ns <= MAX_BATCH_SPAN_NS
            and 0 <= (s.read_delay_ns or 0) <= MAX_BATCH_SPAN_NS
        ]
        useless = len(batch.samples) - len(rows)
        if not rows:
            return useless
        times, codes, tx, rx, bits = zip(*rows, strict=True)
        agent = self._agents.setdefault(batch.agent_id, _Agent())
        agent.batches.append(
            _Batch(
                end_ns=max(times),
                time_ns=np.array(times, dtype=np.int64),
                code=np.array(codes, dtype=np.int64),
                tx=np.array(tx, dtype=np.uint64),
                rx=np.array(rx, dtype=np.uint64),
                bits=np.array(bits, dtype=np.int64),
            )
        )
        agent.latest_ns = max(agent.latest_ns, *times)
        while agent.batches[0].end_ns < agent.latest_ns - self._horizon_ns:
            agent.batches.popleft()
        return useless

    def latest_ns(self, agents: Iterable[str]) -> int | None:
        """Return the time that half of these agents' readings have reached, None without any.

        The median: neither a dead agent nor one with a fast clock decides.
        """
        latest = [self._agents[a].latest_ns for a in agents if a in self._agents]
        return median_low(latest) if latest else None

    def frame(self, agents: Iterable[str], start_ns: int, end_ns: int) -> pl.DataFrame:
        """Return the readings of these agents as `series.rate_matrix` takes them.

        Whole batches that touch the time between start_ns and end_ns.
        """
        chosen = [
            b
            for a in sorted(set(agents))
            if a in self._agents
            for b in self._agents[a].batches
            if b.end_ns >= start_ns and b.time_ns[0] <= end_ns
        ]
        names = pl.Series("endpoint_id", list(self._codes), dtype=pl.Enum(list(self._codes)))

        def column(of: Callable[[_Batch], Ints | Unsigned], kind: type) -> np.ndarray:
            parts = [of(b) for b in chosen]
            return np.concatenate(parts) if parts else np.empty(0, dtype=kind)

        return pl.DataFrame(
            {
                "time_ns": column(lambda b: b.time_ns, np.int64),
                "endpoint_id": names.gather(column(lambda b: b.code, np.int64)),
                "tx_bytes": column(lambda b: b.tx, np.uint64),
                "rx_bytes": column(lambda b: b.rx, np.uint64),
                "bits": column(lambda b: b.bits, np.int64),
            }
        )
