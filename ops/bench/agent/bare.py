"""A loop in C that sends, answers and reads the packets of an agent: the floor of its CPU."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from ops.bench.agent.peers import SPREAD_NS, Peers
from ops.bench.rig import process_cost
from probers.probing.plan import SLOT_NS
from schemas.units import MS_NS

SOURCE: Final = Path(__file__).with_name("bare_loop.c")
# Where the packets' header is found from.
ROOT: Final = SOURCE.parents[3]
SETTLE_S: Final = 2.0


def build(folder: Path) -> Path | None:
    """Compile the loop; None: there is no compiler."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        return None
    program = folder / "bare_loop"
    flags = ["-std=gnu11", "-O2", "-Wno-unused-function", f"-I{ROOT}"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(program)], check=True)
    return program


def bare_cpu_percent(folder: Path, rnics: int, hosts: int, seconds: float) -> float | None:
    """Return the CPU of the loop over so long, % of a core; None: there is no compiler."""
    program = build(folder)
    if program is None:
        return None
    with Peers(hosts, rnics) as peers:
        targets = [str(peers.port(host, rail)) for host in range(hosts) for rail in range(rnics)]
        words = [str(rnics), str(SPREAD_NS // MS_NS), str(SLOT_NS // MS_NS), *targets]
        with subprocess.Popen(
            [str(program), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as loop:
            if loop.stdin is None or loop.stdout is None:  # for the type checker: they are pipes
                raise AssertionError
            peers.probe([int(port) for port in loop.stdout.readline().split()])
            time.sleep(SETTLE_S)
            cpu_s, begun = process_cost.cpu_s(loop.pid), time.monotonic()
            time.sleep(seconds)
            took_s = time.monotonic() - begun
            cpu_s = process_cost.cpu_s(loop.pid) - cpu_s
            loop.stdin.close()
    return 100 * cpu_s / took_s
