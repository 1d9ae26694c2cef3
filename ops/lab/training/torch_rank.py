"""A rank of PyTorch: its iterations, pauses, checkpoints, and the dumps of its Flight Recorder."""

import datetime
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from ops.lab.training.begun import BegunSteps
from ops.lab.training.faults import Fault
from ops.lab.training.launcher import DUMPS, stay
from ops.lab.training.model import Job
from ops.lab.training.orders import Orders
from ops.lab.training.pauses import Pauses
from probers.collector import torch_dump

VERSION: Final = torch.__version__
DUMP_NAME: Final = "fr_trace_rank_"
# Longer than a test of a fault: a job that gave up would look like one that was ended.
TIMEOUT: Final = datetime.timedelta(minutes=30)
FOREVER: Final = 10**9


class OrderedFault(Fault):
    """Goes wrong as the lab orders."""

    kind = "ordered"

    def __init__(self, orders: Orders) -> None:
        super().__init__(culprit=-1)
        self._orders = orders

    def before_backward(self) -> None:
        """Hang, be slow, or end."""
        self._orders.obey()

    def gradients(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the gradients, of another size or in another order if that is the order."""
        order = self._orders.current()
        if order.get("kind") != "rank-desync":
            return gradients
        if order["how"] == "size":
            # Smaller: whoever gets more than it expects is ended by gloo.
            return [gradients[0][: len(gradients[0]) // 2].clone(), *gradients[1:]]
        return gradients[::-1]


class Rank(Job):
    """A rank that computes for a while in each iteration, and pauses as training does."""

    def __init__(self, config: dict[str, Any], rank: int, steps: BegunSteps) -> None:
        self._config = config
        self._steps = steps
        self._folder = Path(config["folder"])
        self._orders = Orders(self._folder, rank)
        self._pauses = Pauses.of(config)
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
        if self._pauses.saves(self.step) and self.rank < self._config["tensor_parallel"]:
            self._save()
        self._pauses.pause(self.rank, self.step)

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


def own_environment(config: Mapping[str, Any]) -> dict[str, str]:
    """Return where the recorder's dumps are."""
    return {"TORCH_FR_DUMP_TEMP_FILE": str(Path(config["folder"]) / DUMPS / DUMP_NAME)}


def be_rank(config: dict[str, Any], rank: int, port: int, steps: BegunSteps) -> None:
    """Train until the end of the process."""
    os.environ["GLOO_SOCKET_IFNAME"] = config["ranks"][rank]["interface"]
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
        stay(rank, error)
