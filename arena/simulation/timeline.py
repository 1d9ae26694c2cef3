"""The records of a scenario in the order in which topics hold them."""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from arena.simulation.agents import AgentRound
from arena.simulation.setup import Rec
from arena.simulation.world import Second, Simulation, World
from schemas.units import SECOND_NS

# A round reaches up to two timeouts beyond its second, and a trace after a loss is done
# two timeouts later: what all that is decided by must be there before.
LEAD_S: Final = 4


@dataclass(frozen=True, slots=True)
class Slice:
    """One second: rounds that began in it, and records of the other topics.

    The records lead: they are those of the second `LEAD_S` later.
    """

    begin_ns: int
    records: list[Rec]
    rounds: list[AgentRound]
    probes: int


def timeline(world: World, *, rounds_only: bool = False) -> Iterator[Slice]:
    """Yield a world's seconds, each topic's records ordered by time; or its rounds only."""
    heap: list[tuple[int, int, Rec]] = []
    waiting: deque[Second] = deque()
    count = 0
    early: list[Rec] = []
    last_ns = 0
    for second in Simulation(world).run(rounds_only=rounds_only):
        for rec in second.records:
            heapq.heappush(heap, (rec.at_ns, count, rec))
            count += 1
        last_ns = second.begin_ns + SECOND_NS
        early += _before(heap, last_ns)
        waiting.append(second)
        if len(waiting) > LEAD_S:
            yield _slice(waiting.popleft(), early)
            early = []
    early += _before(heap, last_ns + LEAD_S * SECOND_NS)
    while waiting:
        yield _slice(waiting.popleft(), early)
        early = []


def _before(heap: list[tuple[int, int, Rec]], end_ns: int) -> list[Rec]:
    found = []
    while heap and heap[0][0] < end_ns:
        found.append(heapq.heappop(heap)[2])
    return found


def _slice(second: Second, records: list[Rec]) -> Slice:
    rounds = sorted(second.rounds, key=lambda r: (r.started_at, r.host))
    return Slice(second.begin_ns, records, rounds, second.probes)
