"""Training jobs on loopback, one fault each, until their dumps are written.

Needs PyTorch, which the project itself never imports: run it by the Python of an environment
that has it (`make test-training` makes one).

    python -m tests.training.job OUT --causes stalled,exited --ranks 4

Writes OUT/<cause>/<dump of each rank> and OUT/<cause>/truth.json. PyTorch is imported once; each
job is a set of forked processes.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from ops.lab.training.faults import FAULTS, HEALTHY_STEPS, PAUSE_S, Fault, Pause, Slow, Splits
from ops.lab.training.layout import groups
from ops.lab.training.model import Job, dump

# A stuck job is dumped so long after it began; a pause of a checkpoint is shorter than that.
DUMP_AFTER_S: Final = 6.0


def dump_path(folder: Path, rank: int) -> Path:
    """Return a name with a host in it, as the job's own machinery may give one."""
    return folder / f"fr_trace_host{rank // 2:02d}_rank_{rank}"


def run_rank(run: "Run", rank: int) -> None:
    """Be one rank until the dump is written."""
    fault = run.fault
    written = threading.Event()
    begin = time.monotonic()

    def dump_late() -> None:
        # A pause is looked at while it lasts, a fault when it has lasted for a while.
        first, after = HEALTHY_STEPS, DUMP_AFTER_S
        if isinstance(fault, Pause):
            first, after = HEALTHY_STEPS // 2 + 3, PAUSE_S / 2
        while job.step < first and time.monotonic() - begin < 60:
            time.sleep(0.02)
        time.sleep(after)
        dump(dump_path(run.folder, rank), run.form)
        written.set()

    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{run.port}", rank=rank, world_size=run.ranks
    )
    job = Job(rank, run.ranks, fault, experts=isinstance(fault, Splits))
    threading.Thread(target=dump_late, daemon=True).start()
    try:
        steps = 24 if isinstance(fault, Slow) or type(fault) is Fault else 10**6
        job.train(steps)
    except RuntimeError as error:
        print(f"rank {rank}: {str(error).splitlines()[0]}", file=sys.stderr)
    written.wait(60)
    os._exit(0)


@dataclass(frozen=True)
class Run:
    """A job to run: where its dumps go, of how many ranks, and what goes wrong."""

    folder: Path
    ranks: int
    form: str
    fault: Fault
    port: int


def run_job(run: Run) -> None:
    """Run one job to its dumps, and write what was wrong."""
    folder, ranks, fault = run.folder, run.ranks, run.fault
    folder.mkdir(parents=True, exist_ok=True)
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            try:
                run_rank(run, rank)
            finally:
                os._exit(1)
        children.append(pid)
    names = {rank: dump_path(folder, rank) for rank in range(ranks)}
    limit = time.monotonic() + 90
    running = dict(enumerate(children))
    while running and time.monotonic() < limit:
        time.sleep(0.1)
        for rank, pid in list(running.items()):
            if names[rank].exists() or os.waitpid(pid, os.WNOHANG | os.WUNTRACED)[0]:
                # It wrote its dump, or ended or was stopped without one.
                del running[rank]
    time.sleep(0.3)
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
    none = type(fault) is Fault or isinstance(fault, Pause)
    truth = {
        "cause": fault.kind,
        "culprits": [] if none else [fault.culprit],
        "ranks": ranks,
        "backend": "gloo",
        "torch": torch.__version__,
        "taken_at_us": {p.name: int(p.stat().st_mtime * 1e6) for p in names.values() if p.exists()},
        "groups": groups(ranks),
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def main() -> None:
    """Run the jobs that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--causes", default=",".join(FAULTS), help="comma-separated")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--form", choices=("pickle", "json"), default="pickle")
    parser.add_argument("--port", type=int, default=29_611)
    given = parser.parse_args()
    for number, name in enumerate(given.causes.split(",")):
        make: Callable[[int], Fault] = FAULTS[name]
        run_job(
            Run(given.out / name, given.ranks, given.form, make(given.culprit), given.port + number)
        )
        print(f"{name}: {len(list((given.out / name).iterdir())) - 1} dumps", flush=True)


if __name__ == "__main__":
    main()
