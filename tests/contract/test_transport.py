"""What every transport promises, held by the misbehaving fake and by the real ones."""

import socket
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from probers import packet
from probers.clock import SystemClock
from probers.config.rnics import RnicConfig
from probers.transports.base import PacketCounts, Probe, ProbeSettings, Reason, Transport
from probers.transports.registry import OPENERS, open_transport
from probers.transports.rtt import Measurement, measure
from probers.transports.sockets import LINUX, family_of
from probers.transports.udp import UdpTransport
from schemas.enums import ClockSource, ProbeStatus
from schemas.enums import Transport as TransportKind
from schemas.transports import BY_WORD, CAPABILITIES, AddressForm
from schemas.units import MS_NS
from tests.contract.misbehaviour import Misbehaviour
from tests.contract.pairs import ELSEWHERE, MAKERS, Pair, RealPair, collect, probe, wait_readable
from tests.contract.relay import LOOPBACK, LOOPBACK6, datagram_socket, header_of

SEED = 7
SHORT_NS = 60 * MS_NS


@pytest.fixture(params=sorted(MAKERS))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Return a prober and a responder on each transport."""
    made = MAKERS[request.param](SEED)
    yield made
    made.close()


@pytest.mark.parametrize("kind", OPENERS)
def test_every_transport_is_held_to_the_contract(kind: TransportKind) -> None:
    """Each transport of the registry has a pair here, or a suite where its devices are."""
    kinds = set()
    for make in MAKERS.values():
        pair = make(SEED)
        kinds.add(pair.prober.kind)
        pair.close()
    assert kind in kinds | ELSEWHERE


@pytest.mark.parametrize("kind", sorted(OPENERS.keys() - ELSEWHERE))
@pytest.mark.parametrize("address", [LOOPBACK, LOOPBACK6])
def test_what_is_opened_is_as_declared(kind: TransportKind, address: str) -> None:
    """A transport has the address that the settings name, its own kind, and is traced or not."""
    config = RnicConfig(rail=0, endpoint_id="e/r0", address=address, transport=kind)
    opened = open_transport(kind, 0, config, SystemClock(), ProbeSettings(probe_bytes=50))
    try:
        assert opened.kind is kind
        assert (opened.address, opened.port > 0, opened.qkey) == (address, True, None)
        if CAPABILITIES[kind].untraced is not None:
            assert opened.untraced == CAPABILITIES[kind].untraced
        elif LINUX:
            assert opened.untraced is None
        assert opened.is_current()
    finally:
        opened.close()


def test_every_symbol_has_one_row_in_both_tables() -> None:
    """What a transport can do and what opens it are known of each; words are no two's."""
    assert set(OPENERS) == set(CAPABILITIES) == set(TransportKind) - {TransportKind.UNKNOWN}
    assert len(BY_WORD) == len(CAPABILITIES)


def test_a_fallback_is_opened_with_what_the_settings_have() -> None:
    """Who stands in needs an IP address and nothing else, and has nobody to stand in for it."""
    for row in CAPABILITIES.values():
        if row.fallback is not None:
            assert CAPABILITIES[row.fallback].address_form is AddressForm.IP_PORT
            assert CAPABILITIES[row.fallback].fallback is None


@pytest.fixture(params=["fake", "gateway", "udp", "udp6"])
def bad_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Return those whose network can be made to misbehave."""
    made = MAKERS[request.param](SEED)
    assert made.mangler is not None
    yield made
    made.close()


@pytest.fixture(params=["gateway", "sealed", "tcp", "tcp6", "udp", "udp6"])
def real_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Return those with sockets."""
    made = MAKERS[request.param](SEED)
    yield made
    made.close()


def misbehave(pair: Pair, how: Misbehaviour) -> None:
    """Make the network do that from now on."""
    assert pair.mangler is not None
    pair.mangler.how = how


def test_an_answered_probe_is_ok_once_with_times_that_agree(pair: Pair) -> None:
    """Each probe of a reachable target completes once, OK, and its timestamps measure."""
    for token in range(1, 11):
        pair.prober.send(probe(pair, token))
    completions = collect(pair, 10)
    assert Counter(c.token for c in completions) == Counter(range(1, 11))
    for completion in completions:
        assert completion.status is ProbeStatus.OK
        assert completion.times is not None
        measured = measure(completion.times)
        assert isinstance(measured, Measurement)
        elapsed_ns = completion.times.handled_ns - completion.times.posted_ns
        assert measured.rtt_ns + measured.prober_delay_ns <= elapsed_ns
    assert pair.responder.counts.answered == 10


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_network_does_each_probe_ends_exactly_once(bad_pair: Pair, seed: int) -> None:
    """Loss, duplicates, reordering, corruption and foreign packets at once: one end each."""
    misbehave(
        bad_pair,
        Misbehaviour(loss=0.2, duplicate=0.3, reorder=0.3, corrupt=0.2, foreign=0.2),
    )
    tokens = range(seed * 100, seed * 100 + 60)
    for token in tokens:
        bad_pair.prober.send(probe(bad_pair, token, timeout_ns=8 * SHORT_NS))
        bad_pair.responder.poll()
    completions = collect(bad_pair, len(tokens))
    assert Counter(c.token for c in completions) == Counter(tokens)
    by_status = Counter(c.status for c in completions)
    assert by_status[ProbeStatus.OK] > 0
    assert by_status[ProbeStatus.TIMEOUT] > 0
    assert set(by_status) <= {ProbeStatus.OK, ProbeStatus.TIMEOUT, ProbeStatus.BAD_REPLY}


def test_a_lost_probe_times_out_and_not_before_its_time(bad_pair: Pair) -> None:
    """With everything lost a probe is a TIMEOUT; the poll right after sending has nothing."""
    misbehave(bad_pair, Misbehaviour(loss=1.0))
    # Not so short that it is over before the first poll, unless the machine stalls.
    timeout_ns, sent_ns = 10 * SHORT_NS, time.monotonic_ns()
    bad_pair.prober.send(probe(bad_pair, 1, timeout_ns=timeout_ns))
    early = bad_pair.prober.poll()
    assert early == [] or time.monotonic_ns() - sent_ns > timeout_ns
    (completion,) = early or collect(bad_pair, 1)
    assert completion.status is ProbeStatus.TIMEOUT
    assert completion.times is None


def test_a_second_reply_is_counted_and_not_reported(bad_pair: Pair) -> None:
    """Probe and reply doubled: one completion, the other replies are duplicates."""
    misbehave(bad_pair, Misbehaviour(duplicate=1.0))
    bad_pair.prober.send(probe(bad_pair, 1))
    (completion,) = collect(bad_pair, 1, extra_turns=50)
    assert completion.status is ProbeStatus.OK
    assert bad_pair.prober.counts.duplicate == 3
    assert bad_pair.responder.counts.answered == 2


def test_a_reply_after_the_timeout_is_late(bad_pair: Pair) -> None:
    """A reply that arrives after its probe's time changes nothing and is counted."""
    misbehave(bad_pair, Misbehaviour(delay_ns=40 * MS_NS))
    bad_pair.prober.send(probe(bad_pair, 1, timeout_ns=SHORT_NS))
    completions = collect(bad_pair, 1, extra_turns=0)
    turns = 0
    while bad_pair.prober.counts.late == 0 and turns < 2_000:
        completions.extend(bad_pair.turn())
        turns += 1
    assert [c.status for c in completions] == [ProbeStatus.TIMEOUT]
    assert bad_pair.prober.counts.late == 1


def test_reordered_replies_find_their_own_probes(bad_pair: Pair) -> None:
    """Half the datagrams overtaken by others: every probe OK, none mixed up."""
    misbehave(bad_pair, Misbehaviour(reorder=0.5))
    for token in range(30):
        bad_pair.prober.send(probe(bad_pair, token))
    completions = collect(bad_pair, 30)
    assert {c.token for c in completions if c.status is ProbeStatus.OK} == set(range(30))
    assert [c.token for c in completions] != list(range(30))


def test_a_corrupted_packet_is_never_an_answer(bad_pair: Pair) -> None:
    """One bit flipped in every datagram: nothing is OK, and what is wrong is counted."""
    misbehave(bad_pair, Misbehaviour(corrupt=1.0))
    for token in range(20):
        bad_pair.prober.send(probe(bad_pair, token, timeout_ns=SHORT_NS))
    statuses = {c.status for c in collect(bad_pair, 20)}
    assert statuses <= {ProbeStatus.TIMEOUT, ProbeStatus.BAD_REPLY}
    # The kernel drops those whose magic, version or type is wrong.
    counts = settled_counts(bad_pair.responder)
    assert counts.malformed + counts.filtered == 20
    assert counts.answered == 0


def test_a_corrupted_reply_whose_nonce_survived_is_a_bad_reply(bad_pair: Pair) -> None:
    """A reply with a wrong check sum says whose it is: the probe ends as BAD_REPLY."""
    misbehave(bad_pair, Misbehaviour(corrupt_padding=1.0))
    for token in range(20):
        bad_pair.prober.send(probe(bad_pair, token))
    completions = collect(bad_pair, 20)
    assert {(c.status, c.reason) for c in completions} == {(ProbeStatus.BAD_REPLY, Reason.CORRUPT)}
    assert bad_pair.prober.counts.malformed == 20


def test_packets_of_others_are_counted_and_never_reported(bad_pair: Pair) -> None:
    """Replies with a nonce nobody sent: foreign, whoever sent them."""
    nonce = 0x1234
    forged = packet.UNSEALED.reply(
        packet.UNSEALED.unpack(packet.UNSEALED.probe(nonce)), t2_ns=1, t3_ns=2, t2_kernel=False
    )
    bad_pair.prober.send(probe(bad_pair, 1))
    deliver_to_prober(bad_pair, forged)
    (completion,) = collect(bad_pair, 1)
    assert completion.status is ProbeStatus.OK
    counts = settled_counts(bad_pair.prober)
    assert counts.foreign + counts.filtered >= 1


def settled_counts(transport: Transport) -> PacketCounts:
    """Return the counts, with what the kernel has dropped: agents ask it once a second."""
    assert transport.is_current()
    return transport.counts


def deliver_to_prober(pair: Pair, payload: bytes) -> None:
    """Put a datagram before the prober as if the network had brought it."""
    if isinstance(pair, RealPair):
        with datagram_socket(pair.prober.address) as sock:
            sock.sendto(payload, (pair.prober.address, pair.prober.port))
    else:
        network = pair.network  # type: ignore[attr-defined]
        network.carry(payload, ("10.9.9.9", 9), (pair.prober.address, pair.prober.port))


def test_what_is_no_probe_gets_no_answer(bad_pair: Pair) -> None:
    """Garbage, short, long and truncated datagrams are counted, and nothing is sent back."""
    good = packet.UNSEALED.probe(1, 200)
    for junk in (b"", b"x", good[:-1], good[:49], bytes(9_000), b"SKP1" + bytes(60)):
        if isinstance(bad_pair, RealPair):
            with datagram_socket(bad_pair.responder.address) as sock:
                sock.sendto(junk, (bad_pair.responder.address, bad_pair.responder.port))
                bad_pair.turn()
                sock.setblocking(False)
                with pytest.raises(BlockingIOError):
                    sock.recv(100)
        else:
            target = (bad_pair.responder.address, bad_pair.responder.port)
            bad_pair.network.carry(junk, ("10.9.9.9", 9), target)  # type: ignore[attr-defined]
            bad_pair.turn()
    counts = settled_counts(bad_pair.responder)
    assert counts.answered == 0
    assert counts.malformed + counts.foreign + counts.filtered == 6


def test_a_reply_is_as_long_as_its_probe() -> None:
    """The responder cannot amplify: request and reply have the same size."""
    pair = MAKERS["udp"](SEED)
    assert isinstance(pair, RealPair)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LOOPBACK, 0))
        sock.settimeout(30)
        for size in (packet.MIN_PACKET_BYTES, 999, packet.MAX_PACKET_BYTES):
            sock.sendto(packet.UNSEALED.probe(5, size), (LOOPBACK, pair.responder.port))
            assert wait_readable(pair.responder)
            pair.responder.poll()
            assert len(sock.recv(65_536)) == size
    pair.close()


def test_with_a_key_a_strangers_probe_is_not_answered() -> None:
    """A probe made without the key is counted as forged, and nothing is sent back."""
    pair = MAKERS["sealed"](SEED)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LOOPBACK, 0))
        sock.sendto(packet.UNSEALED.probe(5), (LOOPBACK, pair.responder.port))
        assert wait_readable(pair.responder)
        pair.responder.poll()
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(100)
    assert (pair.responder.counts.forged, pair.responder.counts.answered) == (1, 0)
    pair.close()


def test_with_a_key_a_forged_reply_ends_no_probe() -> None:
    """Even who has seen the probe cannot answer it, from wherever: the true reply still counts."""
    pair = MAKERS["sealed"](SEED)
    assert isinstance(pair, RealPair)
    assert pair.relay is not None
    pair.prober.send(probe(pair, 1))
    assert wait_readable_relay(pair)
    pair.relay.pump()
    nonce = packet.quoted_nonce(pair.relay.seen[0])
    assert nonce is not None
    seen = packet.UNSEALED.unpack(packet.UNSEALED.probe(nonce))
    forged = packet.UNSEALED.reply(seen, t2_ns=1, t3_ns=2, t2_kernel=False)
    deliver_to_prober(pair, forged)
    with datagram_socket(LOOPBACK) as sock:
        assert isinstance(pair.prober, UdpTransport)
        sock.sendto(forged, (LOOPBACK, pair.prober.source_port(1)))
    (completion,) = collect(pair, 1)
    assert completion.status is ProbeStatus.OK
    counts = settled_counts(pair.prober)
    # At the socket that answers replies do not pass; at the one that probes the seal refuses it.
    assert (counts.filtered, counts.forged) == (1, 1)
    pair.close()


def test_a_reply_does_not_make_a_responder_answer(real_pair: Pair) -> None:
    """Two responders cannot be made to answer each other for ever."""
    reply = packet.UNSEALED.reply(
        packet.UNSEALED.unpack(packet.UNSEALED.probe(3)), t2_ns=1, t3_ns=2, t2_kernel=False
    )
    with datagram_socket(real_pair.responder.address) as sock:
        sock.sendto(reply, (real_pair.responder.address, real_pair.responder.port))
    for _ in range(5):
        real_pair.turn()
    assert real_pair.responder.counts.answered == 0


def test_the_descriptor_is_readable_when_there_is_something(real_pair: Pair) -> None:
    """Whoever waits for the descriptor learns of a probe and of its reply."""
    real_pair.prober.send(probe(real_pair, 1))
    if isinstance(real_pair, RealPair) and real_pair.relay is not None:
        assert wait_readable_relay(real_pair)
    assert wait_readable(real_pair.responder)
    real_pair.responder.poll()
    if isinstance(real_pair, RealPair) and real_pair.relay is not None:
        assert wait_readable_relay(real_pair)
    assert wait_readable(real_pair.prober)
    assert [c.status for c in real_pair.prober.poll()] == [ProbeStatus.OK]


def wait_readable_relay(pair: RealPair) -> bool:
    """Pump the relay until it has forwarded something."""
    assert pair.relay is not None
    before = len(pair.relay.seen)
    for _ in range(5_000):
        pair.relay.pump()
        if len(pair.relay.seen) > before:
            return True
    return False


@pytest.mark.parametrize("name", ["tcp", "tcp6", "udp", "udp6"])
def test_a_closed_port_is_refused(name: str) -> None:
    """Where nobody listens the probe is REFUSED at once, long before its timeout."""
    pair = MAKERS[name](SEED)
    here = pair.responder.address
    with datagram_socket(here) as sock:
        closed = sock.getsockname()[1]
    for token in (1, 2, 3):
        pair.prober.send(
            Probe(token=token, address=here, port=closed, flow=0, entropy=0, timeout_ns=10**10)
        )
    assert [c.status for c in collect(pair, 3)] == [ProbeStatus.REFUSED] * 3
    pair.close()


@pytest.mark.parametrize(
    ("name", "nowhere"),
    [
        # Class E: no host routes it (RFC 1112, section 4). No address of the other family either.
        ("tcp", "240.0.0.1"),
        ("tcp", "::1"),
        ("tcp6", "127.0.0.1"),
        ("udp", "240.0.0.1"),
        ("udp", "::1"),
        ("udp6", "127.0.0.1"),
    ],
)
def test_no_route_is_told_at_once(name: str, nowhere: str) -> None:
    """A target that the host has no way to is reported by the next poll."""
    pair = MAKERS[name](SEED)
    pair.prober.send(Probe(token=1, address=nowhere, port=9, flow=0, entropy=0, timeout_ns=10**10))
    (completion,) = pair.prober.poll()
    assert completion.status in (ProbeStatus.NO_ROUTE, ProbeStatus.UNREACHABLE)
    assert completion.reason is Reason.NOT_SENT
    pair.close()


def test_an_error_of_one_target_does_not_touch_another() -> None:
    """Refused probes leave a pending error at the socket; the next good probe is still sent."""
    pair = MAKERS["udp"](SEED)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LOOPBACK, 0))
        closed = sock.getsockname()[1]
    for token in range(0, 20, 2):
        pair.prober.send(
            Probe(token=token, address=LOOPBACK, port=closed, flow=0, entropy=0, timeout_ns=10**10)
        )
        good = probe(pair, token + 1)
        pair.prober.send(
            Probe(
                token=good.token,
                address=good.address,
                port=good.port,
                flow=0,
                entropy=0,
                timeout_ns=good.timeout_ns,
            )
        )
    statuses = {c.token: c.status for c in collect(pair, 20)}
    assert all(
        status is (ProbeStatus.OK if token % 2 else ProbeStatus.REFUSED)
        for token, status in statuses.items()
    )
    pair.close()


@pytest.mark.parametrize("name", ["fake", "gateway"])
def test_a_ttl_that_runs_out_names_the_node(name: str) -> None:
    """With nodes in between, ttl n comes back from the n-th; a larger one from the target."""
    pair = MAKERS[name](SEED)
    assert pair.nodes is not None
    pair.nodes.extend(["10.1.0.1", "10.1.0.2", "10.1.0.3"])
    for ttl in range(1, 6):
        pair.prober.send(probe(pair, ttl, ttl=ttl))
    by_ttl = {c.token: c for c in collect(pair, 5)}
    assert [by_ttl[ttl].reporter for ttl in (1, 2, 3)] == pair.nodes
    assert all(by_ttl[ttl].reason is Reason.TTL_EXCEEDED for ttl in (1, 2, 3))
    assert all(by_ttl[ttl].times is not None for ttl in (1, 2, 3))
    assert [by_ttl[ttl].status for ttl in (4, 5)] == [ProbeStatus.OK] * 2
    pair.close()


def test_a_flow_is_one_five_tuple() -> None:
    """A flow keeps its source port, two flows have two; through a gateway, its entropy."""
    pair = MAKERS["gateway"](SEED)
    assert isinstance(pair, RealPair)
    assert pair.relay is not None
    for token in (0, 1, 2, 3):
        pair.prober.send(probe(pair, token))
    collect(pair, 4)
    outward = [h for h in map(header_of, pair.relay.seen) if h.src_port == pair.prober.port]
    assert sorted(h.entropy for h in outward) == [50_000, 50_000, 50_001, 50_001]
    back = [h for h in map(header_of, pair.relay.seen) if h.dst_port == pair.prober.port]
    assert sorted(h.entropy for h in back) == [50_000, 50_000, 50_001, 50_001]
    pair.close()


def test_real_replies_carry_the_kernels_stamp_on_linux(real_pair: Pair) -> None:
    """On Linux the receive time is the kernel's, for UDP, through a gateway and for TCP."""
    if not LINUX:
        pytest.skip("not Linux")
    real_pair.prober.send(probe(real_pair, 1))
    (completion,) = collect(real_pair, 1)
    assert completion.clock is ClockSource.KERNEL


@pytest.mark.parametrize("name", ["gateway", "udp", "udp6"])
def test_a_reply_that_waited_in_the_socket_is_in_time(name: str) -> None:
    """A prober that was not scheduled past the timeout believes the kernel, not its absence."""
    if not LINUX:
        pytest.skip("needs the kernel's receive stamps")
    for timeout_ns in (10 * SHORT_NS, 50 * SHORT_NS, 250 * SHORT_NS):
        pair = MAKERS[name](SEED)
        assert isinstance(pair, RealPair)
        sent_ns = time.monotonic_ns()
        pair.prober.send(probe(pair, 1, timeout_ns=timeout_ns))
        for _ in range(2):
            assert wait_readable_relay(pair)
            if not pair.responder.counts.answered:
                assert wait_readable(pair.responder)
                pair.responder.poll()
        in_time = time.monotonic_ns() - sent_ns < timeout_ns
        time.sleep(2 * timeout_ns / 1e9)
        (completion,) = pair.prober.poll()
        pair.close()
        # If not, the machine stalled, and the reply was late indeed.
        if in_time:
            break
    assert completion.status is ProbeStatus.OK
    assert completion.times is not None
    assert completion.times.handled_ns - completion.times.received_ns > timeout_ns


def test_close_frees_the_port(real_pair: Pair) -> None:
    """After close the address can be bound again."""
    port, kind = real_pair.responder.port, real_pair.responder.kind
    here = real_pair.responder.address
    real_pair.responder.close()
    stream = socket.SOCK_STREAM if kind.value == "TCP" else socket.SOCK_DGRAM
    with socket.socket(family_of(here).number, stream) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((here, port))
