"""Messages of simulated agents put together from bytes, against a codec that encodes each."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from arena.simulation.agents import (
    CONFIRM,
    DELAY_SIGMA,
    LATE_NS,
    PACE_NS,
    PROBER_DELAY_NS,
    RESPONDER_DELAY_NS,
    TIMEOUT_NS,
    TRANSPORT,
)
from arena.world.fabric import NOWHERE, address
from arena.world.latency import PROBE_SIGMA
from ops.bench.cluster.agents import (
    BODIES,
    COLLECT_NS,
    TICK_NS,
    Agent,
    Fleet,
    Outgoing,
    Ready,
    heartbeat,
    samples,
    scatter_of,
)
from ops.bench.cluster.encoding import HOP_NS, SLOW_PATH_NS, Form
from ops.bench.cluster.paths import Paths, usual_of
from ops.bench.cluster.shape import CLUSTER, RAILS, ClusterShape
from ops.bench.rig.load import OK, SPREAD_NS, lose, round_body, round_head
from probers.probing.plan import spread_ns
from probers.probing.rounds import RESOLUTION_NS
from schemas import topics
from schemas.codec import Codec
from schemas.columns.pieces import number_bytes
from schemas.enums import ClockSource, TraceCause
from schemas.ids import path_id
from schemas.units import MS_NS, SECOND_NS, US_NS
from tests.unit.ops.bench.test_cluster import CODEC, NOW_NS, Platform

SHAPE = ClusterShape(agents=24, seconds=40)


class SlowPaths(Paths):
    """Looks at all 5-tuples each time."""

    def due(self, started_ns: int, cut: list[int], rng: np.random.Generator) -> list[int]:
        """Return the healthy 5-tuples that are traced in a round, and set when they are next."""
        due = self.trace_ns <= started_ns
        due[cut] = False
        found: list[int] = np.flatnonzero(due).tolist()
        self.refresh(found, started_ns, rng)
        return found


class SlowFleet(Fleet):
    """Encodes each message by itself."""

    started_us: int

    def _paths(self, agent: Agent, now_ns: int) -> Paths:
        paths = super()._paths(agent, now_ns)
        paths.__class__ = SlowPaths
        return paths

    def _head(self, agent: Agent, _started: bytes) -> bytes:
        header = self._of(agent) | {"interval_ns": SECOND_NS}
        return round_head(self._codec, header, agent.seq, self.started_us)

    def second(self, agent: Agent, started_ns: int) -> Iterator[Outgoing]:
        """Yield what an agent publishes of the round that began then."""
        self.started_us = started_ns // US_NS
        return super().second(agent, started_ns)

    def _make(self, paths: Paths, ready: Ready) -> None:
        rng, count = self._rng, len(paths)
        slots = np.array(spread_ns(count, SPREAD_NS), np.float64)
        offset = slots + rng.exponential(LATE_NS, count) + PACE_NS * rng.random(count)
        rtt = paths.base_ns * np.exp(PROBE_SIGMA * scatter_of(count, ready))
        delays = np.exp(rng.normal(0.0, DELAY_SIGMA, (2, count)))
        offset, prober, responder = (
            RESOLUTION_NS * np.floor(c / RESOLUTION_NS)
            for c in (offset, PROBER_DELAY_NS * delays[0], RESPONDER_DELAY_NS * delays[1])
        )
        results = [
            {
                "src": src, "dst": dst, "flow": flow, "sent_offset_ns": at, "transport": TRANSPORT,
                "status": OK, "rtt_ns": trip, "prober_delay_ns": prober,
                "responder_delay_ns": responder, "clock": ClockSource.HARDWARE.value,
            }
            for src, dst, flow, at, trip, prober, responder in zip(
                paths.src, paths.dst, paths.flow,
                *(np.rint(c).astype(np.int64).tolist() for c in (offset, rtt, prober, responder)),
                strict=True,
            )
        ]  # fmt: skip
        cut = [results[n] for n in ready.cut]
        results.sort(key=lambda r: int(r["sent_offset_ns"]))
        for lost in cut:
            lose(results, results.index(lost), again=CONFIRM, answered=False)
        decided_ns = int(results[-1]["sent_offset_ns"]) + TIMEOUT_NS
        ready.collect_ns = max(COLLECT_NS, decided_ns) if ready.cut else COLLECT_NS
        header = {"cluster": "", "agent_id": "", "host_id": "", "incarnation": 0, "interval_ns": 0}
        ready.bodies.append(round_body(self._codec, header, results))

    def _trace(
        self, agent: Agent, paths: Paths, place: int, at_ns: int, cause: TraceCause
    ) -> Outgoing:
        dead = self._weathers[max(agent.weather, 0)][1]
        hops = list(self._hops(paths, place, dead))
        whole = hops[-1]["address"] is not None
        src, dst = paths.src[place], paths.dst[place]
        datum = {
            "cluster": CLUSTER, "path_id": path_id(src, dst), "src": src, "dst": dst,
            "flow": paths.flow[place], "agent_id": agent.key.decode(), "traced_at": at_ns // US_NS,
            "cause": cause.value, "complete": whole,
            "incomplete_reason": None if whole else "no answer", "producer_version": None,
            "hops": hops,
        }  # fmt: skip
        value = self._codec.encode_datum(topics.PATH_TRACE, datum)
        key = path_id(src, dst).encode()
        return Outgoing(topics.PATH_TRACE, key, value, at_ns // MS_NS, at_ns)

    def _hops(self, paths: Paths, place: int, dead: frozenset[int]) -> Iterator[dict[str, Any]]:
        row: list[int] = paths.way[place].tolist()
        crossed = [number for number in row if number != NOWHERE]
        ttl = 0
        for number in crossed[:-1]:
            if number in dead:
                break
            if number in self._switches:
                ttl += 1
                yield _hop(ttl, address(number))
        else:
            last = crossed[-1]
            yield _hop(ttl + 1, None if last in dead else address(self._target0 + last))
            return
        yield _hop(ttl + 1, None)

    def _heartbeat(self, agent: Agent, at_ns: int, _at: bytes) -> Outgoing:
        agent.beats += 1
        flows = 0 if agent.paths is None else len(agent.paths)
        datum = self._of(agent) | heartbeat(flows)
        datum |= {
            "seq": agent.beats, "sent_at": at_ns // US_NS, "rounds_sent": agent.seq,
            "results_sent": agent.seq * flows,
        }  # fmt: skip
        value = self._codec.encode_datum(topics.HEARTBEAT, datum)
        return Outgoing(topics.HEARTBEAT, agent.key, value, at_ns // MS_NS, at_ns)

    def _counters(self, agent: Agent, started_ns: int) -> Outgoing:
        datum = self._of(agent) | {
            "started_at": started_ns // SECOND_NS * SECOND_NS // US_NS, "tick_ns": TICK_NS,
            "samples": samples(agent.host),
        }  # fmt: skip
        value = self._codec.encode_datum(topics.RNIC_COUNTERS, datum)
        due_ns = started_ns + SECOND_NS
        return Outgoing(topics.RNIC_COUNTERS, agent.key, value, started_ns // MS_NS, due_ns)


def _hop(ttl: int, shown: str | None) -> dict[str, Any]:
    rtt_ns = None if shown is None else SLOW_PATH_NS + HOP_NS * ttl
    return {"ttl": ttl, "address": shown, "rtt_ns": rtt_ns}


def decoded(made: list[Outgoing]) -> list[tuple[Any, ...]]:
    """Return messages with their values decoded."""
    return [
        (m.topic.name, m.key, CODEC.decode_datum(m.topic, m.value), m.at_ms, m.due_ns, m.results)
        for m in made
    ]


def test_messages_are_those_of_a_codec() -> None:
    """Of agents that start, live, change their lists, and while an RNIC and a spine are dead."""
    fabric = SHAPE.fabric
    platforms = [Platform(SHAPE), Platform(SHAPE)]
    platforms[1].fleet.__class__ = SlowFleet
    spine = frozenset({fabric.numbers(2).start})
    rnic = frozenset({platforms[0].jobs.running[-1].hosts[0] * RAILS + 3})
    causes = set()
    for platform in platforms:
        fleet = platform.fleet
        for agent in fleet.agents:
            list(fleet.prepare(agent, NOW_NS))
        fleet.settled(NOW_NS)
    for second in range(1, SHAPE.seconds):
        found = []
        for platform in platforms:
            if second in (8, 16):
                platform.fleet.break_down(spine, NOW_NS + (second + 6) * SECOND_NS)
            if second in (20, 36):
                platform.fleet.break_down(frozenset(), NOW_NS + (second + 2) * SECOND_NS)
            if second == 30:
                platform.fleet.break_down(rnic, NOW_NS + second * SECOND_NS)
            platform.publish(platform.jobs.churn(second, NOW_NS // 1000 + second))
            found.append(decoded(platform.second(second)))
        assert found[0] == found[1]
        causes |= {datum["cause"] for topic, _, datum, *_ in found[0] if topic == "path.trace.v1"}
    assert causes == {"DISCOVERY", "LOSS"}


def test_round_trips_are_as_usual_whoever_probes() -> None:
    """Each 5-tuple has the same spread over all bodies, and the same usual one when it returns."""
    ready, found = Ready(), []
    for _ in range(BODIES):
        found.append(scatter_of(20, ready))
        ready.bodies.append(b"")
    every = np.sort(np.array(found), axis=0)
    assert np.ptp(every, axis=1).max() == 0
    assert every[:, 0].std() == pytest.approx(0.92, abs=0.01)
    assert scatter_of(3, Ready(cut=[1])).tolist() == [-1.0] * 3
    flows = np.array([(a, b, n) for a in range(40) for b in range(40) for n in range(4)])
    usual = usual_of(flows)
    assert np.array_equal(usual_of(flows[100:200]), usual[100:200])
    assert (usual.mean(), usual.std()) == pytest.approx((0, 1), abs=0.05)


def test_a_form_is_filled_where_its_gaps_are() -> None:
    """Also by numbers of another length; a field that is not there is an error."""
    datum = {"cluster": CLUSTER, "agent_id": "a", "host_id": "h", "incarnation": 5} | heartbeat(3)
    gaps = ("seq", "sent_at", "rounds_sent", "results_sent")
    form = Form(Codec(), topics.HEARTBEAT, datum, *gaps)
    for numbers in ((0, 1, 63, 64), (2**20, 2**50, 2**7, 2**13 - 1)):
        value = form.fill(*map(number_bytes, numbers))
        found = CODEC.decode_datum(topics.HEARTBEAT, value)
        assert tuple(found[name] for name in gaps) == numbers
        assert found["targets_active"] == 3
    with pytest.raises(RuntimeError, match="not where it was"):
        Form(Codec(), topics.HEARTBEAT, datum, "sent_at", "seq", *gaps[2:])
