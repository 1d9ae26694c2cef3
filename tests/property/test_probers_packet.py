"""Hostile bytes: what is no packet of ours never becomes an answer, and never a crash."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from probers import packet
from probers.clock import Instant
from probers.packet import UNSEALED, PacketError
from probers.transports import encap
from probers.transports.base import PacketCounts, Probe
from probers.transports.encap import EncapError, EncapHeader, EncapType
from probers.transports.exchange import Exchange
from schemas.enums import ProbeStatus
from tests.unit.probers.clocks import ManualClock

U64 = st.integers(0, 2**64 - 1)
U16 = st.integers(0, 2**16 - 1)
ADDRESS = st.ip_addresses(v=4).map(str)
SIZES = st.integers(packet.MIN_PACKET_BYTES, 300)


@given(U64, SIZES)
def test_a_probe_is_what_it_was(nonce: int, size: int) -> None:
    """Packed and parsed, nonce and size are the same."""
    data = UNSEALED.probe(nonce, size)
    assert (UNSEALED.unpack(data).nonce, len(data)) == (nonce, size)
    assert packet.quoted_nonce(data[:64]) == nonce


@given(U64, SIZES, U64, U64, st.booleans())
def test_a_reply_is_what_it_was(
    nonce: int, size: int, t2_ns: int, t3_ns: int, kernel: bool
) -> None:
    """Times and flag survive; the length is the probe's."""
    probe = UNSEALED.unpack(UNSEALED.probe(nonce, size))
    data = UNSEALED.reply(probe, t2_ns=t2_ns, t3_ns=t3_ns, t2_kernel=kernel)
    reply = UNSEALED.unpack(data)
    assert (reply.nonce, reply.t2_ns, reply.t3_ns, reply.t2_kernel) == (
        nonce,
        t2_ns,
        t3_ns,
        kernel,
    )
    assert len(data) == size


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_an_error_or_a_packet(data: bytes) -> None:
    """Nothing but PacketError comes out; a claimed nonce is read, not believed."""
    with contextlib.suppress(PacketError):
        UNSEALED.unpack(data)
    packet.quoted_nonce(data)


@st.composite
def mutated_replies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return a reply, and the same with bytes changed, cut off or added."""
    probe = UNSEALED.unpack(UNSEALED.probe(draw(U64), draw(SIZES)))
    good = UNSEALED.reply(probe, t2_ns=10, t3_ns=20, t2_kernel=True)
    bad = bytearray(good)
    for position, value in draw(
        st.lists(st.tuples(st.integers(0, len(bad) - 1), st.integers(1, 255)), max_size=4)
    ):
        bad[position] ^= value
    cut = draw(st.integers(0, len(bad)))
    return good, bytes(bad[:cut]) + draw(st.binary(max_size=20))


@settings(max_examples=300)
@given(mutated_replies())
def test_a_mutated_reply_never_counts_as_a_reply(pair: tuple[bytes, bytes]) -> None:
    """Whatever was done to it on its way, the probe is not OK by it."""
    good, bad = pair
    if bad == good:
        return
    clock = ManualClock()
    nonce = UNSEALED.unpack(good).nonce
    exchange = Exchange(clock, PacketCounts(), packet.MIN_PACKET_BYTES, nonces=lambda: nonce)
    sent, _ = exchange.prepare()
    probe = Probe(token=1, address="10.0.0.1", port=1, flow=0, entropy=0, timeout_ns=10**9)
    exchange.record_posted(sent, probe, Instant(clock.monotonic_ns, clock.realtime_ns))
    clock.advance(1_000)
    try:
        exchange.handle_reply(UNSEALED.unpack(bad), None, "10.0.0.1")
    except PacketError as error:
        exchange.handle_corrupt(error)
    assert all(c.status is ProbeStatus.BAD_REPLY for c in exchange.take_completions())


HEADERS = st.builds(
    EncapHeader,
    type=st.sampled_from(EncapType),
    ttl=st.integers(0, 255),
    entropy=U16,
    src_address=ADDRESS,
    src_port=U16,
    dst_address=ADDRESS,
    dst_port=U16,
)


@given(HEADERS, st.binary(max_size=200))
def test_an_encapsulated_datagram_is_what_it_was(header: EncapHeader, payload: bytes) -> None:
    """Header and payload survive."""
    assert encap.unpack(encap.pack(header, payload)) == (header, payload)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_an_encap_error_or_a_datagram(data: bytes) -> None:
    """Headers and reports of anybody: typed errors only."""
    with contextlib.suppress(EncapError):
        encap.unpack(data)
    with contextlib.suppress(EncapError):
        encap.unpack(b"SKE1" + data)
    with contextlib.suppress(EncapError):
        encap.unpack_report(data)


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=60),
    st.binary(max_size=200),
)
def test_a_report_names_its_node(address: str, payload: bytes) -> None:
    """The address and the first 64 bytes of what failed come back; or it was not printable."""
    try:
        report = encap.unpack_report(encap.pack_report(address, payload))
    except EncapError:
        assert not address.isprintable()
        return
    assert (report.address, report.quoted) == (address, payload[:64])
