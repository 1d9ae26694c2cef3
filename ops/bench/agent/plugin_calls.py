"""What a call of the plugin for NCCL takes, from one and from four threads of a job at once."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ops.bench.rig.report import Figure, figure
from probers.collector.build_plugin import build_plugin

SOURCE: Final = Path(__file__).with_name("nccl_stand_in.c")
# A chunk of 512 KiB makes five calls: at 400 Gbit/s half a million a second come from the thread
# that moves the data, of which 100 ns each are 5 %.
BAR_NS: Final = 100.0
RUNS: Final = 3
# Operations with four channels and eight chunks each: 182 calls.
OPERATIONS: Final = 20_000
STEPS: Final = 8
_ANSWER: Final = re.compile(r"([\d.]+) ns (\d+) calls")


def measure_calls(folder: Path) -> list[Figure]:
    """Return the time of a call, nanoseconds of a processor; none without a compiler."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        return []
    stand_in = folder / "nccl_stand_in"
    flags = ["-std=c11", "-O2", "-pthread"]
    subprocess.run([compiler, *flags, str(SOURCE), "-ldl", "-o", str(stand_in)], check=True)
    plugin = build_plugin(folder)
    rows = []
    for threads in (1, 4):
        lines = ["init 0 abc 2 0 bench", *[f"flood {threads} {OPERATIONS} {STEPS}"] * RUNS]
        done = subprocess.run(
            [str(stand_in), str(plugin), "6"], input="\n".join(lines) + "\n", text=True,
            capture_output=True, check=True,
            env=os.environ | {"SKELETONHUNTER_RING_DIR": str(folder / "rings")},
        )  # fmt: skip
        took = [float(ns) for ns, _ in _ANSWER.findall(done.stdout)]
        rows.append(figure(f"plugin for NCCL, {threads} threads: a call", took, "ns", BAR_NS))
    return rows
