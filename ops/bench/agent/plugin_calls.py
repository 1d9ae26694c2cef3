"""What a call of the plugin for NCCL takes, and ranks whose rings a collector reads."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
# Operations of a rank come in bursts, as those of an iteration do.
TURN_S: Final = 0.5
TASK: Final = "bench-collector"
_ANSWER: Final = re.compile(r"([\d.]+) ns (\d+) calls")


def build(folder: Path) -> tuple[Path, Path]:
    """Compile the plugin and what plays NCCL; return their paths, that one's last.

    Raises
    ------
    BuildError
        If there is no compiler.
    """
    plugin = build_plugin(folder)
    stand_in = folder / "nccl_stand_in"
    command = [os.environ.get("CC") or "cc", "-std=c11", "-O2", "-pthread", str(SOURCE), "-ldl"]
    subprocess.run([*command, "-o", str(stand_in)], check=True)
    return plugin, stand_in


def measure_calls(folder: Path) -> list[Figure]:
    """Return the time of a call, nanoseconds of a processor.

    Raises
    ------
    BuildError
        If there is no compiler.
    """
    plugin, stand_in = build(folder)
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


@contextmanager
def nccl_ranks(folder: Path, ranks: int, rate_hz: int) -> Iterator[None]:
    """Run ranks that play NCCL, each with so many operations a second.

    Raises
    ------
    BuildError
        If there is no compiler.
    """
    plugin, stand_in = build(folder)
    stopped = threading.Event()
    with ExitStack() as stack:
        running = []
        for rank in range(ranks):
            process = stack.enter_context(
                subprocess.Popen(
                    [str(stand_in), str(plugin), "6"], stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, text=True,
                    env=os.environ
                    | {
                        "RANK": str(rank), "WORLD_SIZE": str(ranks),
                        "SKELETONHUNTER_TASK_ID": TASK,
                        "SKELETONHUNTER_RING_DIR": str(folder / "rings"),
                    },
                )
            )  # fmt: skip
            stack.callback(process.kill)
            running.append(process)
            _tell(process, f"init 0 abc {ranks} {rank} default_pg")

        def drive() -> None:
            while not stopped.wait(TURN_S):
                for process in running:
                    _tell(process, f"flood 1 {round(rate_hz * TURN_S)} {STEPS}")

        thread = threading.Thread(target=drive)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


def _tell(process: "subprocess.Popen[str]", line: str) -> None:
    if process.stdin is not None:
        process.stdin.write(line + "\n")
        process.stdin.flush()
