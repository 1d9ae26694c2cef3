"""Which rounds count: the partition's clock, its guard against jumps, duplicates.

The watermark is the largest `started_at` accepted. An agent whose clock is
ahead must not close everybody's windows: an advance of more than a minute is
believed only when a second agent says the same, or when five rounds in a row,
without any other between, agree (then nobody is there to object).
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from schemas.columns.arrays import Int64s
from streams.columns.rounds import NEVER_NS
from streams.columns.table import grown
from streams.config import MAX_ADVANCE_NS

CONFIRMING_ROUNDS: Final = 5
ROUNDS_IN_CHUNK: Final = 4_096

RoundId = tuple[str, int, int, int]


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


def advance_clock(
    clock: ClockState, agent: str, started_ns: int, reach_ns: int
) -> tuple[ClockState, bool]:
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
    on nothing older than the round itself. A round that began after all others of
    its agent, as nearly every one does, is looked for nowhere.

    Attributes
    ----------
    latest_ns : (agents,) int64; largest start of each agent's rounds, by the agent's number
    rounds : (ROUNDS_IN_CHUNK, 5) int64; agent, incarnation, number, start, watermark at
        acceptance; the first `used[0]` rows are set
    """

    def __init__(self, horizon_ns: int) -> None:
        self.horizon_ns = horizon_ns
        self._numbers: dict[str, int] = {}
        self._full: deque[Int64s] = deque()
        self.latest_ns = np.full(16, NEVER_NS, np.int64)
        self.rounds = np.zeros((ROUNDS_IN_CHUNK, 5), np.int64)
        self.used = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return int(self.used[0]) + sum(map(len, self._full))

    def number(self, agent: str) -> int:
        """Return the agent's number; a new agent gets one."""
        number = self._numbers.setdefault(agent, len(self._numbers))
        if number == len(self.latest_ns):
            self.latest_ns = grown(self.latest_ns, 2 * number, NEVER_NS)
        return number

    def seen_before(self, identity: RoundId, watermark_ns: int) -> bool:
        """Return whether the round was here before; remember it."""
        oldest_ns = watermark_ns - self.horizon_ns
        number = self.number(identity[0])
        row = (number, *identity[1:])
        if identity[3] <= self.latest_ns[number] and self._holds(row, oldest_ns):
            return True
        self.latest_ns[number] = max(self.latest_ns[number], identity[3])
        self.make_room(oldest_ns)
        self.rounds[self.used[0]] = (*row, watermark_ns)
        self.used[0] += 1
        return False

    def make_room(self, oldest_ns: int) -> None:
        """Make room for another round; drop chunks whose rounds are all older than `oldest_ns`."""
        if self.used[0] == len(self.rounds):
            self._full.append(self.rounds)
            self.rounds, self.used = np.zeros_like(self.rounds), np.zeros_like(self.used)
        while self._full and self._full[0][-1, -1] < oldest_ns:
            self._full.popleft()

    def _holds(self, row: tuple[int, int, int, int], oldest_ns: int) -> bool:
        wanted = np.array(row)
        for rounds in (*self._full, self.rounds[: self.used[0]]):
            # Few began in the same microsecond.
            near = rounds[np.flatnonzero(rounds[:, 3] == row[3])]
            if bool(((near[:, :4] == wanted).all(axis=1) & (near[:, 4] >= oldest_ns)).any()):
                return True
        return False
