"""The work per packet in C does what `PythonDatagrams` does, whatever comes."""

import os
import resource
import signal
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probers import packet
from probers.clock import Instant, SystemClock
from probers.packet import Packets, PacketType
from probers.transports.base import Probe, Reason
from probers.transports.datagrams import (
    PythonDatagrams,
    Role,
    native,
    native_datagrams,
    open_datagrams,
)
from probers.transports.packet_filter import SourceHash
from probers.transports.udp import UdpTransport
from probers.transports.waiting import Waiter
from schemas.enums import ProbeStatus
from schemas.units import MS_NS, SECOND_NS

pytestmark = pytest.mark.skipif(native is None, reason="the C code was not compiled here")

LOOPBACK: Final = "127.0.0.1"
KEYS: Final = tuple(bytes([k]) * 16 for k in range(1, 5))
STRANGER: Final = Packets((b"of another cluster",))
CLUSTERS: Final = (Packets(), *(Packets(KEYS[:count]) for count in (1, 2, 4)))
SENDERS: Final = (("10.0.0.1", 7), ("10.0.0.2", 7), ("192.168.255.254", 65_535))
MAKERS: Final = (STRANGER, packet.UNSEALED, *(Packets((key,)) for key in KEYS))
# Of which each probe gets one.
FIRST_NONCE: Final = 0x00AB_0000_0000_0000
NONCE_STEP: Final = 0x1_0001
RARE: Final = ("report", "pass", "set", "not sent")
# How far a clock may be set before a stamp is not believed (`STEP_TOLERANCE_NS`).
STEPS: Final = (MS_NS, MS_NS + 1, -MS_NS, -MS_NS - 1)
CRC_AT: Final = packet.HEADER_BYTES - 4
STATUSES: Final = (ProbeStatus.UNREACHABLE, ProbeStatus.REFUSED, ProbeStatus.TIMEOUT)


class ScriptedClock:
    """A clock that goes on by so much at each reading, and can be set."""

    def __init__(self, steps: list[int]) -> None:
        self._steps = steps
        self._reading = 0
        self.monotonic_ns = 10**15
        self.offset_ns = 10**18

    def now(self) -> Instant:
        """Return this moment."""
        self.monotonic_ns += self._steps[self._reading % len(self._steps)]
        self._reading += 1
        return Instant(self.monotonic_ns, self.monotonic_ns + self.offset_ns)


class Side:
    """One of the two that are compared."""

    def __init__(
        self, make: Callable[..., Any], packets: Packets, source: SourceHash, steps: list[int]
    ) -> None:
        self.clock = ScriptedClock(steps)
        nonces = iter(range(FIRST_NONCE, 2**64, NONCE_STEP))
        self.worker = make(
            self.clock,
            packets=packets,
            probe_bytes=64,
            secret=0xAB,
            source=source,
            nonces=nonces.__next__,
        )
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def close(self) -> None:
        """Close all."""
        self.worker.close()
        self.sock.close()


times = st.one_of(
    st.integers(0, 10**6),
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1, 200 * SECOND_NS]),
)
sizes = st.one_of(st.integers(50, 300), st.sampled_from([50, 111, 112, 113, 8_972]))
# How the kernel's stamp lies before the latest reading of the clock; None: there is none.
ages = st.sampled_from([None, 0, 0, 1, 2, 3, -1, 10**4, MS_NS, 10 * SECOND_NS, 10**18])


@st.composite
def datagrams(draw: st.DrawFn, own: Packets, sent: int) -> bytes:
    """Return what anybody may send, made from a packet of the cluster, of another, or of none."""
    maker = draw(st.sampled_from((own, own, own, own, *MAKERS)))
    nonce = FIRST_NONCE + draw(st.integers(0, sent)) * NONCE_STEP
    if sent and draw(st.booleans()):
        # What is expected: a good answer to a probe that was sent, its hold about as long as that
        # was under way.
        probe, t2_ns = own.probe(nonce), draw(times)
        t3_ns = t2_ns + draw(st.integers(0, 6))
        return own.reply(own.unpack(probe), t2_ns=t2_ns, t3_ns=t3_ns, t2_kernel=True)
    size = draw(sizes)
    token = draw(st.sampled_from([0, 2**32 - 1, *own.tokens]))
    probe = maker.probe(nonce, size, reply_key=token)
    kind = draw(st.sampled_from(["probe", "reply", "reply", "reply", "follow-up"]))
    data = probe
    if kind == "follow-up":
        data = maker.follow_up(nonce, hold_ns=draw(times))
    elif kind == "reply":
        t2_ns = draw(times)
        hold_ns = draw(st.one_of(st.integers(-10, 10**5), times))
        data = maker.reply(
            maker.unpack(probe),
            t2_ns=t2_ns,
            t3_ns=t2_ns + hold_ns,
            t2_kernel=draw(st.booleans()),
            follows=draw(st.booleans()),
        )
    return draw(mutated(draw(mutated(data))))


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Return a packet whole, or cut, longer, flipped or made up, often with a good check sum."""
    change = draw(st.sampled_from(["none"] * 5 + ["cut", "longer", "flip", "flip", "made up"]))
    if change == "cut":
        data = data[: draw(st.integers(0, len(data)))]
    elif change == "longer":
        data += draw(st.sampled_from([b"x", bytes(40), bytes(8_972)]))
    elif change == "made up":
        data = draw(st.binary(max_size=120))
    elif change == "flip" and data:
        at = draw(st.integers(0, min(len(data), 60) - 1))
        data = data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    if change != "none" and len(data) >= packet.HEADER_BYTES and draw(st.booleans()):
        padding = data[packet.HEADER_BYTES :]
        crc = zlib.crc32(padding, zlib.crc32(data[:CRC_AT]))
        data = data[:CRC_AT] + crc.to_bytes(4, "big") + padding
    return data


@st.composite
def stories(draw: st.DrawFn) -> tuple[Packets, list[int], list[tuple[Any, ...]]]:
    """Return a cluster, the steps of the clock, and what happens in turn."""
    own = draw(st.sampled_from(CLUSTERS))
    steps = draw(st.lists(st.sampled_from([0, 1, 2, 700, MS_NS]), min_size=1, max_size=5))
    events: list[tuple[Any, ...]] = []
    sent = 0
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["send"] * 3 + ["in"] * 9 + ["take"] * 2 + list(RARE)))
        if kind == "send":
            events.append(
                (kind, sent, draw(st.sampled_from([1, 2, 3, 4, 5, MS_NS, 30 * SECOND_NS])))
            )
            sent += 1
        elif kind == "in":
            role = draw(st.sampled_from([Role.PROBES, Role.ANSWERS]))
            sender = draw(st.sampled_from(SENDERS))
            event = (kind, role, draw(datagrams(own, sent)), draw(ages), *sender)
            events += [event] * draw(st.sampled_from([1, 1, 1, 2]))
        elif kind == "report":
            number = draw(st.integers(0, sent))
            events.append((kind, number, draw(st.sampled_from(STATUSES)), draw(ages)))
        elif kind == "pass":
            events.append((kind, draw(st.sampled_from([MS_NS, SECOND_NS, 40 * SECOND_NS]))))
        elif kind == "set":
            events.append((kind, draw(st.sampled_from([-SECOND_NS, *STEPS]))))
        else:
            events.append((kind,))
    return own, steps, events


def play(side: Side, events: list[tuple[Any, ...]], sink: tuple[str, int]) -> list[Any]:
    """Let it all happen to one side; return everything that comes out of it."""
    out: list[Any] = []
    worker, clock = side.worker, side.clock
    for kind, *rest in events:
        if kind == "send":
            token, timeout_ns = rest
            probe = Probe(
                token=token,
                address=sink[0],
                port=sink[1],
                flow=0,
                entropy=0,
                timeout_ns=timeout_ns,
            )
            out.append(worker.send(side.sock, probe))
        elif kind == "in":
            role, data, age_ns, address, port = rest
            at_ns = clock.monotonic_ns + clock.offset_ns
            kernel_ns = None if age_ns is None else at_ns - age_ns
            out.append(worker.take_in(int(role), data, kernel_ns, address, port))
        elif kind == "report":
            number, status, age_ns = rest
            at_ns = clock.monotonic_ns + clock.offset_ns
            worker.handle_node_report(
                FIRST_NONCE + number * NONCE_STEP,
                status=status,
                reason=Reason.REPORTED,
                reporter="10.9.9.9",
                kernel_ns=None if age_ns is None else at_ns - age_ns,
            )
        elif kind == "pass":
            clock.monotonic_ns += rest[0]
        elif kind == "set":
            clock.offset_ns += rest[0]
        elif kind == "not sent":
            worker.not_sent(-1, ProbeStatus.LINK_DOWN)
        else:
            out.append(worker.take_completions())
            out.append([tuple(o) for o in worker.take_observations()[0]])
        out.append(str(worker.counts))
    clock.monotonic_ns += 100 * SECOND_NS
    return [*out, worker.take_completions(), clock.monotonic_ns]


@pytest.fixture(scope="module")
def sink() -> Iterator[tuple[str, int]]:
    """Return where probes go that nobody reads."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LOOPBACK, 0))
        yield sock.getsockname()


@given(story=stories())
@settings(deadline=None, max_examples=int(os.environ.get("SKELETONHUNTER_FUZZ_STORIES", "80")))
def test_both_do_the_same_with_the_same_packets(
    sink: tuple[str, int], story: tuple[Packets, list[int], list[tuple[Any, ...]]]
) -> None:
    """Same replies to the byte, same completions, observations and counts, same clock readings."""
    packets, steps, events = story
    source = SourceHash(socket.AF_INET)
    played = []
    for make in (PythonDatagrams, native_datagrams):
        side = Side(make, packets, source, steps)
        try:
            played.append(play(side, events, sink))
        finally:
            side.close()
    assert played[0] == played[1]


def replied(probe: bytes) -> bytes:
    """Return a reply to a probe without a seal."""
    return packet.UNSEALED.reply(packet.UNSEALED.unpack(probe), t2_ns=1, t3_ns=2, t2_kernel=False)


def test_floods_and_forgotten_probes_are_the_same(sink: tuple[str, int]) -> None:
    """More probes than the budget, more answers than are remembered, and a heap of deadlines."""
    events: list[tuple[Any, ...]] = [
        ("send", token, SECOND_NS + token * 7919 % 1_000) for token in range(1_500)
    ]
    nonces = [FIRST_NONCE + number * NONCE_STEP for number in range(1_500)]
    replies = [replied(packet.UNSEALED.probe(nonce)) for nonce in nonces]
    answered = [*replies[:900], *replies[100:1_000:9], *replies[:20]]
    events += [("in", Role.PROBES, data, 5, "10.0.0.1", 7) for data in answered]
    probe = packet.UNSEALED.probe(1)
    for _ in range(25):
        events += [("in", Role.ANSWERS, probe, 5, "10.0.0.2", port) for port in range(200)]
        events.append(("take",))
    events.append(("pass", 2 * SECOND_NS))
    events += [("take",), *(("in", Role.PROBES, data, 5, "10.0.0.1", 7) for data in replies)]
    source = SourceHash(socket.AF_INET)
    python, c = (
        Side(make, packet.UNSEALED, source, [0, 0, 100])
        for make in (PythonDatagrams, native_datagrams)
    )
    assert play(python, events, sink) == play(c, events, sink)
    counts = c.worker.counts
    assert counts.unanswered > 0
    assert counts.foreign > 0
    assert counts.duplicate > 0
    assert counts.late > 0
    python.close()
    c.close()


def test_ipv6_sources_hash_as_the_filter_does() -> None:
    """The hash of an IPv6 sender is that of the kernel's program, which Python computes."""
    source = SourceHash(socket.AF_INET6)
    worker = native_datagrams(
        SystemClock(), packets=packet.UNSEALED, probe_bytes=50, secret=1, source=source
    )
    for address, port in (("fd00::1:2", 5), ("::1", 65_535)):
        worker.take_in(Role.ANSWERS, packet.UNSEALED.probe(1), None, address, port)
        (((found, _, genuine, token),), _) = worker.take_observations()
        assert (found, genuine, token) == (source.of(address, port), True, False)
    worker.close()


@contextmanager
def waiting() -> Iterator[tuple[Waiter, UdpTransport, socket.socket]]:
    """Return a waiter for one transport, and a stranger's socket."""
    transport = UdpTransport(SystemClock(), LOOPBACK, 0)
    waiter = Waiter()
    waiter.watch(transport.fileno(), transport)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((LOOPBACK, 0))
        stranger.settimeout(30)
        yield waiter, transport, stranger
    waiter.forget(transport.fileno())
    waiter.close()
    transport.close()


def to(sock: socket.socket, token: int) -> Probe:
    """Return a probe of a socket."""
    address, port = sock.getsockname()
    return Probe(
        token=token, address=address, port=port, flow=0, entropy=0, timeout_ns=30 * SECOND_NS
    )


def test_probes_are_answered_while_it_waits_and_answers_told_at_the_end() -> None:
    """A stranger's probe is answered in the midst of a wait; an answer to ours ends no wait."""
    with waiting() as (waiter, transport, stranger):
        transport.send(to(stranger, 1))
        data, sender = stranger.recvfrom(100)
        reply = replied(data)

        def talk() -> None:
            stranger.sendto(reply, sender)
            stranger.sendto(packet.UNSEALED.probe(7), (LOOPBACK, transport.port))
            answers.append(stranger.recv(100))

        answers: list[bytes] = []
        thread = threading.Thread(target=talk)
        thread.start()
        begun = time.monotonic_ns()
        assert waiter.wait(200 * MS_NS)[0] == [transport]
        assert time.monotonic_ns() - begun >= 200 * MS_NS
        thread.join()
        assert packet.UNSEALED.unpack(answers[0]).type is PacketType.REPLY
        assert [c.status for c in transport.poll()] == [ProbeStatus.OK]
        assert waiter.wait(0)[0] == []


def test_what_python_has_to_do_ends_a_wait() -> None:
    """An ICMP error, a corrupt reply, and more packets than are noted are told at once."""
    with waiting() as (waiter, transport, stranger):
        transport.send(to(stranger, 1))
        data, sender = stranger.recvfrom(100)
        reply = replied(data)
        stranger.sendto(reply[:-1] + b"x", sender)
        assert waiter.wait(60 * SECOND_NS)[0] == [transport]
        assert [c.status for c in transport.poll()] == [ProbeStatus.BAD_REPLY]
        for _ in range(300):
            stranger.sendto(packet.UNSEALED.probe(7), (LOOPBACK, transport.port))
        assert waiter.wait(60 * SECOND_NS)[0] == [transport]
        transport.poll()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
            closed.bind((LOOPBACK, 0))
            target = to(closed, 2)
        transport.send(target)
        assert waiter.wait(60 * SECOND_NS)[0] == [transport]
        assert [c.status for c in transport.poll()] == [ProbeStatus.REFUSED]


def test_a_signal_is_handled_in_the_midst_of_a_wait() -> None:
    """A handler runs at once, and may end the wait by what it raises."""

    class Over(Exception):  # noqa: N818 - no error
        """Raised by the handler."""

    def handler(*_: object) -> None:
        raise Over

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with waiting() as (waiter, _, _):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Over):
                waiter.wait(60 * SECOND_NS)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_is_out_of_bounds_is_refused() -> None:
    """Wrong sizes, keys and roles raise; a closed worker says so."""
    source = SourceHash(socket.AF_INET)
    kind: Any = native.Datagrams
    plain: dict[str, Any] = dict(  # noqa: C408 - as it is called
        clock=None, nonces=None, family=socket.AF_INET, secret=1, factor=1, keys=(), tokens=(),
        probe_bytes=50, counts=None,
    )  # fmt: skip
    for wrong in (
        {"keys": (b"short",), "tokens": (1,)},
        {"tokens": (1,)},
        {"keys": (bytes(32),) * 5, "tokens": (1,) * 5},
        {"probe_bytes": 49},
        {"probe_bytes": 8_973},
        {"family": socket.AF_UNIX},
        {"secret": 2**16},
    ):
        with pytest.raises(ValueError, match=r"bounds|bytes"):
            kind(**{**plain, **wrong})
    worker: Any = open_datagrams(
        SystemClock(), packets=packet.UNSEALED, probe_bytes=50, secret=1, source=source
    )
    with pytest.raises(ValueError, match="role"):
        worker.take_in(9, b"", None, LOOPBACK, 1)
    worker.close()
    with pytest.raises(ValueError, match="closed"):
        worker.poll()


def test_what_could_not_be_set_up_is_no_object() -> None:
    """Nothing half-built can be used: it was a crash at the first call."""
    kind: Any = native.Datagrams
    plain: dict[str, Any] = dict(  # noqa: C408 - as it is called
        clock=None, nonces=None, family=socket.AF_INET, secret=1, factor=1, keys=(), tokens=(),
        probe_bytes=50, counts=None,
    )  # fmt: skip
    with pytest.raises(TypeError):
        kind.__new__(kind)
    with pytest.raises(TypeError):
        kind(**{**plain, "keys": None})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            kind(**plain)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    worker = kind(**plain)
    assert worker.take_completions() == []
    worker.close()
    assert worker.take_completions() == []
