"""What the exchange does when sockets cannot be emptied."""

from probers import packet
from probers.clock import Instant
from probers.transports.base import PacketCounts, Probe
from probers.transports.exchange import UNDRAINED_NS, Exchange
from schemas.enums import ProbeStatus
from schemas.units import MS_NS
from tests.unit.probers.clocks import ManualClock


def begun(clock: ManualClock) -> tuple[Exchange, int]:
    """Return an exchange with one probe under way, and its nonce."""
    exchange = Exchange(clock, PacketCounts(), packet.MIN_PACKET_BYTES)
    nonce, _ = exchange.prepare()
    probe = Probe(token=1, address="10.0.0.1", port=1, flow=0, entropy=0, timeout_ns=100 * MS_NS)
    exchange.record_posted(nonce, probe, Instant(clock.monotonic_ns, clock.realtime_ns))
    return exchange, nonce


def test_a_reply_that_is_still_in_the_socket_is_waited_for() -> None:
    """With more to read, a probe past its time is not yet lost; its reply decides by its stamp."""
    clock = ManualClock()
    exchange, nonce = begun(clock)
    arrived_ns = clock.realtime_ns + 50 * MS_NS
    clock.advance(300 * MS_NS)
    assert exchange.take_completions(drained=False) == []
    reply = packet.UNSEALED.reply(
        packet.UNSEALED.unpack(packet.UNSEALED.probe(nonce)), t2_ns=0, t3_ns=0, t2_kernel=True
    )
    exchange.handle_reply(packet.UNSEALED.unpack(reply), arrived_ns, "10.0.0.1")
    assert [c.status for c in exchange.take_completions(drained=False)] == [ProbeStatus.OK]


def test_a_flood_does_not_keep_a_lost_probe_from_being_told() -> None:
    """However much there is to read, a second after its time a probe is a timeout."""
    clock = ManualClock()
    exchange, _ = begun(clock)
    clock.advance(100 * MS_NS + UNDRAINED_NS - 1)
    assert exchange.take_completions(drained=False) == []
    clock.advance(1)
    assert [c.status for c in exchange.take_completions(drained=False)] == [ProbeStatus.TIMEOUT]


def test_every_probe_has_a_nonce_of_its_own() -> None:
    """64 bits from the system: a thousand probes, a thousand nonces, spread over all bits."""
    exchange = Exchange(ManualClock(), PacketCounts(), packet.MIN_PACKET_BYTES)
    nonces = {exchange.prepare()[0] for _ in range(1_000)}
    assert len(nonces) == 1_000
    for bit in range(64):
        assert 300 < sum(nonce >> bit & 1 for nonce in nonces) < 700
