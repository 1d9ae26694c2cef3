"""What the kernel counts of a rank's connections, while bytes cross or stand.

Neighbours in a ring, and stages that follow each other, have a connection; ranks of one host use
shared memory. Bytes that cross a way which loses them are not acknowledged, and sent again. Bytes
for a process that is stopped are acknowledged and lie there, until its window is full and the
sender's queue fills. What waits because somebody else is behind has nothing outstanding.
"""

from collections.abc import Mapping
from math import log2
from typing import Final

from arena.training.engine import Engine, Op
from arena.training.program import Does
from arena.training.shape import RDMA, GroupShape
from arena.training.troubles import Trouble
from arena.training.wires import Edge, share
from arena.world.fabric import address
from schemas.records import RankSocket
from schemas.units import US_NS

# Linux's defaults for buffers of a connection that has been busy: 4 MB to send, 6 MB to receive,
# of which about half is data.
SEND_BUFFER: Final = 2_000_000
RECEIVE_BUFFER: Final = 1_000_000
IN_FLIGHT: Final = 250_000
# The message by which a rank says that it is ready, where nothing else crosses.
READY_BYTES: Final = 64
RTO_US: Final = 200_000
RTT_NS: Final = 60_000
LISTENING_PORT: Final = 20_000
CONNECTING_PORT: Final = 40_000
# What a job without TCP has: the connection by which its ranks found each other.
BOOTSTRAP_BYTES: Final = 4_096


class Connections:
    """The connections of a job's ranks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        shape = engine.shape
        self._peers: list[list[tuple[GroupShape, int]]] = [[] for _ in range(shape.ranks)]
        for group in shape.groups:
            neighbours = {frozenset(edge) for edge in engine.wires.edges(group)}
            for pair in sorted(map(sorted, neighbours)):
                low, high = pair
                self._peers[low].append((group, high))
                self._peers[high].append((group, low))
        # Bytes of operations that were read as done, by rank and group.
        self.done: dict[tuple[int, int], int] = {}

    def read(self, rank: int, launched: Mapping[int, Op], at_us: int) -> tuple[RankSocket, ...]:
        """Return a rank's connections at a time.

        Parameters
        ----------
        launched
            Operations that it has launched then and that are not among those `done`, the oldest
            first, by number.
        """
        first: dict[int, Op] = {}
        # By group, peer and direction: transfers cross both ways at once, also while an older one
        # waits for the peer.
        crossing: dict[tuple[int, int, Does], Op] = {}
        moved: dict[int, int] = {}
        for op in launched.values():
            number = op.group.number
            moved[number] = moved.get(number, 0) + round(op.step.n_bytes * _through(op, at_us))
            if op.ended is None or op.ended > at_us:
                first.setdefault(number, op)
                if op.peer is not None and _crosses(op, at_us):
                    crossing.setdefault((number, op.peer, op.step.does), op)
        rdma = self._engine.shape.transport == RDMA
        found = []
        for group, peer in self._peers[rank]:
            if self._is_gone(peer, at_us):
                continue
            if rdma:
                if group.number == 0:
                    found.append(self._socket(rank, peer, group, {}, BOOTSTRAP_BYTES))
                continue
            way = group.number, peer
            received = crossing.get((*way, Does.RECEIVE), first.get(group.number))
            mine = crossing.get((*way, Does.SEND), received)
            counted = self._counted(rank, peer, mine, _other(received, peer), at_us)
            done = self.done.get((rank, group.number), 0) + moved.get(group.number, 0)
            found.append(self._socket(rank, peer, group, counted, done))
        return tuple(found)

    def _is_gone(self, rank: int, at_us: int) -> bool:
        """Whether a rank's process has ended and its kernel said so to the peers."""
        run = self._engine.ranks[rank]
        exited = self._engine.trouble(rank, Trouble.EXITED)
        if exited is not None and exited.begin_us <= at_us:
            return True
        return run.ended_us is not None and run.ended_us <= at_us

    def _counted(
        self, rank: int, peer: int, op: Op | None, there: Op | None, at_us: int
    ) -> dict[str, int]:
        """Return what is out of the ordinary at a connection."""
        wires, edge = self._engine.wires, (rank, peer)
        since = self._standing_since(edge, at_us)
        crosses = op is not None and _crosses(op, at_us)
        if since is not None:
            if op is None or (op.launched < since and not crosses):
                return {}
            begun = op.meeting_begun if crosses else op.launched
            stalled = at_us - max(since, since if begun is None else begun)
            sends = crosses and self._sends(rank, peer, op)
            size = min(SEND_BUFFER, op.step.n_bytes) if sends else READY_BYTES
            tries = int(log2(stalled / RTO_US + 1))
            return {
                "unacked_bytes": min(size, IN_FLIGHT), "queued_bytes": max(0, size - IN_FLIGHT),
                "stalled_ns": stalled * US_NS, "retransmits": tries, "backoff": tries,
            }  # fmt: skip
        found = self._of_processes(rank, peer, op if crosses else None, there, at_us)
        if crosses and op is not None and self._sends(rank, peer, op):
            slow = wires.slowness(edge, at_us) if op.meeting and op.meeting.edges else 1.0
            lossy = wires.loss(edge, at_us)
            if op.ended is not None:
                found.setdefault("unacked_bytes", min(IN_FLIGHT, op.step.n_bytes))
                found["stalled_ns"] = round(
                    US_NS * (2 * RTO_US if lossy else 2_000) * share(rank, at_us)
                )
                if lossy:
                    found["retransmits"] = 1 + int(100 * lossy)
                if slow > 2.0:
                    found["queued_bytes"] = min(SEND_BUFFER, op.step.n_bytes)
        return found

    def _of_processes(
        self, rank: int, peer: int, op: Op | None, there: Op | None, at_us: int
    ) -> dict[str, int]:
        """Return what stopped or slow processes at either end leave in the buffers."""
        found: dict[str, int] = {}
        arrives = there is not None and _crosses(there, at_us) and self._sends(peer, rank, there)
        if there is not None and arrives and self._is_slow_reader(rank, at_us):
            found["unread_bytes"] = min(RECEIVE_BUFFER, there.step.n_bytes)
        if op is not None and self._is_slow_reader(peer, at_us) and self._sends(rank, peer, op):
            found["queued_bytes"] = min(SEND_BUFFER, op.step.n_bytes)
            found["unacked_bytes"] = 0
        return found

    def _is_slow_reader(self, rank: int, at_us: int) -> bool:
        slow = self._engine.trouble(
            rank, Trouble.STOPPED, Trouble.SLOW_SENDER, Trouble.SLOW_RECEIVER
        )
        return slow is not None and slow.at(at_us)

    def _standing_since(self, edge: Edge, at_us: int) -> int | None:
        down = [
            t.begin_us
            for rank in edge
            if (t := self._engine.trouble(rank, Trouble.HOST)) is not None and t.at(at_us)
        ]
        return min(down) if down else self._engine.wires.standing_since(edge, at_us)

    def _sends(self, rank: int, peer: int, op: Op) -> bool:
        """Whether a rank sends to that neighbour in an operation."""
        if op.peer is not None:
            return op.peer == peer and op.step.does is Does.SEND
        ring = op.group.ranks
        return ring[(ring.index(rank) + 1) % len(ring)] == peer

    def _socket(
        self, rank: int, peer: int, group: GroupShape, counted: Mapping[str, int], done: int
    ) -> RankSocket:
        ports = LISTENING_PORT + group.number, CONNECTING_PORT + group.number
        mine, other = ports if rank < peer else ports[::-1]
        values: dict[str, int] = {
            "queued_bytes": 0, "unacked_bytes": 0, "unread_bytes": 0, "sent_bytes": done,
            "acked_bytes": done, "received_bytes": done, "retransmits": 0, "rtt_ns": RTT_NS,
            "backoff": 0, "stalled_ns": 0, **counted,
        }  # fmt: skip
        values["sent_bytes"] += values["unacked_bytes"]
        return RankSocket(
            protocol="tcp", local_address=address(rank), local_port=mine,
            peer_address=address(peer), peer_port=other, **values,
        )  # fmt: skip


def _other(op: Op | None, peer: int) -> Op | None:
    """Return the same operation of a peer, if it has begun it too.

    Not the head of the peer's queue: what is known to end is no longer there.
    """
    meeting = None if op is None else op.meeting
    held = () if meeting is None else meeting.ops
    return next((other for rank, other in held if rank == peer), None)


def _crosses(op: Op, at_us: int) -> bool:
    """Whether an operation's bytes are on their way at a time, or stand there."""
    begun = op.meeting_begun
    return begun is not None and begun <= at_us and (op.ended is None or op.ended > at_us)


def _through(op: Op, at_us: int) -> float:
    """Return which share of an operation's bytes has crossed at a time."""
    begun = op.meeting_begun
    if op.ended is None or begun is None or at_us <= begun:
        return 0.0
    return 1.0 if at_us >= op.ended else (at_us - begun) / (op.ended - begun)
