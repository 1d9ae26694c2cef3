"""What all agents of a cluster measure in one second: rounds of probes, as they publish them.

An agent probes each of its targets once a round and 5-tuple, sends a lost probe again at
once, twice, on the same 5-tuple, and publishes the round (`probers.rounds`). All 5-tuples
of the cluster are drawn at once; only the records are made one by one.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from arena.cluster import Cluster, agent_id, endpoint_id, host_id
from arena.effects import Bools, Weather
from arena.fabric import Ints
from arena.hosts import Hosts, Trouble
from arena.latency import RoundTrips

SECOND_NS: Final = 10**9
US_NS: Final = 1_000
# As the agents' configuration has them by default.
TIMEOUT_NS: Final = 500_000_000
CONFIRM: Final = 2
SPREAD_NS: Final = 800_000_000
PROBER_DELAY_NS: Final = 4_000
RESPONDER_DELAY_NS: Final = 3_000
# Share of a busy host's own delay that its completion timestamps hide badly.
LEAK: Final = 0.3


@dataclass(frozen=True, slots=True)
class Measured:
    """First probes of a second, columns of one length: 5-tuple, when sent, answered, round trip."""

    flow: Ints
    sent_ns: Ints
    ok: Bools
    rtt_ns: Ints


class Agents:
    """The agents of a cluster.

    Parameters
    ----------
    name
        Of the cluster.
    """

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        weather: Weather,
        hosts: Hosts,
        *,
        trips: RoundTrips,
        rng: np.random.Generator,
    ) -> None:
        self._name = name
        self._weather = weather
        self._hosts = hosts
        self._trips = trips
        self._rng = rng
        flows = cluster.flows
        self._flows = flows
        self._host = cluster.host_of(flows.src)
        self._dst_host = cluster.host_of(flows.dst)
        count = cluster.fabric.shape.hosts
        self.phase_ns: Ints = rng.integers(0, SECOND_NS, count)
        # Flows are sorted by host: each agent's stand together, and so do their offsets.
        first = np.searchsorted(self._host, np.arange(count + 1))
        place = np.arange(len(flows)) - first[self._host]
        share = np.maximum(np.diff(first), 1)[self._host]
        self._offset_ns: Ints = place * SPREAD_NS // share
        self._seq = np.zeros(count, np.int64)
        rails = cluster.rails
        names = [endpoint_id(*divmod(n, rails)) for n in range(cluster.fabric.shape.rnics)]
        self._src = [names[n] for n in flows.src.tolist()]
        self._dst = [names[n] for n in flows.dst.tolist()]
        self._index: list[int] = flows.flow.tolist()

    def second(
        self, at_ns: int, active: Bools
    ) -> tuple[list[tuple[int, dict[str, Any]]], Measured]:
        """Return the rounds that begin in a second, and the first probes of them.

        Parameters
        ----------
        at_ns
            Begin of the second.
        active
            Which 5-tuples are probed, shape (flows,).

        Returns
        -------
        Pairs of host and datum of `probe.round.v1`, by host; and what was measured.
        """
        started = at_ns + self.phase_ns
        speaks = ~self._hosts.silent_pairs(np.arange(self._hosts.count), started)
        sent = started[self._host] + self._offset_ns
        probed = active & speaks[self._host]
        kept, delay = self._weather.passed(sent)
        busy = self._hosts.value_ns(Trouble.BUSY, at_ns)
        own = busy[self._host] * self._rng.random(len(sent))
        rtt = self._trips.draw(sent) + np.rint(delay + LEAK * own).astype(np.int64)
        ok = self._answered(kept, sent)
        outcomes = self._outcomes(probed, sent, ok)
        flow = np.flatnonzero(probed)
        rounds = self._rounds(
            started, flow, ok, rtt, own=np.rint(own).astype(np.int64), outcomes=outcomes
        )
        return rounds, Measured(flow, sent[flow], ok[flow], rtt[flow])

    def _answered(self, kept: np.typing.NDArray[np.float64], sent: Ints) -> Bools:
        alive = ~self._hosts.silent_pairs(self._dst_host, sent)
        answered: Bools = alive & (self._rng.random(len(sent)) < kept)
        return answered

    def _outcomes(
        self, probed: Bools, sent: Ints, ok: Bools
    ) -> dict[int, list[tuple[int, int | None]]]:
        """Return what the probes sent again came to: delay after the first, round trip."""
        found: dict[int, list[tuple[int, int | None]]] = {}
        waiting = probed & ~ok
        for attempt in range(1, CONFIRM + 1):
            if not waiting.any():
                break
            again = sent + attempt * TIMEOUT_NS
            kept, delay = self._weather.passed(again)
            answered = self._answered(kept, again)
            rtt = self._trips.draw(again) + np.rint(delay).astype(np.int64)
            for place in np.flatnonzero(waiting).tolist():
                trip = int(rtt[place]) if answered[place] else None
                found.setdefault(place, []).append((attempt * TIMEOUT_NS, trip))
            waiting &= ~answered
        return found

    def _rounds(
        self,
        started: Ints,
        flow: Ints,
        ok: Bools,
        rtt: Ints,
        *,
        own: Ints,
        outcomes: dict[int, list[tuple[int, int | None]]],
    ) -> list[tuple[int, dict[str, Any]]]:
        clock = self._hosts.value_ns(Trouble.CLOCK, int(started.min()))
        by_host: dict[int, list[dict[str, Any]]] = {}
        again: set[int] = set()
        for place, host, offset, good, trip, extra in zip(
            flow.tolist(), self._host[flow].tolist(), self._offset_ns[flow].tolist(),
            ok[flow].tolist(), rtt[flow].tolist(), own[flow].tolist(), strict=True,
        ):  # fmt: skip
            results = by_host.setdefault(host, [])
            results.append(self._result(place, offset, trip if good else None, extra))
            if not good:
                for later, second in outcomes.get(place, ()):
                    results.append(self._result(place, offset + later, second, extra))
                    again.add(host)
        rounds = []
        for host, results in by_host.items():
            if host in again:
                results.sort(key=lambda r: (r["sent_offset_ns"], r["src"], r["dst"], r["flow"]))
            self._seq[host] += 1
            rounds.append((host, self._datum(host, int(started[host] + clock[host]), results)))
        return rounds

    def _result(self, place: int, offset: int, trip: int | None, own: int) -> dict[str, Any]:
        return {
            "src": self._src[place], "dst": self._dst[place], "flow": self._index[place],
            "sent_offset_ns": offset, "transport": "RDMA_UD",
            "status": "TIMEOUT" if trip is None else "OK", "rtt_ns": trip,
            "prober_delay_ns": PROBER_DELAY_NS + own,
            "responder_delay_ns": None if trip is None else RESPONDER_DELAY_NS,
            "clock": "HARDWARE",
        }  # fmt: skip

    def _datum(self, host: int, started_ns: int, results: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "cluster": self._name, "agent_id": agent_id(host), "host_id": host_id(host),
            "incarnation": 1, "round_seq": int(self._seq[host]),
            "started_at": started_ns // US_NS, "interval_ns": SECOND_NS,
            "pinglist_version": 1, "producer_version": None, "results": results,
        }  # fmt: skip
