"""The traces that agents publish: healthy 5-tuples now and then, lost and slow ones at once.

When an agent traces follows its own rules (`probers.probing`); what a
trace shows follows the fabric. Switches answer from their slow path, with scatter, and now
and then not at all; RNICs and virtual switches on the way do not answer.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from arena.faults.effects import Weather
from arena.simulation.agents import TIMEOUT_NS, Measured
from arena.world.cluster import Cluster
from arena.world.fabric import NOWHERE, address
from arena.world.hosts import Hosts
from arena.world.topology import agent_id, endpoint_id
from probers.clock import TokenBucket
from probers.probing.trace import (
    FALL_SHIFT,
    IN_A_ROW,
    LEAST_RISE_NS,
    RISE_SHIFT,
    Pair,
    in_turn,
)
from schemas.columns.arrays import Bools, Int64s
from schemas.enums import TraceCause
from schemas.ids import path_id
from schemas.records import PathTrace, TraceHop
from schemas.units import SECOND_NS, US_NS

NEVER_NS: Final = -(2**62)
# As in the agents: a 5-tuple in trouble is traced again after so long, a healthy one after that.
GAP_NS: Final = 10 * SECOND_NS
REFRESH_NS: Final = 300 * SECOND_NS
# All paths are known so long after a start.
FIRST_NS: Final = 20 * SECOND_NS
# A switch's CPU answers within some tenths of a millisecond, and keeps silent now and then.
SLOW_PATH_NS: Final = 180_000
SLOW_PATH_SIGMA: Final = 0.35
MUTE: Final = 0.01


class Tracer:
    """Decides which 5-tuples are traced, and makes the records."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        weather: Weather,
        hosts: Hosts,
        *,
        rng: np.random.Generator,
        begin_ns: int,
        budget: int | None = None,
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._weather = weather
        self._hosts = hosts
        self._rng = rng
        flows = cluster.flows
        count = len(flows)
        self._due_ns: Int64s = begin_ns + rng.integers(0, FIRST_NS, count)
        self._lost_ns = np.full(count, NEVER_NS, np.int64)
        self._slow_ns = np.full(count, NEVER_NS, np.int64)
        self._typical_ns = np.full(count, -1, np.int64)
        self._slow = np.zeros(count, np.int64)
        # Each agent's traces because of loss (`schemas.trace_budget`); None: all that are asked.
        self._budget = budget
        self._losses: dict[int, TokenBucket] = {}
        self._pairs_ns: dict[Pair, int] = {}
        fabric = cluster.fabric
        self._switches = range(fabric.numbers(1).start, fabric.numbers(3).stop)

    def traces(self, measured: Measured) -> Iterator[tuple[int, PathTrace]]:
        """Yield what is traced after the first probes of a second, with when it was done, ns."""
        flow, sent = measured.flow, measured.sent_ns
        slow = self._pace(measured)
        lost = ~measured.ok & (sent - self._lost_ns[flow] >= GAP_NS)
        late = slow & (sent - self._slow_ns[flow] >= GAP_NS)
        due = ~lost & ~late & (sent >= self._due_ns[flow])
        if self._budget is not None:
            lost = self._in_budget(flow, sent, lost, self._budget)
        self._lost_ns[flow[lost]] = sent[lost]
        self._slow_ns[flow[late]] = sent[late]
        jitter = self._rng.integers(-REFRESH_NS // 8, REFRESH_NS // 8, int(due.sum()))
        self._due_ns[flow[due]] = sent[due] + REFRESH_NS + jitter
        for mask, cause, wait_ns in (
            (lost, TraceCause.LOSS, 2 * TIMEOUT_NS),
            (late, TraceCause.LATENCY, 0),
            (due, TraceCause.DISCOVERY, 0),
        ):
            for place in np.flatnonzero(mask).tolist():
                at_ns = int(sent[place]) + wait_ns
                yield at_ns, self._trace(int(flow[place]), at_ns, cause)

    def _in_budget(self, flow: Int64s, sent: Int64s, lost: Bools, budget: int) -> Bools:
        """Return the lost probes that agents trace, as `probers.probing.trace.Tracer` does."""
        flows, chosen = self._cluster.flows, np.zeros(len(flow), np.bool_)
        places = np.flatnonzero(lost)
        hosts = self._cluster.host_of(flows.src[flow[places]])
        for host in np.unique(hosts).tolist():
            bucket = self._losses.get(host)
            if bucket is None:
                bucket = self._losses[host] = TokenBucket(budget * SECOND_NS / GAP_NS, budget)
            waiting = {}
            for place in places[hosts == host].tolist():
                number = int(flow[place])
                key = str(flows.src[number]), str(flows.dst[number]), int(flows.flow[number])
                waiting[key] = place
            asked_ns = {key: int(self._lost_ns[flow[place]]) for key, place in waiting.items()}
            for key in in_turn(asked_ns, self._pairs_ns):
                now_ns = int(sent[waiting[key]])
                if not bucket.take_token(now_ns):
                    break
                self._pairs_ns[key[:2]] = now_ns
                chosen[waiting[key]] = True
        return chosen

    def _pace(self, measured: Measured) -> np.typing.NDArray[np.bool_]:
        """Return the 5-tuples slower than typical, as `probers.probing.trace.TypicalRtt`."""
        ok = np.flatnonzero(measured.ok)
        flow, rtt = measured.flow[ok], measured.rtt_ns[ok]
        typical = self._typical_ns[flow]
        known = typical >= 0
        raised = known & (rtt > typical + np.maximum(typical, LEAST_RISE_NS))
        self._slow[flow] = np.where(raised, self._slow[flow] + 1, 0)
        rise = rtt - typical
        shift = np.where(rise > 0, RISE_SHIFT, FALL_SHIFT)
        self._typical_ns[flow] = np.where(known, typical + (rise >> shift), rtt)
        out = np.zeros(len(measured.flow), np.bool_)
        out[ok] = known & (self._slow[flow] >= IN_A_ROW)
        return out

    def _trace(self, flow: int, at_ns: int, cause: TraceCause) -> PathTrace:
        flows, rails = self._cluster.flows, self._cluster.rails
        src, dst = int(flows.src[flow]), int(flows.dst[flow])
        there: list[int] = [n for n in flows.there[flow].tolist() if n != NOWHERE]
        hops: list[TraceHop] = []
        for place, node in enumerate(there):
            if node in self._switches:
                rtt = self._hop(flow, there[: place + 1], at_ns)
                shown = None if rtt is None else address(node)
                hops.append(TraceHop(ttl=len(hops) + 1, address=shown, rtt_ns=rtt))
        rtt = self._target(flow, there, at_ns)
        shown = None if rtt is None else address(self._cluster.endpoint0 + dst)
        hops.append(TraceHop(ttl=len(hops) + 1, address=shown, rtt_ns=rtt))
        complete = rtt is not None
        if not complete:
            answered = max((h.ttl for h in hops if h.address is not None), default=0)
            hops = [*hops[:answered], TraceHop(ttl=answered + 1)]
        ends = endpoint_id(*divmod(src, rails)), endpoint_id(*divmod(dst, rails))
        return PathTrace(
            cluster=self._name, path_id=path_id(*ends), src=ends[0], dst=ends[1],
            flow=int(flows.flow[flow]), agent_id=agent_id(src // rails),
            traced_at=at_ns // US_NS, cause=cause, complete=complete,
            incomplete_reason=None if complete else "no answer", hops=tuple(hops),
        )  # fmt: skip

    def _hop(self, flow: int, crossed: list[int], at_ns: int) -> int | None:
        kept, delay = self._weather.crossing(flow, crossed, at_ns)
        # The switch's answer comes the same way back.
        kept *= kept
        if self._rng.random() > kept or self._rng.random() < MUTE:
            return None
        own = SLOW_PATH_NS * float(np.exp(self._rng.normal(0.0, SLOW_PATH_SIGMA)))
        return round(own + 2 * delay)

    def _target(self, flow: int, crossed: list[int], at_ns: int) -> int | None:
        host = np.array([self._cluster.flows.dst[flow] // self._cluster.rails])
        if self._hosts.silent_pairs(host, np.array([at_ns]))[0]:
            return None
        reply = [n for n in self._cluster.flows.back[flow].tolist() if n != NOWHERE]
        kept, delay = self._weather.crossing(flow, crossed, at_ns)
        kept_back, delay_back = self._weather.crossing(flow, reply, at_ns, back=True)
        if self._rng.random() > kept * kept_back:
            return None
        own = 16_000 * float(np.exp(self._rng.normal(0.0, 0.1)))
        return round(own + delay + delay_back)
