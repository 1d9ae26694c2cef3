"""The latest starts of each agent's rounds: they say whether a round is certainly new.

A round with a lost probe waits for its timeout, and arrives behind later ones of its agent. To look
for its identity among all rounds of minutes takes longer than to count it.

`latest_ns`, shape (agents,), holds the largest start of each agent, and `earlier_ns`, of the shape
(agents, EARLIER), the next ones, the largest first.
"""

from typing import Final

from schemas.columns.arrays import Int64s
from schemas.columns.compiled import compiled
from streams.columns.rounds import NEVER_NS

# At one round a second, a round is this many seconds late at most.
EARLIER: Final = 7


@compiled
def is_new(latest_ns: Int64s, earlier_ns: Int64s, agent: int, started_ns: int) -> bool:
    """Return whether certainly no round of the agent began then."""
    if started_ns > latest_ns[agent]:
        return True
    known = started_ns == latest_ns[agent]
    for place in range(EARLIER):
        known |= started_ns == earlier_ns[agent, place]
    return bool(not known and started_ns > earlier_ns[agent, EARLIER - 1])


@compiled
def note_start(latest_ns: Int64s, earlier_ns: Int64s, agent: int, started_ns: int) -> None:
    """Note a round that is accepted.

    What an agent sent before its first round is not known: it may have been here and forgotten.
    """
    if latest_ns[agent] == NEVER_NS:
        latest_ns[agent] = started_ns
        for place in range(EARLIER):
            earlier_ns[agent, place] = started_ns
        return
    moved_ns = started_ns
    if moved_ns > latest_ns[agent]:
        latest_ns[agent], moved_ns = moved_ns, latest_ns[agent]
    for place in range(EARLIER):
        if moved_ns > earlier_ns[agent, place]:
            earlier_ns[agent, place], moved_ns = moved_ns, earlier_ns[agent, place]
