"""For how long no byte has moved between a job's ranks, and for how long none usually does.

Of a job whose ranks record no operations these bytes are its only progress. What a rank says to a
service of the job does not count: JAX's coordinator and PyTorch's store live in the process of rank
0, and are told that ranks live while nothing else goes on. That process is a client of its own
service, as no rank is of itself in a collective, and so shows the port.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from localizer.collectives.sockets import LOOPBACK, Ends, SocketState, ends_of, pairs_of
from localizer.collectives.usual_waits import UsualWaits
from schemas.units import SECOND_NS, US_NS

# A look at the sockets of so many ranks takes some milliseconds; of more it is made less often.
LOOKED_AT_ONCE: Final = 256
# A collector reads the sockets of each rank so often.
READING_NS: Final = 2 * SECOND_NS
# In most of the readings of a minute at least: the data of a job whose connections move less often,
# as where RDMA carries it and TCP only what sets it up, goes elsewhere.
STEADY_MOVES: Final = 30


@dataclass(slots=True)
class Stillness:
    """When something moved between the ranks of a job.

    Attributes
    ----------
    moved_ns
        When last, by arrival at the broker, to two seconds; 0: it was never seen in this attempt.
    usual
        How long nothing moved in this attempt, while all was well.
    """

    moved_ns: int = 0
    usual: UsualWaits = field(default_factory=UsualWaits)
    _next_ns: int = 0
    _begun_ns: int = 0
    _hung: bool = False
    _every_ns: int = READING_NS
    _looked_ns: int = 0
    _moves: deque[int] = field(default_factory=lambda: deque(maxlen=STEADY_MOVES))

    def begin_anew(self, now_ns: int) -> None:
        """Forget all: what other processes did says nothing of those that were started now."""
        self.moved_ns, self.usual = 0, UsualWaits()
        self._begun_ns, self._hung = now_ns, False
        self._moves.clear()

    def observe(self, states: Mapping[int, SocketState], now_ns: int, *, hung: bool) -> None:
        """Take in what the sockets say now.

        Parameters
        ----------
        hung
            Whether it is known why nothing moves: such a pause is not usual.
        """
        self._hung |= hung
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + SECOND_NS * max(1, len(states) // LOOKED_AT_ONCE)
        # Who asks may do so less often.
        self._every_ns, self._looked_ns = max(READING_NS, now_ns - self._looked_ns), now_ns
        moved_ns = last_move(states)
        if moved_ns <= max(self.moved_ns, self._begun_ns):
            return
        if self.moved_ns and not self._hung:
            self.usual.observe((moved_ns - self.moved_ns) // US_NS)
        self.moved_ns, self._hung = moved_ns, False
        self._moves.append(moved_ns)

    @property
    def steady(self) -> bool:
        """Whether bytes moved in most looks, for a while, before they ceased to."""
        if len(self._moves) < STEADY_MOVES:
            return False
        return self._moves[-1] - self._moves[0] <= 2 * STEADY_MOVES * self._every_ns


def last_move(states: Mapping[int, SocketState]) -> int:
    """Return when bytes were acknowledged last between two ranks (ns, by arrival); 0: none were."""
    services = frozenset(_services(states))
    newest = 0
    for rank, peer, ends in pairs_of(states):
        state = states[rank]
        if (
            peer != rank
            and peer in states
            and services.isdisjoint(_places(ends, state.batch.host_id))
        ):
            newest = max(newest, state.still_ns[ends])
    return newest


def _services(states: Mapping[int, SocketState]) -> Iterator[tuple[str, str, int]]:
    """Yield the ends of connections of a process to itself."""
    for state in states.values():
        held = {ends_of(socket) for socket in state.batch.sockets}
        for address, port, peer_address, peer_port in held:
            if (peer_address, peer_port, address, port) in held:
                yield from _places((address, port, peer_address, peer_port), state.batch.host_id)


def _places(ends: Ends, host_id: str) -> Iterator[tuple[str, str, int]]:
    """Yield both ends; a loopback's address is of its host."""
    for address, port in (ends[:2], ends[2:]):
        yield (host_id if address.startswith(LOOPBACK) else "", address, port)
