"""Which rounds count: the partition's clock, its guard against jumps, duplicates.

The watermark is the largest `started_at` accepted. An agent whose clock is
ahead must not close everybody's windows: an advance of more than a minute is
believed only when a second agent says the same, or when five rounds in a row,
without any other between, agree (then nobody is there to object).
"""

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from streams.config import MAX_ADVANCE_NS

CONFIRMING_ROUNDS: Final = 5

RoundId = tuple[str, int, int, int]


class Intake(Enum):
    """What becomes of a round."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CLOCK_AHEAD = "clock_ahead"


@dataclass(frozen=True, slots=True)
class ClockState:
    """The partition's event-time clock; small enough to travel with a committed offset.

    Attributes
    ----------
    watermark_ns
        Largest `started_at` accepted; None before the first round.
    reach_ns
        Time of the latest probe of an accepted round: how far the partition has come.
    ahead_rounds, ahead_agent, ahead_ns
        Run of consecutive rounds that claim a jump: how many, the agent of the
        first, the latest claim.
    """

    watermark_ns: int | None = None
    reach_ns: int = 0
    ahead_rounds: int = 0
    ahead_agent: str = ""
    ahead_ns: int = 0


def step(clock: ClockState, agent: str, started_ns: int, reach_ns: int) -> tuple[ClockState, bool]:
    """Return the clock after a round, and whether the round is accepted.

    The result is a function of the arguments alone, and the watermark never
    goes back.
    """
    before = clock.watermark_ns
    if before is not None and started_ns - before > MAX_ADVANCE_NS:
        if clock.ahead_rounds == 0 or abs(started_ns - clock.ahead_ns) > MAX_ADVANCE_NS:
            return replace(clock, ahead_rounds=1, ahead_agent=agent, ahead_ns=started_ns), False
        rounds = clock.ahead_rounds + 1
        if agent == clock.ahead_agent and rounds < CONFIRMING_ROUNDS:
            return replace(clock, ahead_rounds=rounds, ahead_ns=started_ns), False
    watermark = started_ns if before is None else max(before, started_ns)
    return ClockState(watermark, max(clock.reach_ns, reach_ns)), True


class SeenRounds:
    """Identities of the rounds of the last `horizon_ns`.

    Older ones are forgotten: all their results are late by then anyway. The
    identity holds `started_at`, so that whether a round is a duplicate depends
    on nothing older than the round itself.
    """

    def __init__(self, horizon_ns: int) -> None:
        self._horizon_ns = horizon_ns
        self._known: set[RoundId] = set()
        # By time of acceptance; an out-of-order round is kept a little longer.
        self._order: deque[tuple[int, RoundId]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def seen_before(self, identity: RoundId, watermark_ns: int) -> bool:
        """Return whether the round was here before; remember it."""
        while self._order and self._order[0][0] < watermark_ns - self._horizon_ns:
            self._known.discard(self._order.popleft()[1])
        if identity in self._known:
            return True
        self._known.add(identity)
        self._order.append((watermark_ns, identity))
        return False
