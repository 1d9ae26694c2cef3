"""RNICs that stamp completions: six timestamps, two of them from each device's own clock.

No such RNIC is at hand: the ports here are played, with clocks that run at other rates, start
anywhere and wrap; what is tested is everything above them.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from probers.clock import Instant
from probers.packet import UNSEALED, PacketType
from probers.transports.base import Completion, PacketCounts, Probe
from probers.transports.exchange import Exchange
from probers.transports.rdma.completions import DeviceClock
from probers.transports.rdma.handles import Handles
from probers.transports.rdma.port import RESPONDER, Event
from probers.transports.rdma.prober import FOLLOW_UP_NS, RdmaProber
from probers.transports.rdma.responder import RdmaResponder
from probers.transports.rtt import Measurement, measure
from schemas.enums import ClockSource, ProbeStatus
from schemas.units import MS_NS, US_NS
from tests.unit.probers.clocks import ManualClock

PROBER, TARGET = b"P" * 16, b"T" * 16
# What the wire takes each way, and the host between a completion and its handling.
WIRE_NS = 8 * US_NS
HOST_NS = 300 * US_NS


@dataclass
class PlayedPort:
    """A port whose datagrams are put where they belong, stamped in ticks of a device."""

    name: bytes
    host: ManualClock
    clock: DeviceClock | None
    first_tick: int
    world: "World"
    events: deque[Event] = field(default_factory=deque)

    def stamp(self) -> int | None:
        """Return the device's clock now."""
        if self.clock is None:
            return None
        ticks = self.first_tick + self.host.monotonic_ns * self.clock.rate_khz // 1_000_000
        return ticks & self.clock.mask

    def key(self, pair: int) -> int:
        """Return a queue pair's key."""
        return 1_000 + pair

    def handle(self, gid: bytes, _: int) -> bytes:
        """Return a handle: the GID itself."""
        return gid

    def send(
        self,
        pair: int,
        _: int,
        make: Callable[[], bytes | None],
        handle: Any,
        to: tuple[int, int],
        *,
        tag: int = 0,
    ) -> Instant | None:
        """Send a datagram: it leaves now, and arrives when the wire has brought it."""
        data = make()
        assert data is not None
        now = self.host.now()
        self.events.append(Event(pair, True, tag, None, None, 0, self.stamp(), now))
        self.world.carry(self, pair, data, handle, to[0])
        return now


class World:
    """A prober and a responder on one wire, in one host's time."""

    def __init__(self, prober: DeviceClock | None, responder: DeviceClock | None) -> None:
        self.host = ManualClock()
        self.counts = PacketCounts()
        self.lose: set[PacketType] = set()
        self.hold_ns = 50 * US_NS
        self._ports = {
            PROBER: PlayedPort(PROBER, self.host, prober, 2**32 - 5_000, self),
            TARGET: PlayedPort(TARGET, self.host, responder, 77, self),
        }
        exchange = Exchange(self.host, self.counts, 50)
        own, other = self._ports[PROBER], self._ports[TARGET]
        self.prober = RdmaProber(
            self.host,
            exchange,
            port=own,  # type: ignore[arg-type] # a port that is played
            handles=self._handles(own),
            arrivals=None,
            flows=4,
        )
        self._responder = RdmaResponder(
            self.host,
            PacketCounts(),
            UNSEALED,
            port=other,  # type: ignore[arg-type] # a port that is played
            handles=self._handles(other),
            arrivals=None,
        )

    def _handles(self, port: PlayedPort) -> Handles:
        class Known:
            """Knows every way."""

            def want(self, gid: bytes) -> bool:
                """Tell the way at once."""
                handles.resolved(gid, ProbeStatus.OK, 0)
                return True

        handles = Handles(Known(), port.handle)
        return handles

    def carry(self, port: PlayedPort, pair: int, data: bytes, to: bytes, _: int) -> None:
        """Bring a datagram to the other end."""
        if UNSEALED.unpack(data).type in self.lose:
            return
        self.host.advance(WIRE_NS)
        other = self._ports[to]
        landing = RESPONDER if to == TARGET else 1
        other.events.append(
            Event(landing, True, 0, data, port.name, pair + 2, other.stamp(), self.host.now())
        )

    def probe(self, timeout_ns: int = 500 * MS_NS) -> list[Completion]:
        """Send one probe and let everything happen."""
        self.prober.send(
            Probe(
                token=1, address="::ffff:84.84.84.84", port=17, flow=0, entropy=1,
                timeout_ns=timeout_ns, qkey=5,
            )
        )  # fmt: skip
        over: list[Completion] = []
        for _ in range(4):
            self.host.advance(self.hold_ns)
            self._serve(TARGET)
            self.host.advance(HOST_NS)
            self._serve(PROBER)
            over += self.prober.take_completions(drained=True)
        return over

    def _serve(self, name: bytes) -> None:
        events = self._ports[name].events
        while events:
            event = events.popleft()._replace(polled=self.host.now())
            if event.data is None:
                side = self._responder if name == TARGET else self.prober
                side.departed(event)
                continue
            parsed = UNSEALED.unpack(event.data)
            assert event.gid is not None
            if parsed.type is PacketType.PROBE:
                self._responder.probed(parsed, event, event.gid)
            elif parsed.type is PacketType.REPLY:
                self.prober.replied(parsed, event, event.gid)
            else:
                self.prober.followed(parsed)


@pytest.fixture(autouse=True)
def _target_has_the_probes_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probers.transports.rdma.prober.gid_of", lambda _: _Raw())


class _Raw:
    packed = TARGET


NARROW = DeviceClock(mask=2**32 - 1, rate_khz=1_000_000)
ODD = DeviceClock(mask=2**48 - 1, rate_khz=156_250)


def only(over: list[Completion]) -> tuple[Completion, Measurement]:
    """Return the one completion and what it measured."""
    (completion,) = over
    assert completion.times is not None
    measured = measure(completion.times)
    assert isinstance(measured, Measurement)
    return completion, measured


@pytest.mark.parametrize("responder", [NARROW, ODD])
def test_the_wire_alone_is_the_round_trip(responder: DeviceClock) -> None:
    """Whatever hosts take, and though the prober's counter wraps: twice the wire, to a tick."""
    completion, measured = only(World(NARROW, responder).probe())
    assert completion.status is ProbeStatus.OK
    assert completion.clock is ClockSource.HARDWARE
    assert abs(measured.rtt_ns - 2 * WIRE_NS) <= 20
    assert measured.responder_delay_ns is not None
    assert abs(measured.responder_delay_ns - 50 * US_NS) <= 20
    assert measured.prober_delay_ns >= HOST_NS


def test_a_responder_that_is_slow_changes_its_own_delay_only() -> None:
    """Held for 200 ms, the round trip stays what the wire takes."""
    world = World(NARROW, ODD)
    world.hold_ns = 200 * MS_NS
    _, measured = only(world.probe(timeout_ns=2_000 * MS_NS))
    assert abs(measured.rtt_ns - 2 * WIRE_NS) <= 20
    assert (measured.responder_delay_ns or 0) >= 199 * MS_NS


def test_without_the_follow_up_the_replys_own_word_counts() -> None:
    """The second packet lost: the probe is still answered, after a short wait."""
    world = World(NARROW, ODD)
    world.lose = {PacketType.FOLLOW_UP}
    assert world.probe() == []
    world.host.advance(FOLLOW_UP_NS)
    completion, measured = only(world.prober.take_completions(drained=True))
    assert completion.status is ProbeStatus.OK
    assert measured.rtt_ns >= 2 * WIRE_NS - 20


def test_a_follow_up_to_nothing_is_foreign() -> None:
    """One whose reply was lost ends no probe: that is a timeout."""
    world = World(NARROW, ODD)
    world.lose = {PacketType.REPLY}
    assert world.probe() == []
    assert world.counts.foreign == 1
    world.host.advance(500 * MS_NS)
    (completion,) = world.prober.take_completions(drained=True)
    assert completion.status is ProbeStatus.TIMEOUT


@pytest.mark.parametrize(("prober", "responder"), [(None, ODD), (NARROW, None), (None, None)])
def test_devices_that_stamp_and_such_that_do_not_understand_each_other(
    prober: DeviceClock | None, responder: DeviceClock | None
) -> None:
    """The result says whose clock it was."""
    world = World(prober, responder)
    over = world.probe()
    if not over:
        world.host.advance(FOLLOW_UP_NS)
        over = world.prober.take_completions(drained=True)
    completion, measured = only(over)
    assert completion.status is ProbeStatus.OK
    hardware = prober is not None
    assert (completion.clock is ClockSource.HARDWARE) == hardware
    assert measured.rtt_ns >= 2 * WIRE_NS - 20
