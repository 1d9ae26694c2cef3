"""What the sockets of a job's ranks say: bytes that nobody acknowledges, or that nobody reads.

Bytes that the peer's kernel has not acknowledged are on the network, or lost there. Bytes that it
has acknowledged and the peer's process has not read are the process's. A process that is stopped
has the latter, a cable that is cut the former.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from schemas.records import RankSocket, SocketBatch
from schemas.units import SECOND_NS

# The least time after which TCP sends again what was not acknowledged, where it has measured no
# round trip (RFC 6298, 2.1 and 2.4). What is outstanding for longer was sent at least twice.
STUCK_NS: Final = SECOND_NS
LOOPBACK: Final = ("127.", "::1")

# Local address and port, peer's address and port.
Ends = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True, order=True)
class Stuck:
    """A socket whose bytes are not acknowledged.

    `dst_rank` is None where nobody knows whose the other end is. `repeats` says whether the kernel
    is known to have sent again.
    """

    src_rank: int
    dst_rank: int | None
    unacked_bytes: int
    stalled_ns: int
    repeats: bool
    peer: str


@dataclass(slots=True)
class SocketState:
    """The sockets of a rank, and since when each has moved nothing.

    `still_ns` and `unread_ns` are times of arrival: since when the acknowledged and the received
    bytes of a socket are the same; `queued_ns`: since when some always waited to be sent. `moved`:
    since the batch before some socket has received bytes; `unread_moved`: one at which bytes lie
    unread all the same. `full`: sockets that have brought bytes to the peer since the batch before,
    and whose peer has room for no more: some wait to be sent, while all that was is acknowledged.
    """

    batch: SocketBatch
    arrived_ns: int
    still_ns: dict[Ends, int] = field(default_factory=dict)
    unread_ns: dict[Ends, int] = field(default_factory=dict)
    queued_ns: dict[Ends, int] = field(default_factory=dict)
    moved: bool = False
    unread_moved: bool = False
    full: tuple[Ends, ...] = ()
    _before: dict[Ends, RankSocket] = field(default_factory=dict)
    # Whose the other ends of `full` are, as far as that was known once.
    _peers: dict[Ends, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take the first batch."""
        self.apply_batch(self.batch, self.arrived_ns)

    def apply_batch(self, batch: SocketBatch, arrived_ns: int) -> None:
        """Apply a later batch of the rank."""
        self.batch, self.arrived_ns = batch, arrived_ns
        still, unread, queued, now = {}, {}, {}, {}
        full = []
        self.moved = self.unread_moved = False
        for socket in batch.sockets:
            ends = ends_of(socket)
            before = self._before.get(ends)
            same = before is not None and before.acked_bytes == socket.acked_bytes
            still[ends] = self.still_ns.get(ends, arrived_ns) if same else arrived_ns
            if before is not None and not same and is_full(socket):
                full.append(ends)
            same = before is not None and before.received_bytes == socket.received_bytes
            if before is not None and not same:
                self.moved = True
                self.unread_moved |= bool(socket.unread_bytes)
            same &= bool(socket.unread_bytes)
            unread[ends] = self.unread_ns.get(ends, arrived_ns) if same else arrived_ns
            waits = before is not None and before.queued_bytes and socket.queued_bytes
            queued[ends] = self.queued_ns.get(ends, arrived_ns) if waits else arrived_ns
            now[ends] = socket
        self.still_ns, self.unread_ns, self.queued_ns = still, unread, queued
        self._before, self.full = now, tuple(full)
        if self._peers:
            self._peers = {ends: peer for ends, peer in self._peers.items() if ends in now}

    def full_peers(self, states: Mapping[int, "SocketState"]) -> set[int]:
        """Return the ranks that have no room for what this one has written.

        Parameters
        ----------
        states
            All ranks of the job.
        """
        found = set()
        for ends in self.full:
            peer = self._before[ends].peer_rank
            if peer is None:
                peer = self._peers.get(ends)
            if peer is None and (peer := self._peer_among(ends, states)) is not None:
                self._peers[ends] = peer
            if peer is not None:
                found.add(peer)
        return found

    def _peer_among(self, ends: Ends, states: Mapping[int, "SocketState"]) -> int | None:
        """Return whose the other end of a socket is: of a loopback's only within the host."""
        far, local = (*ends[2:], *ends[:2]), ends[2].startswith(LOOPBACK)
        held = [
            rank
            for rank, state in states.items()
            if far in state._before and (not local or state.batch.host_id == self.batch.host_id)
        ]
        return held[0] if len(held) == 1 else None

    @property
    def known(self) -> bool:
        """Whether its sockets could be read."""
        return self.batch.missing_reason is None

    @property
    def outstanding(self) -> int:
        """Bytes that are queued, not acknowledged or not read."""
        return sum(
            (s.queued_bytes or 0) + (s.unacked_bytes or 0) + (s.unread_bytes or 0)
            for s in self.batch.sockets
        )

    def unread_bytes(self) -> int:
        """Return the bytes that have lain there for a while and nobody reads."""
        return sum(
            socket.unread_bytes or 0
            for socket in self.batch.sockets
            if self.arrived_ns - self.unread_ns[ends_of(socket)] >= STUCK_NS
        )


def is_full(socket: RankSocket) -> bool:
    """Return whether bytes wait because the peer has no room for them, not for the network."""
    return bool(socket.queued_bytes) and socket.unacked_bytes == 0


def ends_of(socket: RankSocket) -> Ends:
    """Return both ends of a socket, its own first."""
    return socket.local_address, socket.local_port, socket.peer_address, socket.peer_port


def stuck_flows(states: Mapping[int, SocketState], ranks: Iterable[int]) -> list[Stuck]:
    """Return the sockets of some ranks whose bytes are not acknowledged, longest first.

    Parameters
    ----------
    states
        All ranks of the job: the other end of a socket is looked for among theirs.
    ranks
        Either end is one of them.
    """
    wanted = set(ranks)
    owners: Mapping[Ends, list[tuple[int, str]]] | None = None
    found = []
    for rank, state in states.items():
        for socket in state.batch.sockets:
            if not socket.unacked_bytes:
                continue
            ends = ends_of(socket)
            stalled_ns = socket.stalled_ns
            if stalled_ns is None:
                stalled_ns = state.arrived_ns - state.still_ns[ends]
            if stalled_ns < STUCK_NS:
                continue
            # Of a job that is well there are none: nothing is looked up then.
            owners = _owners(states) if owners is None else owners
            peer = _peer(socket, owners, state.batch.host_id)
            if rank in wanted or peer in wanted:
                repeats = bool(socket.backoff) or bool(socket.retransmits)
                place = f"{socket.peer_address}:{socket.peer_port}"
                found.append(Stuck(rank, peer, socket.unacked_bytes, stalled_ns, repeats, place))
    return sorted(found, key=lambda s: (-s.stalled_ns, _place_of(s)))


def pairs_of(states: Mapping[int, SocketState]) -> Iterator[tuple[int, int, Ends]]:
    """Yield rank, peer and ends of each socket whose other end is a rank's, too."""
    owners = _owners(states)
    for rank, state in states.items():
        for socket in state.batch.sockets:
            peer = _peer(socket, owners, state.batch.host_id)
            if peer is not None:
                yield rank, peer, ends_of(socket)


def queued_flows(states: Mapping[int, SocketState]) -> list[Stuck]:
    """Return the sockets in which bytes have waited to be sent for two readings, most first.

    `unacked_bytes` of each are then those that wait, `stalled_ns` how long there are some.
    """
    owners = _owners(states)
    found = []
    for rank, state in states.items():
        for socket in state.batch.sockets:
            ends = ends_of(socket)
            waited_ns = state.arrived_ns - state.queued_ns[ends]
            if not socket.queued_bytes or waited_ns < STUCK_NS:
                continue
            peer = _peer(socket, owners, state.batch.host_id)
            if peer is not None:
                place = f"{socket.peer_address}:{socket.peer_port}"
                found.append(Stuck(rank, peer, socket.queued_bytes, waited_ns, False, place))
    return sorted(found, key=lambda s: (-s.unacked_bytes, _place_of(s)))


def _place_of(flow: Stuck) -> tuple[int, int, str]:
    """Return what flows are ordered by; of some the peer is not known."""
    return flow.src_rank, -1 if flow.dst_rank is None else flow.dst_rank, flow.peer


def common_ranks(flows: Iterable[Stuck], hosts: Mapping[int, str] | None = None) -> tuple[int, ...]:
    """Return the rank that all stuck flows have in common, or ranks of one host; else all ranks.

    Of one flow these are both: which end it is cannot be told.

    Parameters
    ----------
    hosts
        Of ranks, if known.
    """
    pairs = [{f.src_rank} | ({f.dst_rank} if f.dst_rank is not None else set()) for f in flows]
    if not pairs:
        return ()
    every = set().union(*pairs)
    if common := set.intersection(*pairs):
        return tuple(sorted(common))
    held = [{hosts[r] for r in pair if r in hosts} for pair in pairs] if hosts else []
    shared = set.intersection(*held) if held else set[str]()
    if hosts is not None and len(shared) == 1:
        return tuple(sorted(r for r in every if hosts.get(r) in shared))
    return tuple(sorted(every))


def _owners(states: Mapping[int, SocketState]) -> dict[Ends, list[tuple[int, str]]]:
    """Return for the ends of each socket the ranks, with hosts, that have it."""
    owners: dict[Ends, list[tuple[int, str]]] = defaultdict(list)
    for rank, state in states.items():
        for socket in state.batch.sockets:
            owners[ends_of(socket)].append((rank, state.batch.host_id))
    return owners


def _peer(
    socket: RankSocket, owners: Mapping[Ends, list[tuple[int, str]]], host_id: str
) -> int | None:
    """Return whose the other end of a socket is: of a loopback's only within the host."""
    if socket.peer_rank is not None:
        return socket.peer_rank
    address, port, peer_address, peer_port = ends_of(socket)
    held = owners.get((peer_address, peer_port, address, port), [])
    if peer_address.startswith(LOOPBACK):
        held = [owner for owner in held if owner[1] == host_id]
    return held[0][0] if len(held) == 1 else None
