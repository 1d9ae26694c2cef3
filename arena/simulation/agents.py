"""What all agents of a cluster measure in one second: rounds of probes, as they publish them.

An agent probes each of its targets once a round and 5-tuple, sends a lost probe again at
once, twice, on the same 5-tuple, and publishes the round (`probers.probing.rounds`). All 5-tuples
of the cluster are drawn at once; only the records are made one by one.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from arena.faults.effects import Weather
from arena.world.cluster import Cluster
from arena.world.hosts import Hosts, HostTrouble
from arena.world.latency import RoundTrips
from arena.world.topology import agent_id, endpoint_id, host_id
from schemas.columns.arrays import Bools, Int64s
from schemas.enums import ProbeStatus
from schemas.units import MS_NS, SECOND_NS, US_NS
from streams.columns.rounds import (
    MISSING,
    OK_CODE,
    STATUS_CODES,
    FlowKey,
    RoundColumns,
    measured,
)

# As the agents' configuration has them by default.
LOST: Final = -1
TIMEOUT_CODE: Final = STATUS_CODES[ProbeStatus.TIMEOUT.value]
TRANSPORT: Final = "RDMA_UD"
TIMEOUT_NS: Final = 500_000_000
CONFIRM: Final = 2
SPREAD_NS: Final = 800_000_000
PROBER_DELAY_NS: Final = 4_000
RESPONDER_DELAY_NS: Final = 3_000
# Both are log-normal, as what software does usually is.
DELAY_SIGMA: Final = 0.15
# A timer fires so much late on average, and what is sent next is not sent to the nanosecond.
LATE_NS: Final = 30_000
PACE_NS: Final = 5_000
# Share of a busy host's own delay that its completion timestamps hide badly.
LEAK: Final = 0.3


@dataclass(frozen=True, slots=True)
class Measured:
    """First probes of a second, columns of one length: 5-tuple, when sent, answered, round trip."""

    flow: Int64s
    sent_ns: Int64s
    ok: Bools
    rtt_ns: Int64s


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
        self.phase_ns: Int64s = rng.integers(0, SECOND_NS, count)
        # Flows are sorted by host: each agent's stand together, and so do their offsets.
        first = np.searchsorted(self._host, np.arange(count + 1))
        place = np.arange(len(flows)) - first[self._host]
        share = np.maximum(np.diff(first), 1)[self._host]
        self._offset_ns: Int64s = place * SPREAD_NS // share
        # Never so late that two probes of an agent change places.
        self._pace_ns: Int64s = np.minimum(PACE_NS, SPREAD_NS // share // 2)
        self._seq = np.zeros(count, np.int64)
        rails = cluster.rails
        names = [endpoint_id(*divmod(n, rails)) for n in range(cluster.fabric.shape.rnics)]
        src = [names[n] for n in flows.src.tolist()]
        dst = [names[n] for n in flows.dst.tolist()]
        agents = [agent_id(h) for h in self._host.tolist()]
        index: list[int] = flows.flow.tolist()
        self._naming = Naming(src, dst, index, list(zip(agents, src, dst, index, strict=True)))

    def second(self, at_ns: int, active: Bools) -> tuple[list["AgentRound"], Measured]:
        """Return the rounds that begin in a second, and the first probes of them.

        Parameters
        ----------
        at_ns
            Begin of the second.
        active
            Which 5-tuples are probed, shape (flows,).

        Returns
        -------
        The rounds by host, and what was measured.
        """
        late = np.minimum(self._rng.exponential(LATE_NS, self._hosts.count), SECOND_NS // 100)
        started = at_ns + self.phase_ns + late.astype(np.int64)
        speaks = ~self._hosts.silent_pairs(np.arange(self._hosts.count), started)
        offset = self._offset_ns + (self._rng.random(len(self._offset_ns)) * self._pace_ns).astype(
            np.int64
        )
        sent = started[self._host] + offset
        probed = active & speaks[self._host]
        kept, delay = self._weather.passed(sent)
        busy = self._hosts.value_ns(HostTrouble.BUSY, at_ns)
        own = busy[self._host] * self._rng.random(len(sent))
        rtt = self._trips.draw(sent) + np.rint(delay + LEAK * own).astype(np.int64)
        ok = self._answered(kept, sent)
        outcomes = self._outcomes(probed, sent, ok)
        flow = np.flatnonzero(probed)
        rounds = self._rounds(
            started, flow, ok, rtt, offset=offset, own=np.rint(own).astype(np.int64),
            outcomes=outcomes,
        )  # fmt: skip
        return rounds, Measured(flow, sent[flow], ok[flow], rtt[flow])

    def _answered(self, kept: np.typing.NDArray[np.float64], sent: Int64s) -> Bools:
        alive = ~self._hosts.silent_pairs(self._dst_host, sent)
        answered: Bools = alive & (self._rng.random(len(sent)) < kept)
        return answered

    def _outcomes(
        self, probed: Bools, sent: Int64s, ok: Bools
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
        started: Int64s,
        flow: Int64s,
        ok: Bools,
        rtt: Int64s,
        *,
        offset: Int64s,
        own: Int64s,
        outcomes: dict[int, list[tuple[int, int | None]]],
    ) -> list["AgentRound"]:
        if not len(flow):
            return []
        clock = self._hosts.value_ns(HostTrouble.CLOCK, int(started.min()))
        every_offset, offset = offset, offset[flow]
        trip = np.where(ok[flow], rtt[flow], LOST)
        own = own[flow]
        if outcomes:
            again = [(f, o, t) for f, found in outcomes.items() for o, t in found]
            more = np.array([f for f, _, _ in again], np.int64)
            late = np.array([o for _, o, _ in again], np.int64)
            flow = np.concatenate([flow, more])
            offset = np.concatenate([offset, every_offset[more] + late])
            seconds = [LOST if t is None else t for _, _, t in again]
            trip = np.concatenate([trip, np.array(seconds, np.int64)])
            own = np.concatenate([own, np.zeros(len(again), np.int64)])
            order = np.lexsort((flow, offset, self._host[flow]))
            flow, offset, trip, own = flow[order], offset[order], trip[order], own[order]
        answered = trip != LOST
        trip = np.where(answered, trip, 0)
        own = own + self._delays(PROBER_DELAY_NS, len(flow))
        responder = np.where(answered, self._delays(RESPONDER_DELAY_NS, len(flow)), MISSING)
        hosts = self._host[flow]
        found, first = np.unique(hosts, return_index=True)
        rounds = []
        for host, low, high in zip(
            found.tolist(), first.tolist(), [*first[1:].tolist(), len(flow)], strict=True
        ):
            self._seq[host] += 1
            started_ns = int(started[host] + clock[host])
            here = slice(low, high)
            rounds.append(
                AgentRound(
                    host=host, header=self._header(host, started_ns), naming=self._naming,
                    flow=flow[here], offset_ns=offset[here], ok=answered[here],
                    rtt_ns=trip[here], host_ns=own[here], responder_ns=responder[here],
                )
            )  # fmt: skip
        return rounds

    def _delays(self, usual_ns: int, count: int) -> Int64s:
        factor = np.exp(self._rng.normal(0.0, DELAY_SIGMA, count))
        delays: Int64s = np.rint(usual_ns * factor).astype(np.int64)
        return delays

    def _header(self, host: int, started_ns: int) -> dict[str, Any]:
        return {
            "cluster": self._name, "agent_id": agent_id(host), "host_id": host_id(host),
            "incarnation": 1, "round_seq": int(self._seq[host]),
            "started_at": started_ns // US_NS, "interval_ns": SECOND_NS,
            "pinglist_version": 1, "producer_version": None,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Naming:
    """How the 5-tuples are called in records, by their number."""

    src: list[str]
    dst: list[str]
    flow: list[int]
    keys: list[FlowKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRound:
    """One round of an agent, in order of sending; the columns are of one length.

    Attributes
    ----------
    host : number of the agent's host
    header : the datum without its results
    flow : numbers of the 5-tuples
    offset_ns : when sent after the round's start
    ok : whether answered
    rtt_ns : round trip; 0 where lost
    host_ns : how long the prober's host took
    responder_ns : how long the responder took; `MISSING` where lost
    """

    host: int
    header: dict[str, Any]
    naming: Naming
    flow: Int64s
    offset_ns: Int64s
    ok: Bools
    rtt_ns: Int64s
    host_ns: Int64s
    responder_ns: Int64s

    @property
    def started_at(self) -> int:
        """When the round says that it began, microseconds."""
        at: int = self.header["started_at"]
        return at

    @property
    def arrival_ms(self) -> int:
        """When the broker takes it: the last probe has been sent by then."""
        reach_ns = self.started_at * US_NS + int(self.offset_ns.max(initial=0))
        return -(-reach_ns // MS_NS)

    def columns(self) -> RoundColumns:
        """Return what `streams.columns.rounds` makes of the datum, without making the datum."""
        flows: list[int] = self.flow.tolist()
        low, high = flows[0], flows[-1] + 1
        keys = self.naming.keys
        started_ns = self.started_at * US_NS
        return RoundColumns(
            # Without losses an agent's 5-tuples are those of a stretch.
            keys=keys[low:high] if flows == list(range(low, high)) else [keys[f] for f in flows],
            sent_ns=started_ns + self.offset_ns,
            ok=self.ok,
            status=np.where(self.ok, OK_CODE, TIMEOUT_CODE),
            values=measured(
                rtt_ns=np.where(self.ok, self.rtt_ns, MISSING),
                prober_delay_ns=self.host_ns,
                responder_delay_ns=self.responder_ns,
            ),
            transport=[TRANSPORT] * len(flows),
            started_ns=started_ns,
            reach_ns=started_ns + int(self.offset_ns.max()),
        )

    def datum(self) -> dict[str, Any]:
        """Return the round as a decoded `probe.round.v1` datum."""
        naming = self.naming
        results = [
            {
                "src": naming.src[flow], "dst": naming.dst[flow], "flow": naming.flow[flow],
                "sent_offset_ns": offset, "transport": TRANSPORT,
                "status": "OK" if ok else "TIMEOUT",
                "rtt_ns": rtt if ok else None,
                "prober_delay_ns": host,
                "responder_delay_ns": responder if ok else None,
                "clock": "HARDWARE",
            }
            for flow, offset, ok, rtt, host, responder in zip(
                self.flow.tolist(), self.offset_ns.tolist(), self.ok.tolist(),
                self.rtt_ns.tolist(), self.host_ns.tolist(), self.responder_ns.tolist(),
                strict=True,
            )
        ]  # fmt: skip
        return {**self.header, "results": results}
