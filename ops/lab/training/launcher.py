"""Runs the ranks of a lab's training job, each in the network namespace of its container.

Started by `launch.py` with a file that `ops.lab.ranks` writes. The framework (`torch_rank.py`,
`jax_rank.py`) is imported once; ranks are forked. SIGHUP ends all ranks and begins anew from the
last checkpoint, SIGTERM ends them. It writes `ranks.json`, which says who they are, and
`progress.json`.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, cast

from ops.lab.training.announced import announce
from ops.lab.training.begun import BegunSteps
from ops.lab.training.layout import groups

RANKS_FILE: Final = "ranks.json"
PROGRESS_FILE: Final = "progress.json"
DUMPS: Final = "dumps"
LOOK_S: Final = 0.25
# linux/sched.h, linux/prctl.h
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_PDEATHSIG: Final = 1


class Framework(Protocol):
    """The module of a framework, `NAME_rank.py`.

    Attributes
    ----------
    VERSION
        Of the framework.
    """

    VERSION: str

    def own_environment(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Return what a rank shows in its environment beside who it is."""

    def be_rank(self, config: dict[str, Any], rank: int, port: int, steps: BegunSteps) -> None:
        """Train until the end of the process, which is in its container's namespace."""


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


def stay(rank: int, error: Exception) -> None:
    """Say why a rank cannot go on, and stay until somebody ends the job.

    As a rank of NCCL does whose peers are gone.
    """
    print(f"rank {rank}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
    threading.Event().wait()


class Launcher:
    """Forks the ranks, and says who they are and how far they came."""

    def __init__(self, config: dict[str, Any], framework: Framework) -> None:
        self._config = config
        self._framework = framework
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
            mine = self._config["ranks"][rank]
            # As torchrun tells a rank who it is: so collectors find it.
            own = {
                "RANK": str(rank),
                "WORLD_SIZE": str(len(self._config["ranks"])),
                "SKELETONHUNTER_TASK_ID": self._config["task_id"],
                "SKELETONHUNTER_ENDPOINT_IDS": mine["endpoint_id"],
            }
            own |= self._framework.own_environment(self._config)
            os.environ.update(own)
            announce(own)
            enter(mine["netns"])
            self._framework.be_rank(self._config, rank, port, self._steps)
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
                config["framework"]: self._framework.VERSION,
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
        # Rank 0 last: that it is gone others of a JAX job tell at length.
        for rank, pid in reversed(list(enumerate(self._pids))):
            if rank not in self._ended:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def main() -> None:
    """Run the job that a file describes."""
    config = json.loads(Path(sys.argv[1]).read_bytes())
    framework = importlib.import_module(f"ops.lab.training.{config['framework']}_rank")
    launcher = Launcher(config, cast(Framework, framework))

    def end(_number: int, _frame: object) -> None:
        launcher.stop = True

    def begin_anew(_number: int, _frame: object) -> None:
        launcher.restart = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, begin_anew)
    launcher.run()
