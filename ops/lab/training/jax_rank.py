"""A rank of JAX: its iterations, pauses and checkpoints. JAX records no operations: no dumps."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from jaxlib import _jax

from ops.lab.training import JAX_TIMEOUT_S
from ops.lab.training.begun import BegunSteps
from ops.lab.training.jax_model import Model, mesh_of
from ops.lab.training.launcher import stay
from ops.lab.training.orders import Orders
from ops.lab.training.pauses import Pauses

VERSION: Final = jax.__version__
# As in the job of PyTorch, all ranks sum their losses each so many iterations.
LOSS_STEPS: Final = 4


class Rank:
    """A rank that computes for a while in each iteration, and pauses as training does."""

    def __init__(self, config: dict[str, Any], rank: int, steps: BegunSteps) -> None:
        self._config = config
        self._rank = rank
        self._steps = steps
        folder = Path(config["folder"])
        self._orders = Orders(folder, rank)
        self._pauses = Pauses.of(config)
        place = rank % config["tensor_parallel"]
        self._checkpoint = folder / f"checkpoint_tp{place}.npz"
        self._model = Model(mesh_of(config["tensor_parallel"]), config["width"])

    def train(self) -> None:
        """Run iterations, from the last checkpoint on."""
        step = self._resume()
        while True:
            self._begin_step(step)
            losses, gradients = self._model.passes(step)
            self._compute()
            self._orders.obey()
            self._compute()
            self._model.descend(gradients)
            if step % LOSS_STEPS == LOSS_STEPS - 1:
                self._model.mean(losses)
            step += 1

    def _begin_step(self, step: int) -> None:
        """Say how far it is; write a checkpoint or evaluate when that is due."""
        self._steps.begin(self._rank, step)
        if self._pauses.saves(step) and self._rank < self._config["tensor_parallel"]:
            self._save(step)
        self._pauses.pause(self._rank, step)

    def _compute(self) -> None:
        """Take half of the period of an iteration, as a larger model takes for a pass."""
        time.sleep(self._config["period_ms"] / 2e3)

    def _save(self, step: int) -> None:
        begun = self._checkpoint.with_name(f".{self._checkpoint.name}")
        np.savez(begun, np.array(step), *self._model.shards())
        begun.rename(self._checkpoint)

    def _resume(self) -> int:
        """Take up the weights of the last checkpoint; return the iteration to begin with."""
        first = 0
        if self._checkpoint.exists():
            with np.load(self._checkpoint) as kept:
                step, *shards = (kept[name] for name in kept.files)
            first = int(step) + 1
            self._model.take_shards(shards)
        # A job that was ended while it wrote has files of two iterations.
        return self._model.least(first)


def own_environment(_config: Mapping[str, Any]) -> dict[str, str]:
    """Return nothing: there is no recorder to say where its dumps are."""
    return {}


def be_rank(config: dict[str, Any], rank: int, port: int, steps: BegunSteps) -> None:
    """Train until the end of the process."""
    # JAX has no setting for it: gloo would bind what the name of the host resolves to.
    _jax.make_gloo_tcp_collectives = partial(
        _jax.make_gloo_tcp_collectives, interface=config["ranks"][rank]["interface"]
    )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"{config['ranks'][0]['address']}:{port}",
        num_processes=len(config["ranks"]),
        process_id=rank,
        local_device_ids=[0],
        cluster_detection_method="deactivate",
        heartbeat_timeout_seconds=JAX_TIMEOUT_S,
    )
    try:
        Rank(config, rank, steps).train()
    except jax.errors.JaxRuntimeError as error:
        stay(rank, error)
