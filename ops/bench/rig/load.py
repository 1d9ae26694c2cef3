"""The seeded load of the benches: rounds of a large job, as framed bytes. Pure.

Agents of 8 RNICs with 10 targets each probe at 1 Hz, in the order and at the pace of real agents.
Round trips are log-normal around each path's own base, as on RoCE; delays of prober and responder
are those of this project's agents. Some probes are lost and sent again, some 5-tuples are cut off
for a few rounds, some rounds come late or twice.

The codec takes half a millisecond for a round, and tens of millions of results are needed.
Therefore each agent's results are encoded for a few rounds only, and each round of the load is a
fresh header before one of these bodies, drawn at random. This works because the results are the
last field of the schema and their times count from the round's start. Rounds with a loss are rare
and encoded whole: a loss in a repeated body would be a loss rate.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np

from arena.simulation.agents import CONFIRM, LATE_NS, TIMEOUT_NS, TRANSPORT
from arena.world.latency import MAX_TAIL_NS, PATH_SIGMA, PROBE_SIGMA, TAIL_NS, TAIL_RATE, TAIL_SHAPE
from probers.probing.plan import shuffled, spread_ns, stagger_ns
from probers.probing.rounds import RESOLUTION_NS, round_down_ns
from schemas.codec import Codec
from schemas.columns.arrays import Int64s
from schemas.enums import ClockSource, ProbeStatus
from schemas.topics import PROBE_ROUND
from schemas.units import SECOND_NS, US_NS


def round_head(codec: Codec, header: dict[str, Any], number: int, started_us: int) -> bytes:
    """Return a framed round up to its results."""
    datum = {**header, "round_seq": number, "started_at": started_us, "results": []}
    # What is cut off is the mark that the array ends.
    return codec.encode_datum(PROBE_ROUND, datum)[:-1]


def round_body(codec: Codec, header: dict[str, Any], results: list[dict[str, Any]]) -> bytes:
    """Return the results as they stand behind the header of any round of the agent."""
    datum = {**header, "round_seq": 0, "started_at": 0, "results": results}
    whole = codec.encode_datum(PROBE_ROUND, datum)
    head = round_head(codec, header, 0, 0)
    if not whole.startswith(head):
        raise RuntimeError("the results are no longer the last field of a round")
    return whole[len(head) :]


CLUSTER: Final = "bench"
# Three switches on a rail-optimised fabric, as the published system reports it.
BASE_NS: Final = 16_000
# As agents spread a round by default.
SPREAD_NS: Final = 300_000_000
# From rounds of this project's agents, recorded in loopback labs on two cores that had little
# else to do. A slot's first probe leaves so much after its time, at the least and on average
# beyond that.
WAKE_NS: Final = 60_000
WAKE_MORE_NS: Final = 50_000
# Between two probes of a slot: 14, 18, 30 and 130 µs at the 1st, 50th, 90th and 99th percentile.
SEND_NS: Final = 13_500
SEND_MORE_NS: Final = 4_500
SEND_SIGMA: Final = 1.1
# Replies are handled after the whole slot has been sent: 23, 210 and 950 µs at the 1st, 50th and
# 99th percentile. The responder is an agent as well: 38, 260 and 1,100 µs.
PROBER_DELAY_NS: Final = 200_000
PROBER_SIGMA: Final = 0.7
RESPONDER_DELAY_NS: Final = 250_000
RESPONDER_SIGMA: Final = 0.6
# A late round waited in its agent for the broker: mostly less than the workers allow (5 s).
LATE_ROUNDS: Final = (1, 8)
# An agent that heard no acknowledgement sends its round again.
AGAIN_ROUNDS: Final = (1, 3)
OK: Final = ProbeStatus.OK.value
LOST: Final = (ProbeStatus.TIMEOUT.value, ProbeStatus.UNREACHABLE.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """How large a load is, and how much of it goes wrong.

    Attributes
    ----------
    interval_ns
        Time between two rounds of an agent.
    bodies
        Rounds whose results are encoded for each agent; a window of thirty draws from them.
    lost
        Share of the probes that are lost and answered when sent again; below the base rate
        that the loss test takes for healthy.
    cut
        Chance that a 5-tuple of an agent's is cut off, per round; `cut_rounds` how long.
    late, twice
        Shares of the rounds.
    """

    agents: int = 400
    rnics: int = 8
    targets: int = 10
    interval_ns: int = SECOND_NS
    bodies: int = 24
    lost: float = 2e-5
    cut: float = 5e-4
    cut_rounds: int = 4
    late: float = 1e-3
    twice: float = 5e-4
    seed: int = 20261

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shape that `text` made a text of."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """Return the shape as an argument of a command line."""
        return json.dumps(asdict(self))

    @property
    def per_round(self) -> int:
        """Results of a round in which nothing is lost."""
        return self.rnics * self.targets

    @property
    def paths(self) -> int:
        """5-tuples of all agents."""
        return self.agents * self.per_round


class Sent(NamedTuple):
    """A round on its way; `cut` is (source, destination) of the 5-tuple that lost all probes."""

    key: bytes
    value: bytes
    at_ms: int
    results: int
    cut: tuple[str, str] | None


class Load:
    """The rounds of some agents, interval by interval; the same for the same shape."""

    def __init__(self, shape: LoadShape, codec: Codec | None = None) -> None:
        self.shape = shape
        self._codec = codec or Codec()
        self._rng = np.random.default_rng(shape.seed)
        # For single draws, of which a numpy generator makes far fewer a second.
        self._random = random.Random(shape.seed)  # noqa: S311 - a load needs no secrecy
        self._agents = [_Agent(n, shape, self._rng) for n in range(shape.agents)]
        self._bodies = [
            [self._body(agent, self._results(agent)) for _ in range(shape.bodies)]
            for agent in self._agents
        ]
        self._waiting: dict[int, list[Sent]] = {}

    def interval(self, number: int, start_us: int) -> list[Sent]:
        """Return what is published in an interval, in the order in which it is.

        Parameters
        ----------
        number
            Of the interval; to be asked for one after the other, from 0.
        start_us
            Event time at which interval 0 begins, microseconds.
        """
        shape, chance = self.shape, self._random
        begin_us = start_us + number * shape.interval_ns // US_NS
        due = [
            self._round(agent, number, begin_us + agent.phase_us + self._late_us())
            for agent in self._agents
        ]
        due.sort(key=lambda sent: sent.at_ms)
        out: list[Sent] = self._waiting.pop(number, [])
        for sent in due:
            luck = chance.random()
            if luck < shape.late:
                self._later(number + chance.randint(*LATE_ROUNDS), sent)
                continue
            out.append(sent)
            if luck > 1 - shape.twice:
                self._later(number + chance.randint(*AGAIN_ROUNDS), sent)
        return out

    def rounds(self, intervals: int, start_us: int) -> Iterator[Sent]:
        """Yield what is published in so many intervals."""
        for number in range(intervals):
            yield from self.interval(number, start_us)

    def _later(self, number: int, sent: Sent) -> None:
        self._waiting.setdefault(number, []).append(sent)

    def _late_us(self) -> int:
        return int(self._random.expovariate(US_NS / LATE_NS))

    def _round(self, agent: "_Agent", number: int, started_us: int) -> Sent:
        chance = self._random
        if not agent.cut_left and chance.random() < self.shape.cut:
            agent.cut_left = self.shape.cut_rounds
            agent.cut_place = chance.randrange(self.shape.per_round)
        place: int | None = None
        if agent.cut_left:
            agent.cut_left -= 1
            place = agent.cut_place
        lost = chance.random() < self.shape.lost * self.shape.per_round
        head = self._head(agent, number, started_us)
        at_ms = started_us // 1000
        if place is None and not lost:
            value = head + chance.choice(self._bodies[agent.number])
            return Sent(agent.key, value, at_ms, self.shape.per_round, None)
        results = self._results(agent)
        if place is not None:
            lose(results, place, again=CONFIRM, answered=False)
        else:
            lose(results, chance.randrange(self.shape.per_round), again=1, answered=True)
        cut = None if place is None else (agent.src[place], agent.dst[place])
        return Sent(agent.key, head + self._body(agent, results), at_ms, len(results), cut)

    def _head(self, agent: "_Agent", number: int, started_us: int) -> bytes:
        return round_head(self._codec, agent.header, number, started_us)

    def _body(self, agent: "_Agent", results: list[dict[str, Any]]) -> bytes:
        return round_body(self._codec, agent.header, results)

    def _results(self, agent: "_Agent") -> list[dict[str, Any]]:
        """Return a round's results, all answered."""
        offset, rtt, *delays = agent.draw(self._rng)
        columns = [offset - offset % RESOLUTION_NS, rtt, *(d - d % RESOLUTION_NS for d in delays)]
        return [
            {
                "src": src, "dst": dst, "flow": 0, "sent_offset_ns": offset,
                "transport": TRANSPORT, "status": OK, "rtt_ns": rtt, "prober_delay_ns": prober,
                "responder_delay_ns": responder, "clock": ClockSource.HARDWARE.value,
            }
            for src, dst, offset, rtt, prober, responder in zip(
                agent.src, agent.dst, *(c.tolist() for c in columns), strict=True
            )
        ]  # fmt: skip


class _Agent:
    """Names, phase and paths of an agent; whether one of its 5-tuples is cut off."""

    def __init__(self, number: int, shape: LoadShape, rng: np.random.Generator) -> None:
        self.number = number
        name = f"job7-w{number}"
        self.key = f"agent-{name}".encode()
        # Targets are on the same rail of other workers, as ping lists have it.
        pairs = shuffled(
            (
                (f"{name}/r{rail}", f"job7-w{(number + 1 + k) % max(shape.agents, 64)}/r{rail}")
                for k in range(shape.targets)
                for rail in range(shape.rnics)
            ),
            self.key.decode(),
        )
        self.src, self.dst = [src for src, _ in pairs], [dst for _, dst in pairs]
        self.phase_us = stagger_ns(name, shape.interval_ns) // US_NS
        self.header: dict[str, Any] = {
            "cluster": CLUSTER, "agent_id": self.key.decode(), "host_id": f"host-{number}",
            "incarnation": 1_790_000_000_000_000_000 + number, "interval_ns": shape.interval_ns,
            "pinglist_version": 3, "producer_version": "0.1.0",
        }  # fmt: skip
        self.cut_left = self.cut_place = 0
        count = len(pairs)
        self._base_ns = BASE_NS * np.exp(rng.normal(0.0, PATH_SIGMA, count))
        self._slot_ns = np.array(spread_ns(count, min(SPREAD_NS, shape.interval_ns)), np.int64)

    def draw(self, rng: np.random.Generator) -> tuple[Int64s, ...]:
        """Return offsets, round trips, delays of prober and of responder of one round, ns."""
        count = len(self.src)
        # A slot's timer fires late, its probes leave one after another.
        first = np.searchsorted(self._slot_ns, self._slot_ns)
        slots, slot = np.unique(first, return_inverse=True)
        wake = WAKE_NS + rng.exponential(WAKE_MORE_NS, len(slots))[slot]
        sent = np.cumsum(SEND_NS + SEND_MORE_NS * np.exp(rng.normal(0.0, SEND_SIGMA, count)))
        offset = self._slot_ns + wake + sent - sent[first]
        rtt = self._base_ns * np.exp(rng.normal(0.0, PROBE_SIGMA, count))
        tail = rng.random(count) < TAIL_RATE
        rtt += tail * np.minimum(TAIL_NS * (1 + rng.pareto(TAIL_SHAPE, count)), MAX_TAIL_NS)
        prober = PROBER_DELAY_NS * np.exp(rng.normal(0.0, PROBER_SIGMA, count))
        responder = RESPONDER_DELAY_NS * np.exp(rng.normal(0.0, RESPONDER_SIGMA, count))
        return tuple(np.rint(c).astype(np.int64) for c in (offset, rtt, prober, responder))


def lose(results: list[dict[str, Any]], place: int, *, again: int, answered: bool) -> None:
    """Let the probe at `place` be lost, and send it `again` so often; the last may be answered."""
    answer = results[place]
    status = LOST[place % len(LOST)]
    lost = {
        **answer, "status": status, "rtt_ns": None, "prober_delay_ns": None,
        "responder_delay_ns": None, "clock": ClockSource.SOFTWARE.value,
    }  # fmt: skip
    results[place] = lost
    for attempt in range(1, again + 1):
        offset = round_down_ns(answer["sent_offset_ns"] + attempt * TIMEOUT_NS)
        back = answered and attempt == again
        results.append({**(answer if back else lost), "sent_offset_ns": offset})
    results.sort(key=lambda r: int(r["sent_offset_ns"]))
