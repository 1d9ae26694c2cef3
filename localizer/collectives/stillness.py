"""For how long no byte has moved between a job's ranks, and for how long none usually does.

Of a job whose ranks record no operations these bytes are its only progress. What a rank says to a
service of the job does not count: JAX's coordinator and PyTorch's store live in the process of rank
0, and are told that ranks live while nothing else goes on. That process is a client of its own
service, as no rank is of itself in a collective, and so shows the port.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from localizer.collectives.sockets import LOOPBACK, Ends, SocketState, ends_of, pairs_of
from localizer.collectives.usual_waits import UsualWaits
from schemas.units import SECOND_NS, US_NS

# A look at the sockets of so many ranks takes some milliseconds; of more it is made less often.
LOOKED_AT_ONCE: Final = 256


@dataclass(slots=True)
class Stillness:
    """When something moved between the ranks of a job.

    Attributes
    ----------
    moved_ns
        When last, by arrival at the broker, to two seconds; 0: it was never seen.
    usual
        How long nothing moved, while all was well.
    """

    moved_ns: int = 0
    usual: UsualWaits = field(default_factory=UsualWaits)
    _next_ns: int = 0

    def observe(self, states: Mapping[int, SocketState], now_ns: int, *, hung: bool) -> None:
        """Take in what the sockets say now; a pause of a job that was told to hang is not usual."""
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + SECOND_NS * max(1, len(states) // LOOKED_AT_ONCE)
        moved_ns = last_move(states)
        if moved_ns <= self.moved_ns:
            return
        if self.moved_ns and not hung:
            self.usual.observe((moved_ns - self.moved_ns) // US_NS)
        self.moved_ns = moved_ns


def last_move(states: Mapping[int, SocketState]) -> int:
    """Return when bytes were acknowledged last between two ranks (ns, by arrival); 0: none were."""
    services = frozenset(_services(states))
    newest = 0
    for rank, peer, ends in pairs_of(states):
        state = states[rank]
        if peer != rank and services.isdisjoint(_places(ends, state.batch.host_id)):
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
