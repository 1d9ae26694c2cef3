"""Agents of one partition with faults of their own, one of them with a wrong clock. Pure.

The same seed gives the same round trips whatever the clock says: only `started_at` differs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ops.bench.resilience.mutations import mutations, shifted
from ops.bench.rig.load import CLUSTER
from schemas.bounds import MAX_AHEAD_NS
from schemas.codec import Codec
from schemas.enums import AnomalyKind, ClockSource, ProbeStatus, Transport
from schemas.topics import PROBE_ROUND
from schemas.units import HOUR_NS, MS_NS, SECOND_NS, US_NS

AGENTS: Final = tuple(f"agent-{n}" for n in range(6))
TARGETS: Final = 3
FLOWS: Final = 2
# A round's probes are 10 ms apart; a lost one is sent twice more.
PROBE_STEP_NS: Final = 10 * MS_NS
TIMEOUT_NS: Final = 250 * MS_NS
ATTEMPTS: Final = 3
RTT_NS: Final = 1_500_000
SIGMA: Final = 0.1
# A round reaches the broker after its last timeout.
COLLECTED_NS: Final = SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to flow 0 of one target of an agent, seconds of true time."""

    kind: AnomalyKind
    target: int
    begin_s: int
    end_s: int
    loss: float = 0.0
    delay_ns: int = 0

    def at(self, second: int) -> bool:
        """Whether the fault is there in a second."""
        return self.begin_s <= second < self.end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A wrong clock: how far (ns) it is ahead, by true time (ns since the world's beginning)."""

    name: str
    ahead_ns: Callable[[int], int]


FIFTY_MINUTES_NS: Final = 3_000 * SECOND_NS


def _constant(ahead_ns: int) -> Callable[[int], int]:
    return lambda _: ahead_ns


def _stepping(since_ns: int) -> int:
    if 130 * SECOND_NS <= since_ns < 150 * SECOND_NS:
        return HOUR_NS
    return -HOUR_NS if 170 * SECOND_NS <= since_ns < 190 * SECOND_NS else 0


def _first_round(since_ns: int) -> int:
    return FIFTY_MINUTES_NS if since_ns < SECOND_NS else 0


WRONG_CLOCKS: Final = (
    Clock(name="+10 s", ahead_ns=_constant(10 * SECOND_NS)),
    Clock(name="+40 s", ahead_ns=_constant(40 * SECOND_NS)),
    Clock(name="+50 min", ahead_ns=_constant(FIFTY_MINUTES_NS)),
    Clock(name="first round +50 min", ahead_ns=_first_round),
    Clock(name="+30 d", ahead_ns=_constant(30 * 24 * HOUR_NS)),
    Clock(name="-1 h", ahead_ns=_constant(-HOUR_NS)),
    Clock(name="stepping ±1 h", ahead_ns=_stepping),
    Clock(name="drifting 1 %", ahead_ns=lambda since_ns: since_ns // 100),
    Clock(name="creeping to +55 s", ahead_ns=lambda since_ns: min(since_ns // 5, 55 * SECOND_NS)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Round:
    """A round on its way; `since_ns`: its true start, counted from the world's beginning."""

    agent: str
    since_ns: int
    arrival_ns: int
    datum: dict[str, Any]

    @property
    def refused(self) -> bool:
        """Whether its time is further ahead of its arrival than bounds allow."""
        return int(self.datum["started_at"]) * US_NS > self.arrival_ns + MAX_AHEAD_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockWorld:
    """Agents that probe once a second from `begin_ns` on; each has a cut, losses and delays.

    Attributes
    ----------
    healthy_s
        Seconds before the first fault: latency is judged against windows before it.
    fault_s
        How long losses and delays last; a cut lasts a third of it.
    step_s
        How much later each agent's faults begin than those of the one before.
    agents
        Their names. The clock of the last one is wrong: it may step before its faults.
    """

    begin_ns: int
    agents: tuple[str, ...] = AGENTS
    seconds: int = 360
    healthy_s: int = 120
    fault_s: int = 60
    step_s: int = 25
    seed: int = 7

    @property
    def wrong(self) -> str:
        """The agent whose clock is wrong."""
        return self.agents[-1]

    def faults(self, agent: int) -> tuple[Fault, ...]:
        """Return the faults of an agent."""
        begin_s = self.healthy_s + self.step_s * agent
        end_s = begin_s + self.fault_s
        return (
            Fault(kind=AnomalyKind.CONNECTIVITY, target=0, begin_s=begin_s,
                  end_s=begin_s + self.fault_s // 3, loss=1.0),
            Fault(kind=AnomalyKind.LOSS, target=1, begin_s=begin_s, end_s=end_s, loss=0.3),
            Fault(kind=AnomalyKind.LATENCY, target=2, begin_s=begin_s, end_s=end_s,
                  delay_ns=8 * MS_NS),
        )  # fmt: skip

    def rounds(self) -> list[Round]:
        """Return all rounds in the order of their arrival; all clocks are right."""
        found = [each for agent in range(len(self.agents)) for each in self._of_agent(agent)]
        return sorted(found, key=lambda each: each.arrival_ns)

    def with_clock(self, rounds: Sequence[Round], clock: Clock) -> list[Round]:
        """Return the rounds as they are when the last agent has that clock."""
        return [_misdated(each, clock) if each.agent == self.wrong else each for each in rounds]

    def with_mutations(self, rounds: Sequence[Round]) -> list[Round]:
        """Return the rounds, and behind some of the last agent's the same with one field mutated.

        Each of the mutated ones comes a second after the other, from a minute before the faults.
        """
        out: list[Round] = []
        begin_ns = (self.healthy_s - 60) * SECOND_NS
        own = next(r for r in rounds if r.agent == self.wrong and r.since_ns >= begin_ns)
        # What takes the longest to encode is left to the bench of records.
        waiting = [m for m in mutations(PROBE_ROUND, own.datum) if not m.value.endswith(" items")]
        for each in rounds:
            out.append(each)
            if each.agent == self.wrong and each.since_ns >= begin_ns and waiting:
                field = waiting.pop(0)
                by_us = (each.since_ns - own.since_ns) // US_NS
                datum = shifted(field.datum, by_us)
                if field.field == "started_at":
                    datum = field.datum
                out.append(replace(each, datum=datum))
        return out

    def refused_paths(self, rounds: Sequence[Round]) -> set[tuple[str, str]]:
        """Return the last agent's paths of whose faults rounds are refused: they are ahead."""
        seconds = {r.datum["round_seq"] for r in rounds if r.agent == self.wrong and r.refused}
        return {
            (f"{self.wrong}/r0", f"target-{fault.target}/r0")
            for fault in self.faults(len(self.agents) - 1)
            if any(fault.at(second) for second in seconds)
        }

    def _of_agent(self, agent: int) -> Iterator[Round]:
        rng = np.random.default_rng((self.seed, agent))
        phase_ns = agent * SECOND_NS // len(self.agents)
        for second in range(self.seconds):
            since_ns = second * SECOND_NS + phase_ns
            true_ns = self.begin_ns + since_ns
            datum = {
                "cluster": CLUSTER, "agent_id": self.agents[agent], "host_id": f"host-{agent}",
                "incarnation": 1, "round_seq": second,
                "started_at": true_ns // US_NS,
                "interval_ns": SECOND_NS, "pinglist_version": 1, "producer_version": "bench",
                "results": self._results(agent, second, rng),
            }  # fmt: skip
            yield Round(self.agents[agent], since_ns, true_ns + COLLECTED_NS, datum)

    def _results(self, agent: int, second: int, rng: np.random.Generator) -> list[dict[str, Any]]:
        found = []
        for target in range(TARGETS):
            here = [f for f in self.faults(agent) if f.target == target and f.at(second)]
            for flow in range(FLOWS):
                hit = here if flow == 0 else []
                loss = max((fault.loss for fault in hit), default=0.0)
                delay_ns = sum(fault.delay_ns for fault in hit)
                for attempt in range(ATTEMPTS):
                    lost = rng.random() < loss
                    rtt_ns = int(RTT_NS * np.exp(SIGMA * rng.standard_normal())) + delay_ns
                    offset_ns = (target * FLOWS + flow) * PROBE_STEP_NS + attempt * TIMEOUT_NS
                    ends = f"{self.agents[agent]}/r0", f"target-{target}/r0", flow
                    found.append(_result(*ends, offset_ns, None if lost else rtt_ns))
                    if not lost:
                        break
        return sorted(found, key=lambda result: int(result["sent_offset_ns"]))


def _result(
    src: str, dst: str, flow: int, sent_offset_ns: int, rtt_ns: int | None
) -> dict[str, Any]:
    status = ProbeStatus.TIMEOUT if rtt_ns is None else ProbeStatus.OK
    return {
        "src": src, "dst": dst, "flow": flow, "sent_offset_ns": sent_offset_ns,
        "transport": Transport.UDP.value, "status": status.value, "rtt_ns": rtt_ns,
        "prober_delay_ns": None, "responder_delay_ns": None if rtt_ns is None else 20_000,
        "clock": ClockSource.KERNEL.value,
    }  # fmt: skip


def _misdated(one: Round, clock: Clock) -> Round:
    started_at = one.datum["started_at"] + clock.ahead_ns(one.since_ns) // US_NS
    return replace(one, datum={**one.datum, "started_at": started_at})


@dataclass(frozen=True, slots=True)
class LoggedRound:
    """A round as it stands in a partition's log; `results`: how many it has."""

    raw: bytes
    number: int
    arrival_ns: int
    results: int

    def value(self) -> bytes:
        """Return its bytes."""
        return self.raw

    def offset(self) -> int:
        """Return its place in the log."""
        return self.number

    def timestamp(self) -> tuple[int, int]:
        """Return the time of its arrival, as a client does."""
        return 2, self.arrival_ns // MS_NS


def logged(rounds: Sequence[Round], codec: Codec) -> list[LoggedRound]:
    """Return the rounds as one partition's log holds them; what no encoder writes is left out."""
    found: list[LoggedRound] = []
    for each in rounds:
        with suppress(ValueError, OverflowError, TypeError):
            raw = codec.encode_datum(PROBE_ROUND, each.datum)
            found.append(LoggedRound(raw, len(found), each.arrival_ns, len(each.datum["results"])))
    return found
