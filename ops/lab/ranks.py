"""The ranks of a real training job in a lab's containers: started, watched, broken, mended.

They are processes of a Python that has PyTorch or JAX (`ops/lab/training`), one for each endpoint;
this one has neither.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ops.lab.errors import LabError
from ops.lab.faults import FaultError
from ops.lab.frameworks import TORCH, Framework
from ops.lab.netns.plan import namespace_name, overlay_address, prefix_of
from ops.lab.shape import LabShape
from ops.running.processes import ProcessGroup
from probers.config.rnics import namespace_path
from schemas.ids import rank_key

JOB: Final = "job"
"""Name of the process, and of the folder in the lab's."""
LAUNCHER: Final = Path(__file__).with_name("training") / "launch.py"
CONFIG_FILE: Final = "job.json"
ORDERS_FILE: Final = "orders.json"
# While it is there no rank writes dumps (`ops/lab/training/orders.py`, which needs PyTorch).
UNRECORDED_FILE: Final = "unrecorded"
RANKS_FILE: Final = "ranks.json"
DUMPS: Final = "dumps"
PROGRESS_FILE: Final = "progress.json"
# PyTorch takes four seconds of a processor to import, JAX one, and half a second to compile in
# each rank; on a busy machine many times that.
START_TIMEOUT_S: Final = 180.0
# The first iterations make connections.
TRAINING_STEPS: Final = 3
POLL_S: Final = 0.1
# Where the ranks meet (TCPStore, JAX's coordinator), one port each time that they begin anew.
FIRST_PORT: Final = 7_100
PORTS: Final = 100
# These end the job's communicators: only a new attempt mends them.
RESTARTING: Final = frozenset({"rank-desync", "rank-exit"})


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """How a real job trains.

    Each iteration computes for `period_ms`; gradients are four matrices of `width`² numbers of
    4 bytes. Rank 0 writes a checkpoint for `checkpoint_ms` each `checkpoint_steps` iterations,
    and all evaluate for `evaluation_ms` each `evaluation_steps`.
    """

    python: Path
    framework: Framework = TORCH
    period_ms: int = 500
    width: int = 256
    checkpoint_steps: int = 60
    checkpoint_ms: int = 3_000
    evaluation_steps: int = 100
    evaluation_ms: int = 4_000


class TrainingRanks:
    """One rank for each endpoint of a lab of namespaces, beside other processes of its group.

    Rank is host × rails + rail. The ranks of a container are one tensor-parallel group, and
    those of a rail one data-parallel group, whose traffic crosses the fabric.
    """

    def __init__(
        self,
        group: ProcessGroup,
        folder: Path,
        shape: LabShape,
        config: JobConfig,
        changed: Callable[[], None],
    ) -> None:
        self._group = group
        self._lab = folder
        self.folder = folder / JOB
        self._shape = shape
        self._config = config
        self._changed = changed
        self._orders: dict[int, dict[str, Any]] = {}

    def start(self) -> None:
        """Write what the job is told, and start it."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / CONFIG_FILE
        path.write_text(json.dumps(self.described()), encoding="utf-8")
        self._write_orders()
        self._group.start(
            JOB,
            [str(self._config.python), str(LAUNCHER), str(path)],
            env=self._config.framework.environment,
        )
        self._changed()

    def described(self) -> dict[str, Any]:
        """Return what the launcher of the ranks is told."""
        config, prefix = self._config, prefix_of(self._lab)
        return {
            "framework": config.framework.name,
            "folder": str(self.folder),
            "task_id": self._shape.task_id,
            "tensor_parallel": self._shape.rails,
            "first_port": FIRST_PORT,
            "ports": PORTS,
            "period_ms": config.period_ms,
            "width": config.width,
            "checkpoint_steps": config.checkpoint_steps,
            "checkpoint_ms": config.checkpoint_ms,
            "evaluation_steps": config.evaluation_steps,
            "evaluation_ms": config.evaluation_ms,
            "ranks": [
                {
                    "endpoint_id": e.endpoint_id,
                    "container_id": e.container_id,
                    "host_id": e.host_id,
                    "netns": str(namespace_path(namespace_name(prefix, e.container_id))),
                    "interface": f"e{e.rail}",
                    "address": overlay_address(e),
                }
                for e in self._shape.endpoints
            ],
        }

    def wait_training(self, more: int = TRAINING_STEPS) -> None:
        """Wait until the attempt that runs now has done so many iterations more.

        Raises
        ------
        LabError
            If it does not come to that in time.
        ChildDiedError
            If the job or another process has ended.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        begin: tuple[Any, int] | None = None
        while True:
            self._group.check()
            progress = self.progress()
            steps = min(progress.get("steps", [-1]))
            if steps >= 0 and (begin is None or begin[0] != progress["attempt"]):
                begin = progress["attempt"], steps
            if begin is not None and steps - begin[1] >= more:
                return
            if time.monotonic() > deadline:
                raise LabError(
                    f"the training job does not train: iterations {progress.get('steps')}, ended "
                    f"{progress.get('ended')}\n{self._group.child(JOB).log_tail()}"
                )
            time.sleep(POLL_S)

    def progress(self) -> dict[str, Any]:
        """Return how far each rank is, and which have ended with which code; {}: not begun.

        `at_ns` is when that was so, by the clock that never goes back. By the same clock
        `begun_ns` says when each rank began its iteration, and `begun_cpu_ns` what CPU time it
        had used by then, nanoseconds.
        """
        return _read(self.folder / PROGRESS_FILE)

    def record(self, *, on: bool) -> None:
        """Let all ranks write dumps, as they do at first, or none."""
        path = self.folder / UNRECORDED_FILE
        if on:
            path.unlink(missing_ok=True)
        else:
            path.touch()

    @property
    def dumps(self) -> Path:
        """The folder of the recorders' dumps."""
        return self.folder / DUMPS

    def pid(self, rank: int) -> int:
        """Return the process of a rank.

        Raises
        ------
        LabError
            If the job has not begun.
        """
        found = _read(self.folder / RANKS_FILE)
        if not found:
            raise LabError("the training job has not begun yet")
        return int(found["ranks"][rank]["pid"])

    def hurt(self, kind: str, target: str, params: Mapping[str, Any]) -> None:
        """Put a rank's fault in.

        Raises
        ------
        FaultError
            If a job of this framework cannot have it.
        """
        why_not = self._config.framework.refused.get(kind)
        if why_not is not None:
            raise FaultError(f"no {kind} here: {why_not}")
        rank = rank_key(target)[1]
        if kind == "rank-stop":
            os.kill(self.pid(rank), signal.SIGSTOP)
            return
        self._orders[rank] = {"kind": kind, **params}
        self._write_orders()

    def mend(self, kind: str, target: str) -> None:
        """Take a rank's fault out; the job begins anew where nothing else can mend it."""
        rank = rank_key(target)[1]
        if kind == "rank-stop":
            with suppress(ProcessLookupError):
                os.kill(self.pid(rank), signal.SIGCONT)
            return
        self._orders.pop(rank, None)
        self._write_orders()
        if kind in RESTARTING:
            self.restart()

    def restart(self) -> None:
        """End all ranks and begin anew from the last checkpoint."""
        os.kill(self._group.child(JOB).pid, signal.SIGHUP)

    def _write_orders(self) -> None:
        path = self.folder / ORDERS_FILE
        begun = path.with_suffix(".begun")
        begun.write_text(json.dumps(self._orders), encoding="utf-8")
        begun.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return found if isinstance(found, dict) else {}
