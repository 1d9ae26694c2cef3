"""What the fabric costs: `python -m ops.lab.bench_fabric`.

Starts a fabric process of the default lab without Kafka, sends probes through it
at a steady rate, and reads the process's own CPU time. A probe and its answer
cross five nodes each within a pod, seven across pods.
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.lab.control import request, wait_for
from ops.lab.echo import EchoMesh
from ops.lab.ports import free_udp_ports
from ops.lab.server import SOCKET_FILE, FabricConfig
from ops.lab.shape import LabShape
from ops.running.processes import ProcessGroup

READY_TIMEOUT_S: Final = 20.0
DRAIN_TIMEOUT_S: Final = 2.0
FLOWS: Final = 4
# What the lab is held to, on a machine that broker and workers share.
HOP_BAR_US: Final = 40.0
CORE_BAR_PERCENT: Final = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricFigures:
    """What was measured."""

    probes: int
    answered: int
    hops: int
    hop_us: float
    core_percent: float
    rtt_p50_us: float
    rtt_p99_us: float


def measure(shape: LabShape, *, rate_hz: float, seconds: float) -> FabricFigures:
    """Run probes of all same-rail pairs through a fabric process of its own."""
    ports = dict(
        zip(
            (e.endpoint_id for e in shape.endpoints),
            free_udp_ports(len(shape.endpoints)),
            strict=True,
        )
    )
    with tempfile.TemporaryDirectory(prefix="skh-") as name:
        folder = Path(name)
        path = FabricConfig(folder=folder, shape=shape, endpoints=ports).write()
        with ProcessGroup(folder / "logs") as group:
            group.start("fabric", [sys.executable, "-m", "ops.lab.server", "--config", str(path)])
            status = wait_for(
                folder / SOCKET_FILE,
                timeout_s=READY_TIMEOUT_S,
                check=group.check,
                command={"op": "status"},
            )
            mesh = EchoMesh(shape, ports, status["addresses"])
            try:
                return _run(mesh, shape, folder / SOCKET_FILE, rate_hz=rate_hz, seconds=seconds)
            finally:
                mesh.close()


def _run(
    mesh: EchoMesh, shape: LabShape, control: Path, *, rate_hz: float, seconds: float
) -> FabricFigures:
    pairs = [
        (a.endpoint_id, b.endpoint_id, flow)
        for a in shape.endpoints
        for b in shape.endpoints
        if a.rail == b.rail and a is not b
        for flow in range(FLOWS)
    ]
    before = request(control, {"op": "status"})
    begin_ns = time.monotonic_ns()
    count = round(rate_hz * seconds)
    for i in range(count):
        due_ns = begin_ns + round(i / rate_hz * 1e9)
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            mesh.loop.run_once(left_ns)
        src, dst, flow = pairs[i % len(pairs)]
        mesh.probe(src, dst, flow=flow)
    mesh.run_until(count, DRAIN_TIMEOUT_S)
    elapsed_ns = time.monotonic_ns() - begin_ns
    after = request(control, {"op": "status"})
    cpu_ns = after["cpu_ns"] - before["cpu_ns"]
    hops = after["relayed"] - before["relayed"]
    rtts_us = sorted(a.rtt_ns / 1e3 for a in mesh.arrivals) or [float("nan")]
    return FabricFigures(
        probes=count,
        answered=len(mesh.arrivals),
        hops=hops,
        hop_us=cpu_ns / 1e3 / max(hops, 1),
        core_percent=cpu_ns / elapsed_ns * 100,
        rtt_p50_us=statistics.median(rtts_us),
        rtt_p99_us=rtts_us[min(len(rtts_us) - 1, len(rtts_us) * 99 // 100)],
    )


def main() -> int:
    """Measure, print, return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m ops.lab.bench_fabric", description=__doc__)
    parser.add_argument("--rate", type=float, default=400.0, help="probes per second (400)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long (5)")
    arguments = parser.parse_args()
    got = measure(LabShape(), rate_hz=arguments.rate, seconds=arguments.seconds)
    good = got.hop_us <= HOP_BAR_US and got.core_percent <= CORE_BAR_PERCENT
    print(f"probes answered        {got.answered} of {got.probes}")
    print(f"packet-hops            {got.hops}")
    print(f"CPU per packet-hop     {got.hop_us:.1f} µs (at most {HOP_BAR_US:.0f})")
    print(f"share of a core        {got.core_percent:.1f} % (at most {CORE_BAR_PERCENT:.0f})")
    print(f"round trip p50, p99    {got.rtt_p50_us:.0f} µs, {got.rtt_p99_us:.0f} µs")
    return 0 if good and got.answered == got.probes else 1


if __name__ == "__main__":
    sys.exit(main())
