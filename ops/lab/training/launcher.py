"""Runs the ranks of a lab's training job, each in the network namespace of its container.

Started by `launch.py` with a file that `ops.lab.ranks` writes. PyTorch is imported once; ranks
are forked. SIGHUP ends all ranks and begins anew from the last checkpoint, SIGTERM ends
them. Beside the dumps it writes `ranks.json`, which says who they are, and `progress.json`.
"""

import ctypes
import datetime
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from ops.lab.training.announced import announce
from ops.lab.training.begun import BegunSteps
from ops.lab.training.model import Job, groups
from ops.lab.training.orders import OrderedFault, Orders
from probers.collector import torch_dump

RANKS_FILE: Final = "ranks.json"
PROGRESS_FILE: Final = "progress.json"
DUMPS: Final = "dumps"
DUMP_NAME: Final = "fr_trace_rank_"
LOOK_S: Final = 0.25
# Longer than a test of a fault: a job that gave up would look like one that was ended.
TIMEOUT: Final = datetime.timedelta(minutes=30)
FOREVER: Final = 10**9
# linux/sched.h, linux/prctl.h
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_PDEATHSIG: Final = 1


def write_json(path: Path, content: Any) -> None:
    """Write a file that is whole whenever it is there."""
    begun = path.with_name(f".{path.name}.begun")
    begun.write_text(json.dumps(content, indent=1), encoding="utf-8")
    begun.rename(path)


def enter(namespace: str) -> None:
    """Move this process, which has one thread, to a network namespace."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"network namespace {namespace}")
    finally:
        os.close(descriptor)


class Rank(Job):
    """A rank that computes for a while in each iteration, and pauses as training does."""

    def __init__(self, config: dict[str, Any], rank: int, steps: BegunSteps) -> None:
        self._config = config
        self._steps = steps
        self._folder = Path(config["folder"])
        self._orders = Orders(self._folder, rank)
        self.recorder: torch_dump.Recorder | None = None
        super().__init__(
            rank,
            len(config["ranks"]),
            OrderedFault(self._orders),
            experts=False,
            width=config["width"],
            tensor_parallel=config["tensor_parallel"],
        )

    def begin_step(self) -> None:
        """Say how far it is; write a checkpoint or evaluate when that is due."""
        self._steps.begin(self.rank, self.step)
        if self.recorder is not None:
            self.recorder.paused = not self._orders.recorded
        config = self._config
        if self.step % config["checkpoint_steps"] == config["checkpoint_steps"] - 1:
            # All others wait for rank 0 in their next collective.
            if self.rank < config["tensor_parallel"]:
                self._save()
            if self.rank == 0:
                time.sleep(config["checkpoint_ms"] / 1e3)
        if self.step % config["evaluation_steps"] == config["evaluation_steps"] - 1:
            # Each rank evaluates its own share, and nobody waits for anybody.
            time.sleep(config["evaluation_ms"] / 1e3)

    def compute(self) -> None:
        """Take half of the period of an iteration for each of its two passes."""
        time.sleep(self._config["period_ms"] / 2e3)

    def _save(self) -> None:
        path = self._checkpoint
        begun = path.with_name(f".{path.name}.begun")
        weights = [layer.state_dict() for pair in self.layers for layer in pair]
        torch.save({"step": self.step, "layers": weights}, begun)
        begun.rename(path)

    @property
    def _checkpoint(self) -> Path:
        """The file of this rank's place in its tensor-parallel group."""
        return self._folder / f"checkpoint_tp{dist.get_rank(self.tensor)}.pt"

    def resume(self) -> int:
        """Take up the weights of the last checkpoint; return the iteration to begin with."""
        first = torch.zeros(1, dtype=torch.int64)
        if self._checkpoint.exists():
            kept = torch.load(self._checkpoint, weights_only=True)
            mine = [layer for pair in self.layers for layer in pair]
            for layer, weights in zip(mine, kept["layers"], strict=True):
                layer.load_state_dict(weights)
            first += kept["step"] + 1
        # A job that was ended while it wrote has files of two iterations.
        dist.all_reduce(first, op=dist.ReduceOp.MIN)
        return int(first)


def be_rank(config: dict[str, Any], rank: int, port: int, steps: BegunSteps) -> None:
    """Train until the end of the process."""
    mine = config["ranks"][rank]
    # As torchrun tells a rank who it is: so collectors find it.
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(config["ranks"])),
        "SKELETONHUNTER_TASK_ID": config["task_id"],
        "SKELETONHUNTER_ENDPOINT_IDS": mine["endpoint_id"],
        "TORCH_FR_DUMP_TEMP_FILE": str(Path(config["folder"]) / DUMPS / DUMP_NAME),
    }
    os.environ.update(own)
    announce(own)
    enter(mine["netns"])
    os.environ["GLOO_SOCKET_IFNAME"] = mine["interface"]
    master = config["ranks"][0]["address"]
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{master}:{port}",
        rank=rank,
        world_size=len(config["ranks"]),
        timeout=TIMEOUT,
    )
    job = Rank(config, rank, steps)
    job.recorder = torch_dump.start()
    try:
        job.train(FOREVER, first=job.resume())
    except RuntimeError as error:
        # As a rank of NCCL, whose peers are gone: it stays until somebody ends the job.
        print(f"rank {rank}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        threading.Event().wait()


class Launcher:
    """Forks the ranks, and says who they are and how far they came."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._folder = Path(config["folder"])
        self._pids: list[int] = []
        self._ended: dict[int, int] = {}
        self._attempt_us = 0
        self._attempts = 0
        self._steps = BegunSteps(len(config["ranks"]))
        self.restart = self.stop = False

    def run(self) -> None:
        """Keep the job running until told to end it."""
        while not self.stop:
            self._begin()
            self.restart = False
            while not (self.stop or self.restart):
                self._look()
                time.sleep(LOOK_S)
            self._end()

    def _begin(self) -> None:
        config = self._config
        count = len(config["ranks"])
        dumps = self._folder / DUMPS
        dumps.mkdir(exist_ok=True)
        for old in dumps.iterdir():
            # Of an attempt that is over.
            old.unlink()
        self._steps.forget()
        self._ended.clear()
        self._attempt_us = time.time_ns() // 1000
        # Another port each time: the last attempt's connections still close.
        port = config["first_port"] + self._attempts % config["ports"]
        self._attempts += 1
        self._pids = []
        for rank in range(count):
            pid = os.fork()
            if pid == 0:
                self._child(rank, port)
            self._pids.append(pid)
        self._write_ranks()

    def _child(self, rank: int, port: int) -> None:
        """Be a rank; never returns."""
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            be_rank(self._config, rank, port, self._steps)
        except BaseException as error:  # noqa: BLE001 - a forked child must not go on as its parent
            print(f"rank {rank}: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)

    def _write_ranks(self) -> None:
        config = self._config
        write_json(
            self._folder / RANKS_FILE,
            {
                "task_id": config["task_id"],
                "world_size": len(config["ranks"]),
                "attempt": self._attempt_us,
                "dumps": str(self._folder / DUMPS),
                "library": "gloo",
                "torch": torch.__version__,
                "groups": groups(len(config["ranks"]), config["tensor_parallel"]),
                "ranks": [
                    {**rank, "rank": number, "pid": pid}
                    for number, (rank, pid) in enumerate(
                        zip(config["ranks"], self._pids, strict=True)
                    )
                ],
            },
        )

    def _look(self) -> None:
        for rank, pid in enumerate(self._pids):
            if rank not in self._ended:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    self._ended[rank] = os.waitstatus_to_exitcode(status)
        at_ns = time.monotonic_ns()
        begun = self._steps.read()
        write_json(
            self._folder / PROGRESS_FILE,
            {
                "attempt": self._attempt_us, "at_ns": at_ns, "ended": self._ended,
                "steps": [last.step for last in begun],
                "begun_ns": [last.at_ns for last in begun],
                "begun_cpu_ns": [last.cpu_ns for last in begun],
            },
        )  # fmt: skip

    def _end(self) -> None:
        for rank, pid in enumerate(self._pids):
            if rank not in self._ended:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def main() -> None:
    """Run the job that a file describes."""
    config = json.loads(Path(sys.argv[1]).read_bytes())
    launcher = Launcher(config)

    def end(_number: int, _frame: object) -> None:
        launcher.stop = True

    def begin_anew(_number: int, _frame: object) -> None:
        launcher.restart = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, begin_anew)
    launcher.run()
