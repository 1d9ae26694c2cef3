"""Sockets of ranks: whose they are, who is at the other end, how long bytes have waited; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from probers.collectives.sock_diag import SocketReading
from schemas.records import RankSocket

MAX_SOCKETS: Final = 4_096
TCP: Final = "tcp"
_LOOPBACK: Final = ("127.", "::1")

# A rank: task and number.
RankKey = tuple[str, int]
_Ends = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True)
class OwnedSocket:
    """A connection, whose it is, and in which network namespace (its inode)."""

    owner: RankKey
    namespace: int
    reading: SocketReading


@dataclass(frozen=True, slots=True)
class _Progress:
    acked_bytes: int | None
    since_ns: int


class SocketHistory:
    """Tells how long each connection has waited for an acknowledgement.

    The kernel says when the last one came. A connection that was idle for an hour before has not
    waited for an hour: it waits at most since the last reading at which nothing was outstanding.
    """

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], _Progress] = {}
        self._last_ns: int | None = None

    def observe(
        self, sockets: Iterable[OwnedSocket], now_ns: int
    ) -> dict[RankKey, tuple[RankSocket, ...]]:
        """Return the connections of each rank.

        Parameters
        ----------
        sockets
            All connections of all ranks of this host, read at one moment.
        now_ns
            That moment, by a clock that never goes back.
        """
        held = list(sockets)
        # What began to be outstanding since the last reading may have begun right after it.
        before_ns = now_ns if self._last_ns is None else self._last_ns
        peers = _peers(held)
        waits: dict[tuple[int, int], _Progress] = {}
        found: dict[RankKey, list[RankSocket]] = {}
        for one in held:
            reading, key = one.reading, (one.namespace, one.reading.inode)
            stalled_ns = 0
            if reading.unacked_bytes:
                known = self._waits.get(key)
                if known is None or known.acked_bytes != reading.acked_bytes:
                    known = _Progress(reading.acked_bytes, before_ns)
                waits[key] = known
                stalled_ns = now_ns - known.since_ns
                if reading.since_ack_ns is not None:
                    stalled_ns = min(stalled_ns, reading.since_ack_ns)
            owned = found.setdefault(one.owner, [])
            if len(owned) < MAX_SOCKETS:
                owned.append(_socket(reading, stalled_ns, peers.get(_far_end(one))))
        self._waits, self._last_ns = waits, now_ns
        return {owner: tuple(owned) for owner, owned in found.items()}


def _socket(reading: SocketReading, stalled_ns: int, peer: RankKey | None) -> RankSocket:
    return RankSocket(
        protocol=TCP,
        local_address=reading.local_address, local_port=reading.local_port,
        peer_address=reading.peer_address, peer_port=reading.peer_port,
        peer_rank=None if peer is None else peer[1],
        queued_bytes=reading.queued_bytes, unacked_bytes=reading.unacked_bytes,
        unread_bytes=reading.unread_bytes, sent_bytes=reading.sent_bytes,
        acked_bytes=reading.acked_bytes, received_bytes=reading.received_bytes,
        retransmits=reading.retransmits, rtt_ns=reading.rtt_ns, backoff=reading.backoff,
        stalled_ns=stalled_ns,
    )  # fmt: skip


_Place = tuple[str, int, _Ends]


def _peers(sockets: Iterable[OwnedSocket]) -> Mapping[_Place, RankKey]:
    """Return whose each end of a connection is, by task, namespace and ends."""
    return {_near_end(one): one.owner for one in sockets}


def _near_end(one: OwnedSocket) -> _Place:
    r = one.reading
    return _place(one, (r.local_address, r.local_port, r.peer_address, r.peer_port))


def _far_end(one: OwnedSocket) -> _Place:
    r = one.reading
    return _place(one, (r.peer_address, r.peer_port, r.local_address, r.local_port))


def _place(one: OwnedSocket, ends: _Ends) -> _Place:
    # Each namespace has a loopback of its own; other addresses of one job are unique.
    namespace = one.namespace if ends[0].startswith(_LOOPBACK) else 0
    return one.owner[0], namespace, ends
