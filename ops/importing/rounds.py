"""Imported rows to rounds: one per source and interval, as an agent would have sent them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from ops.importing.csv import BadRow, Row
from schemas.records import ProbeResult, ProbeRound
from schemas.units import US_NS

# How far a source's rows may be out of order before a round is taken for complete.
DISORDER_NS: Final = 10 * 10**9
# Rows held back, of all sources together: some 500 MB.
MAX_OPEN_ROWS: Final = 500_000
# The schema's bound for one round.
MAX_RESULTS: Final = 65_536
# Each flow of a pair has its own detectors; source ports that change with every
# probe would make one for each probe.
MAX_FLOWS: Final = 64


@dataclass(slots=True)
class _Source:
    """One agent in the making; times are nanoseconds since the epoch."""

    host_id: str
    incarnation: int
    slots: dict[int, list[Row]]
    latest_ns: int = 0
    rounds: int = 0


class RoundBuilder:
    """Groups rows by source and interval; memory is bounded.

    Parameters
    ----------
    cluster
        Cluster that the rounds name.
    interval_ns
        Length of a round, nanoseconds; rounds start at its multiples.
    flow_by
        `pair`: all probes of a pair are one flow. `src_port`: one flow for each
        source port of a pair, numbered in order of appearance.
    """

    def __init__(
        self,
        *,
        cluster: str,
        interval_ns: int,
        flow_by: Literal["pair", "src_port"] = "pair",
        version: str | None = None,
        disorder_ns: int = DISORDER_NS,
        max_open_rows: int = MAX_OPEN_ROWS,
    ) -> None:
        self._cluster = cluster
        self._interval_ns = interval_ns
        self._flow_by = flow_by
        self._version = version
        self._disorder_ns = disorder_ns
        self._max_open_rows = max_open_rows
        self._sources: dict[str, _Source] = {}
        self._flows: dict[tuple[str, str], dict[str, int]] = {}
        self._open_rows = 0
        self._latest_ns = 0
        self.disordered = 0

    def add_row(self, row: Row) -> tuple[list[ProbeRound], BadRow | None]:
        """Take a row; return the rounds that it completes, and what is wrong with it."""
        if self._flow(row) is None:
            rule = f"more than {MAX_FLOWS} source ports of one pair; --flow-by pair ignores them"
            return [], BadRow(row.line, "src_port", row.src_port or "", rule)
        source = self._sources.get(row.agent_id)
        if source is None:
            source = self._sources[row.agent_id] = _Source(row.host_id, row.sent_ns, {})
        # What a worker would call late: it went by the largest time of all sources.
        self.disordered += row.sent_ns < self._latest_ns - self._disorder_ns
        self._latest_ns = max(self._latest_ns, row.sent_ns)
        source.latest_ns = max(source.latest_ns, row.sent_ns)
        source.slots.setdefault(row.sent_ns // self._interval_ns, []).append(row)
        self._open_rows += 1
        done = list(self._complete(row.agent_id, source.latest_ns - self._disorder_ns))
        if self._open_rows > self._max_open_rows:
            done += self.flush()
        return done, None

    def flush(self) -> list[ProbeRound]:
        """Return all rounds that are still open, by time."""
        rounds = [r for agent_id in self._sources for r in self._complete(agent_id, 2**63)]
        return sorted(rounds, key=lambda r: (r.started_at, r.agent_id))

    def _flow(self, row: Row) -> int | None:
        if self._flow_by == "pair" or row.src_port is None:
            return 0
        ports = self._flows.setdefault((row.src, row.dst), {})
        if row.src_port not in ports and len(ports) >= MAX_FLOWS:
            return None
        return ports.setdefault(row.src_port, len(ports))

    def _complete(self, agent_id: str, before_ns: int) -> Iterator[ProbeRound]:
        source = self._sources[agent_id]
        ripe = sorted(s for s in source.slots if (s + 1) * self._interval_ns <= before_ns)
        for slot in ripe:
            rows = sorted(source.slots.pop(slot), key=lambda row: (row.sent_ns, row.line))
            self._open_rows -= len(rows)
            started_ns = slot * self._interval_ns
            results = [r for row in rows for r in row.results(self._flow(row) or 0, started_ns)]
            for first in range(0, len(results), MAX_RESULTS):
                part = results[first : first + MAX_RESULTS]
                yield self._round(agent_id, source, started_ns, part)

    def _round(
        self, agent_id: str, source: _Source, started_ns: int, results: list[ProbeResult]
    ) -> ProbeRound:
        source.rounds += 1
        return ProbeRound(
            cluster=self._cluster,
            agent_id=agent_id,
            host_id=source.host_id,
            incarnation=source.incarnation,
            round_seq=source.rounds - 1,
            started_at=started_ns // US_NS,
            interval_ns=self._interval_ns,
            producer_version=self._version,
            results=tuple(results),
        )
