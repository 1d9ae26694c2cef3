"""Whether round trips are true: beside an independent ping, and while a responder is stopped."""

import hashlib
import json
import os
import re
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

from probers.clock import SystemClock
from probers.transports.base import Completion, Probe
from probers.transports.rdma.transport import RdmaTransport
from probers.transports.rtt import Measurement, measure
from schemas.enums import ClockSource, ProbeStatus
from schemas.units import MS_NS
from tests.rdma.fabric import address
from tests.rdma.pairs import FLOWS, PATIENT_NS, settings
from tests.rdma.udping import pinging

BLOCKS = 6
PINGS = 60
# Until the responder foretells well how long its replies take to leave.
SETTLING = 100


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


def compute() -> None:
    """Keep an emulated processor busy for some milliseconds, with nothing of the project's."""
    text = json.dumps({str(n): {"a": n, "b": [n] * 3, "c": "x" * n} for n in range(12)}, indent=1)
    json.loads(text)
    re.sub(r"(\d+)", lambda found: found[1][::-1], text[:400])
    hashlib.sha256(text.encode()).hexdigest()


def test_the_median_agrees_with_an_independent_ping() -> None:
    """From posting to the kernel's stamp, in turns on the same RNICs.

    An emulated processor runs the kernel's part more slowly after a program has computed, since
    what it had translated is out of the caches: a ping that computes before it sends takes
    stamped as long again. Ours computes more than the bare ping, and less than the other one.
    """
    prober = RdmaTransport(SystemClock(), settings(0), flows=FLOWS)
    devices, addresses = ("rxe0", "rxe1"), (address(0), address(1))
    rtts_ns: dict[str, list[float]] = {"ours": [], "bare": [], "computing": []}
    with (
        peer(1) as other,
        pinging(devices, addresses) as bare,
        pinging(devices, addresses, compute) as computing,
    ):
        for token in range(SETTLING):
            completed(prober, other.probe(token))
        bare.rtts_ns(10)
        computing.rtts_ns(10)
        for _ in range(BLOCKS):
            rtts_ns["ours"] += [
                measurement(completed(prober, other.probe(n))).rtt_ns for n in range(PINGS)
            ]
            rtts_ns["bare"] += bare.rtts_ns(PINGS)
            rtts_ns["computing"] += computing.rtts_ns(PINGS)
    prober.close()
    median_ns = {who: statistics.median(each) for who, each in rtts_ns.items()}
    print({who: f"{each / 1e3:.0f} us" for who, each in median_ns.items()})
    assert 0.9 * median_ns["bare"] <= median_ns["ours"] <= 1.1 * median_ns["computing"]


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
