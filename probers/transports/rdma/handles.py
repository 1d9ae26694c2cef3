"""Address handles of peers: known, being resolved, or not reachable. Pure.

A handle is made once for a GID and a flow label, and used for every probe. Making one may take a
second (`resolver`), so probes to a peer without one wait in a bounded queue while others go on.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from schemas.enums import ProbeStatus

# Peers that are kept, each with its handles by flow label; far more than an RNIC probes.
MAX_PEERS: Final = 2_048
# Callers that may wait for one GID: the probes of a round and their confirmations.
MAX_WAITING: Final = 64
# A peer that could not be resolved is tried again after this time, and after twice the time at
# each further failure: dead peers must not keep the resolver busy.
RETRY_NS: Final = 10**9
MAX_RETRY_NS: Final = 8 * 10**9
# A peer may have moved to another MAC address: while probes to it are lost, it is resolved again
# at this interval.
RENEW_NS: Final = 10 * 10**9


class Resolving(Protocol):
    """What resolves GIDs (`resolver.Resolver`)."""

    def want(self, gid: bytes) -> bool:
        """Ask for the way to a GID; return whether there was room."""
        ...


Make = Callable[[bytes, int], Any]
Waiting = Callable[[Any | None, ProbeStatus], None]


@dataclass(slots=True)
class _Peer:
    """A GID: its handles by flow label once it is resolved, and the callers that wait for that."""

    known: bool = False
    asked: bool = False
    handles: dict[int, Any] = field(default_factory=dict)
    waiting: list[tuple[int, Waiting]] = field(default_factory=list)
    status: ProbeStatus = ProbeStatus.UNREACHABLE
    failures: int = 0
    retry_ns: int = 0
    found_ns: int = 0


class Handles:
    """The handles of one RNIC.

    Parameters
    ----------
    make : makes a handle from a GID and a flow label, at once; raises OSError when it cannot
    """

    def __init__(self, resolver: Resolving, make: Make) -> None:
        self._resolver = resolver
        self._make = make
        self._peers: OrderedDict[bytes, _Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._peers)

    def with_handle(self, gid: bytes, label: int, now_ns: int, then: Waiting) -> None:
        """Call `then` with a handle and OK, or with None and why there is none: now, or later.

        Later is when `resolved` is called. If the queue is full, `then` gets None at once.
        """
        peer = self._peer(gid)
        if peer.known:
            self._call_with_handle(peer, gid, label, then)
        elif not peer.asked and now_ns < peer.retry_ns:
            then(None, peer.status)
        elif len(peer.waiting) >= MAX_WAITING:
            then(None, ProbeStatus.UNREACHABLE)
        else:
            peer.waiting.append((label, then))
            self._ask(peer, gid)

    def resolved(self, gid: bytes, status: ProbeStatus, now_ns: int) -> None:
        """Process a result of the resolver, and serve those who waited for it."""
        peer = self._peers.get(gid)
        if peer is None:
            return
        peer.asked = False
        peer.known = status is ProbeStatus.OK
        peer.failures = 0 if peer.known else peer.failures + 1
        wait_ns = min(RETRY_NS << max(0, peer.failures - 1), MAX_RETRY_NS)
        peer.status, peer.retry_ns, peer.found_ns = status, now_ns + wait_ns, now_ns
        peer.handles.clear()
        waiting, peer.waiting = peer.waiting, []
        for label, then in waiting:
            if peer.known:
                self._call_with_handle(peer, gid, label, then)
            else:
                then(None, status)

    def suspect(self, gid: bytes, now_ns: int) -> None:
        """Resolve a GID again after a probe to it was lost: its MAC address may have changed."""
        peer = self._peers.get(gid)
        if peer is not None and peer.known and now_ns - peer.found_ns >= RENEW_NS:
            peer.found_ns = now_ns
            self._ask(peer, gid)

    def forget(self) -> None:
        """Drop all handles: the own GID has changed."""
        peers, self._peers = self._peers, OrderedDict()
        for peer in peers.values():
            for _, then in peer.waiting:
                then(None, ProbeStatus.NO_GID)

    def _peer(self, gid: bytes) -> _Peer:
        peer = self._peers.get(gid)
        if peer is None:
            peer = self._peers[gid] = _Peer()
            if len(self._peers) > MAX_PEERS:
                _, oldest = self._peers.popitem(last=False)
                for _, then in oldest.waiting:
                    then(None, ProbeStatus.UNREACHABLE)
        else:
            self._peers.move_to_end(gid)
        return peer

    def _ask(self, peer: _Peer, gid: bytes) -> None:
        if peer.asked:
            return
        peer.asked = self._resolver.want(gid)
        if not peer.asked:
            waiting, peer.waiting = peer.waiting, []
            for _, then in waiting:
                then(None, ProbeStatus.UNREACHABLE)

    def _call_with_handle(self, peer: _Peer, gid: bytes, label: int, then: Waiting) -> None:
        handle = peer.handles.get(label)
        if handle is None:
            try:
                handle = peer.handles[label] = self._make(gid, label)
            except OSError:
                peer.known = False
                then(None, ProbeStatus.UNREACHABLE)
                return
        then(handle, ProbeStatus.OK)
