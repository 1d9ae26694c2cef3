"""What the kernel passes to a socket, on real sockets."""

import random
import socket
from collections.abc import Iterator, Sequence

import pytest

from probers.packet import MAX_PACKET_BYTES, MIN_PACKET_BYTES, UNSEALED
from probers.transports import packet_filter
from probers.transports.packet_filter import (
    MAX_KNOWN,
    Instruction,
    SourceHash,
    attach,
    dropped,
    passes_known,
    passes_probes,
    passes_replies,
)
from probers.transports.sockets import LINUX

pytestmark = pytest.mark.skipif(not LINUX, reason="classic BPF at sockets is Linux's")
SOURCES = 12
REPLY_KEY = 0xDEAD_BEEF


class Link:
    """A socket with a program, and sockets that send to it."""

    def __init__(self, loopback: str) -> None:
        family = socket.AF_INET6 if ":" in loopback else socket.AF_INET
        self.receiver = socket.socket(family, socket.SOCK_DGRAM)
        self.receiver.bind((loopback, 0))
        self.receiver.setblocking(False)
        self.senders = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(SOURCES)]
        for sender in self.senders:
            sender.bind((loopback, 0))
        self.source = SourceHash(family)

    def hash_of(self, sender: int) -> int:
        """Return the hash of a sender."""
        address, port = self.senders[sender].getsockname()[:2]
        return self.source.of(address, port)

    def passed(self, program: Sequence[Instruction], *sent: tuple[int, bytes]) -> list[bytes]:
        """Return what passes of what these senders send."""
        attach(self.receiver, program)
        for sender, data in sent:
            self.senders[sender].sendto(data, self.receiver.getsockname())
        passed = []
        while True:
            try:
                passed.append(self.receiver.recv(65_536))
            except BlockingIOError:
                return passed

    def close(self) -> None:
        """Close the sockets."""
        for sock in (self.receiver, *self.senders):
            sock.close()


@pytest.fixture(params=["127.0.0.1", "::1"])
def link(request: pytest.FixtureRequest) -> Iterator[Link]:
    """Return sockets of each family."""
    made = Link(request.param)
    yield made
    made.close()


def reply_to(nonce: int) -> bytes:
    """Return the reply to a probe with that nonce."""
    probe = UNSEALED.unpack(UNSEALED.probe(nonce))
    return UNSEALED.reply(probe, t2_ns=1, t3_ns=2, t2_kernel=False)


def test_only_probes_pass_where_probes_are_answered(link: Link) -> None:
    """Of every size; replies, garbage, other versions and what is too short are dropped."""
    probes = [UNSEALED.probe(n, size) for n, size in ((1, MIN_PACKET_BYTES), (2, MAX_PACKET_BYTES))]
    other_version = probes[0][:4] + b"\x09" + probes[0][5:]
    junk = [b"", b"SKP1", bytes(60), probes[0][:-1], other_version, reply_to(1)]
    assert link.passed(passes_probes(), *((0, data) for data in junk + probes)) == probes
    assert dropped(link.receiver) == len(junk)


def test_only_replies_with_the_secret_pass_where_probes_leave(link: Link) -> None:
    """Whoever has not seen a probe guesses its first 16 bits once in 65,536."""
    mine, others = reply_to(0xABCD << 48 | 7), [reply_to(0xABCC << 48 | 7), UNSEALED.probe(1)]
    assert link.passed(passes_replies(0xABCD), *((0, data) for data in [*others, mine])) == [mine]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 11])
@pytest.mark.parametrize("more", [0, 1, 100, MAX_KNOWN - SOURCES])
def test_during_a_flood_known_sources_pass(link: Link, count: int, more: int) -> None:
    """However many others are known; the kernel and the program hash alike."""
    rng = random.Random(count)
    known = {link.hash_of(n) for n in range(count)} | {rng.getrandbits(31) for _ in range(more)}
    program = passes_known(link.source, known, (), 0.0)
    sent = [(n, UNSEALED.probe(n)) for n in range(SOURCES)]
    assert link.passed(program, *sent) == [data for _, data in sent[:count]]
    assert link.passed(program, (0, reply_to(1)), (0, bytes(60))) == []


def test_during_a_flood_a_token_passes_and_a_share_of_the_others(link: Link) -> None:
    """All with one of the tokens; of 2,000 others about a quarter, none or all."""
    program = passes_known(link.source, (), (5, REPLY_KEY), 0.0)
    tokened = UNSEALED.probe(1, reply_key=REPLY_KEY)
    sent = [(0, UNSEALED.probe(1)), (1, tokened), (2, UNSEALED.probe(1, reply_key=6))]
    assert link.passed(program, *sent) == [tokened]
    passed = 0
    for _ in range(20):
        program = passes_known(link.source, (), (), 0.25)
        passed += len(link.passed(program, *[(0, UNSEALED.probe(1))] * 100))
    assert 400 < passed < 600
    program = passes_known(link.source, (), (), 1.0)
    assert len(link.passed(program, *[(0, UNSEALED.probe(1))] * 50)) == 50


def test_a_source_is_hashed_with_its_port_and_differently_each_time(link: Link) -> None:
    """Two ports of one address differ; nobody else knows the hash."""
    assert len({link.hash_of(n) for n in range(SOURCES)}) == SOURCES
    address, port = link.senders[0].getsockname()[:2]
    hashes = {SourceHash(link.receiver.family).of(address, port) for _ in range(20)}
    assert len(hashes) > 15
    assert all(0 <= value < 2**31 for value in hashes)


def test_a_program_that_is_too_long_is_refused_and_the_one_before_stays(link: Link) -> None:
    """The kernel takes 4,096 instructions; what it refuses is an OSError."""
    link.passed(passes_probes())
    with pytest.raises(OSError, match=r"\w"):
        attach(link.receiver, [(0x06, 0, 0, 0)] * 5_000)
    probe = UNSEALED.probe(1)
    assert link.passed(passes_probes(), (0, probe), (0, b"")) == [probe]


def test_a_socket_that_does_not_say_what_it_dropped() -> None:
    """None is not 0."""
    closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    closed.close()
    assert packet_filter.dropped(closed) is None
