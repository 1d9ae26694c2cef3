"""Whether round trips are true: beside an independent ping, and while a responder is stopped."""

import json
import os
import select
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ops.lab.vm.fabric import address
from probers.clock import SystemClock
from probers.rdma.transport import RdmaTransport
from probers.rtt import Measurement, measure
from probers.transport import Completion, Probe
from schemas.enums import ClockSource, ProbeStatus
from tests.rdma.pairs import FLOWS, MS_NS, PATIENT_NS, settings
from tests.rdma.udping import pinging

BLOCKS = 6
PINGS = 60


@dataclass
class Peer:
    """A responder in another process."""

    pid: int
    address: str
    port: int
    qkey: int

    def probe(self, token: int) -> Probe:
        """Return a probe of it."""
        return Probe(
            token=token, address=self.address, port=self.port, qkey=self.qkey,
            flow=token % FLOWS, entropy=1 + token % FLOWS, timeout_ns=PATIENT_NS,
        )  # fmt: skip


@contextmanager
def peer(rnic: int) -> Iterator[Peer]:
    """Start a responder."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.rdma.peer", str(rnic)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield Peer(process.pid, **json.loads(process.stdout.readline()))
        process.communicate("", timeout=20)


def completed(prober: RdmaTransport, sent: Probe) -> Completion:
    """Send a probe and return what became of it."""
    prober.send(sent)
    while True:
        select.select([prober.fileno()], [], [], 0.1)
        over = prober.poll()
        if over:
            return over[0]


def measurement(completion: Completion) -> Measurement:
    """Return what an answered probe measured."""
    assert completion.status is ProbeStatus.OK, completion
    assert completion.times is not None
    found = measure(completion.times)
    assert isinstance(found, Measurement)
    return found


def test_the_median_agrees_with_an_independent_ping() -> None:
    """Both from posting to the kernel's stamp, in turns on the same RNICs.

    On an idle machine they are a tenth to a quarter apart: a twentieth of a millisecond each way
    of more Python between stamp and wire, on an emulated processor.
    """
    ours: list[float] = []
    theirs: list[float] = []
    prober = RdmaTransport(SystemClock(), settings(0), flows=FLOWS)
    addresses = (address(0), address(1))
    with peer(1) as other, pinging(("rxe0", "rxe1"), addresses) as ping:
        for token in range(FLOWS):
            completed(prober, other.probe(token))
        ping.rtts_ns(10)
        for _ in range(BLOCKS):
            ours += [measurement(completed(prober, other.probe(n))).rtt_ns for n in range(PINGS)]
            theirs += ping.rtts_ns(PINGS)
    prober.close()
    own, other_ns = statistics.median(ours), statistics.median(theirs)
    print(f"median of {len(ours)}: ours {own / 1e3:.0f} us, the ping's {other_ns / 1e3:.0f} us")
    assert abs(own - other_ns) <= 0.6 * other_ns


def test_a_responder_that_was_stopped_does_not_look_like_a_slow_network() -> None:
    """Stopped for 200 ms: the round trip is as before, the responder's delay has it all."""
    prober = RdmaTransport(SystemClock(), settings(0), flows=FLOWS)
    with peer(1) as other:
        usual = [measurement(completed(prober, other.probe(n))).rtt_ns for n in range(40)]
        stopped = []
        for number in range(5):
            os.kill(other.pid, signal.SIGSTOP)
            threading.Timer(0.2, os.kill, (other.pid, signal.SIGCONT)).start()
            stopped.append(completed(prober, other.probe(number)))
            time.sleep(0.1)
    prober.close()
    assert {c.clock for c in stopped} == {ClockSource.KERNEL}
    found = [measurement(c) for c in stopped]
    held = [m.responder_delay_ns or 0 for m in found]
    print(f"usual {statistics.median(usual) / 1e3:.0f} us, while stopped "
          f"{statistics.median(m.rtt_ns for m in found) / 1e3:.0f} us, "
          f"held {statistics.median(held) / 1e6:.0f} ms")  # fmt: skip
    assert min(held) > 150 * MS_NS
    # Of what it was stopped for, less than a twentieth shows.
    shift_ns = statistics.median(m.rtt_ns for m in found) - statistics.median(usual)
    assert shift_ns < 10 * MS_NS
