"""When a flood is noticed, who passes while it lasts, and when it is over."""

import random

import pytest

from probers.transports.admission import (
    FIRST_SHARE,
    FLOOD_PACKETS,
    SAMPLE_HZ,
    SOURCE_HZ,
    STALE_NS,
    Admission,
)
from probers.transports.packet_filter import MAX_KNOWN
from schemas.units import MS_NS, SECOND_NS


class Listener:
    """A socket that answers, with a clock and peers of its own."""

    def __init__(self, *, sealed: bool = False, peers: int = 20) -> None:
        self.now_ns = 1_000 * SECOND_NS
        self.admission = Admission(sealed=sealed)
        self.peers = range(peers)
        self._random = random.Random(3)

    def hear_peers(self, seconds: int = 1) -> None:
        """Let each peer probe once a second."""
        for _ in range(seconds):
            for peer in self.peers:
                self.now_ns += SECOND_NS // len(self.peers)
                self.hear(peer)
            self.look()

    def hear(self, source: int, *, genuine: bool = True, token: bool = False) -> bool:
        """Receive one packet; return whether other packets pass from now on."""
        self.admission.observe_probe(source, self.now_ns, genuine=genuine, token=token)
        return self.admission.review(self.now_ns, overflowed=False)

    def flood(self, count: int, *, genuine: bool, token: bool = False) -> bool:
        """Receive that many packets of ever new sources at once; return whether it is noticed."""
        noticed = False
        for _ in range(count):
            source = 10_000 + self._random.getrandbits(30)
            noticed = self.hear(source, genuine=genuine, token=token) or noticed
        return noticed

    def look(self, dropped: int = 0) -> bool:
        """Let the second pass at which the socket is looked at."""
        return self.admission.look(self.now_ns, dropped)


@pytest.mark.parametrize("sealed", [False, True])
def test_peers_are_no_flood_and_known_soon(sealed: bool) -> None:
    """Every peer that goes on is known; with a key at once, without one after two seconds."""
    listener = Listener(sealed=sealed)
    listener.hear_peers(1)
    assert listener.admission.known == (frozenset(listener.peers) if sealed else frozenset())
    listener.hear_peers(3)
    assert listener.admission.known == frozenset(listener.peers)
    assert not listener.admission.restricted


def test_a_job_of_a_thousand_peers_that_begins_is_no_flood() -> None:
    """Four thousand new sources over 300 ms, again each second: all pass."""
    listener = Listener(peers=4_000)
    for _ in range(5):
        for peer in listener.peers:
            listener.now_ns += 300 * MS_NS // len(listener.peers)
            assert not listener.hear(peer)
        listener.now_ns += 700 * MS_NS
        assert not listener.look()
    assert not listener.admission.restricted


@pytest.mark.parametrize("sealed", [False, True])
def test_a_flood_is_noticed_sampled_and_over(sealed: bool) -> None:
    """At once; then some hundred a second pass, until less is offered."""
    listener = Listener(sealed=sealed)
    listener.hear_peers(4)
    assert not listener.flood(FLOOD_PACKETS - 50, genuine=not sealed)
    assert listener.flood(100, genuine=not sealed)
    admission = listener.admission
    assert (admission.restricted, admission.share) == (True, FIRST_SHARE)
    assert admission.known == frozenset(listener.peers)
    for _ in range(3):
        listener.now_ns += SECOND_NS
        listener.flood(400, genuine=not sealed)
        assert listener.look(dropped=150_000)
        assert admission.share == pytest.approx(SAMPLE_HZ / 150_400, rel=0.2)
    listener.now_ns += SECOND_NS
    assert listener.look(dropped=500)
    assert (admission.restricted, admission.share) == (False, 1.0)
    listener.now_ns += SECOND_NS
    assert not listener.look()


@pytest.mark.parametrize("strangers", [100, 200])
def test_a_socket_that_overflows_with_strangers_is_a_flood(strangers: int) -> None:
    """A starved agent reads slowly: one reading is enough, if most of it is of strangers."""
    listener = Listener()
    listener.hear_peers(4)
    for packet in range(256):
        source = 10**6 + packet if packet < strangers else packet % 20
        listener.admission.observe_probe(source, listener.now_ns, genuine=True, token=False)
    noticed = listener.admission.review(listener.now_ns, overflowed=True)
    assert noticed is listener.admission.restricted is (strangers > 128)
    assert not listener.admission.review(listener.now_ns, overflowed=False)


def test_strangers_do_not_become_peers_by_flooding() -> None:
    """Without a key the sources of a flood are not known, however long it lasts."""
    listener = Listener()
    listener.hear_peers(4)
    listener.flood(2 * FLOOD_PACKETS, genuine=True)
    for _ in range(10):
        listener.now_ns += SECOND_NS
        for stranger in range(100, 200):
            listener.hear(stranger)
        listener.look(dropped=150_000)
    assert listener.admission.known == frozenset(listener.peers)


def test_a_peer_that_floods_is_a_peer_no_more_until_the_flood_is_over() -> None:
    """Its probes beyond what any agent sends make it a stranger; the other peers pass."""
    listener = Listener()
    listener.hear_peers(4)
    noticed = [listener.hear(0) for _ in range(FLOOD_PACKETS + SOURCE_HZ + 10)]
    assert any(noticed)
    assert listener.admission.known == frozenset(listener.peers) - {0}
    for _ in range(3):
        listener.now_ns += SECOND_NS
        listener.look()
    listener.hear_peers(4)
    assert listener.admission.known == frozenset(listener.peers)


def test_a_token_that_strangers_have_read_is_trusted_no_more() -> None:
    """Their packets carry it and fail the seal; known peers still pass."""
    listener = Listener(sealed=True)
    listener.hear_peers(1)
    assert listener.admission.trusts_tokens
    assert listener.flood(FLOOD_PACKETS, genuine=False, token=True)
    assert listener.admission.trusts_tokens
    assert listener.flood(FLOOD_PACKETS, genuine=False, token=True)
    assert not listener.admission.trusts_tokens
    share = listener.admission.share
    assert listener.flood(FLOOD_PACKETS, genuine=False)
    assert listener.admission.share < share
    for _ in range(2):
        listener.now_ns += SECOND_NS
        listener.look()
    assert listener.admission.trusts_tokens


def test_memory_is_bounded_and_who_is_gone_makes_room() -> None:
    """As many sources as one program holds; the oldest leave only when they are silent."""
    listener = Listener(sealed=True, peers=2 * MAX_KNOWN)
    listener.hear_peers(3)
    assert listener.admission.known == frozenset(range(MAX_KNOWN))
    listener.now_ns += STALE_NS
    listener.hear(10**6)
    assert listener.admission.known == {10**6}
    unsealed = Listener()
    unsealed.flood(1_900, genuine=True)
    assert len(unsealed.admission._candidates) <= MAX_KNOWN
