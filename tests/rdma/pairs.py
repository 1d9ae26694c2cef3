"""A prober and a responder on real verbs, in one process."""

import select
import statistics
import time

from probers.clock import SystemClock
from probers.config.rnics import RdmaSettings
from probers.packet import MIN_PACKET_BYTES, UNSEALED, Packets
from probers.transports.base import Completion, Probe
from probers.transports.rdma.transport import RdmaTransport
from probers.transports.rtt import Measurement, measure
from schemas.enums import ProbeStatus
from schemas.units import MS_NS
from tests.rdma.fabric import address

# The machine is emulated: a round trip takes a millisecond, and now and then a hundred.
PATIENT_NS = 2_000 * MS_NS
FLOWS = 4


def settings(rnic: int, at: str | None = None) -> RdmaSettings:
    """Return the settings of an RNIC of the fabric, or of one with another address."""
    return RdmaSettings(device=f"rxe{rnic}", address=at or address(rnic))


class RdmaPair:
    """Two open RNICs."""

    def __init__(
        self,
        *,
        prober: int = 0,
        responder: int = 1,
        probe_bytes: int = MIN_PACKET_BYTES,
        packets: Packets = UNSEALED,
        addresses: tuple[str | None, str | None] = (None, None),
    ) -> None:
        clock = SystemClock()
        self.prober, self.responder = (
            RdmaTransport(
                clock, settings(rnic, at), flows=FLOWS, probe_bytes=probe_bytes, packets=packets
            )
            for rnic, at in zip((prober, responder), addresses, strict=True)
        )
        self._token = 0

    def probe(self, flow: int = 0, *, timeout_ns: int = PATIENT_NS, **changes: object) -> Probe:
        """Return a probe of the responder, with what is to be wrong about it."""
        self._token += 1
        fields = {
            "token": self._token,
            "address": self.responder.address,
            "port": self.responder.port,
            "flow": flow,
            "entropy": 1 + flow,
            "timeout_ns": timeout_ns,
            "qkey": self.responder.qkey,
        }
        return Probe(**{**fields, **changes})  # type: ignore[arg-type]

    def run(self, count: int, *, timeout_ns: int = PATIENT_NS) -> list[Completion]:
        """Probe so often, one after another, over all flows; return what became of them."""
        over: list[Completion] = []
        for number in range(count):
            self.prober.send(self.probe(number % FLOWS, timeout_ns=timeout_ns))
            over += self.collect(1)
        return over

    def collect(self, count: int, within_s: float = 20.0) -> list[Completion]:
        """Serve both until so many probes are over."""
        over: list[Completion] = []
        end = time.monotonic() + within_s
        while len(over) < count:
            assert time.monotonic() < end, f"{len(over)} of {count} probes over in {within_s} s"
            self.serve(0.05)
            over += self.prober.poll()
        return over

    def serve(self, seconds: float) -> None:
        """Wait for something to do; let the responder do its part."""
        select.select([self.prober.fileno(), self.responder.fileno()], [], [], seconds)
        self.responder.poll()

    def settle(self) -> None:
        """Let both find the way to each other."""
        assert self.run(FLOWS)[-1].status is ProbeStatus.OK

    def close(self) -> None:
        """Close both."""
        self.prober.close()
        self.responder.close()


def measured(completions: list[Completion]) -> list[Measurement]:
    """Return what the answered probes measured."""
    found = [measure(c.times) for c in completions if c.times is not None]
    return [each for each in found if isinstance(each, Measurement)]


def median_ns(completions: list[Completion]) -> float:
    """Return the median round trip, nanoseconds."""
    return statistics.median(m.rtt_ns for m in measured(completions))
