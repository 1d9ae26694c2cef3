"""A small tensor- and data-parallel training job of JAX over gloo: one rank of it.

Needs JAX, which the rest of the project never imports. The same layers as in `model.py`, as
programs over a mesh of `data` × `tensor`: XLA makes an all-reduce of each `psum`, and gloo a
communicator for each group of ranks and each of the two programs.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

BATCH: Final = 16
PAIRS: Final = 2
RATE: Final = 0.01
DATA: Final = "data"
TENSOR: Final = "tensor"
# Of a pair of layers: the first is split by columns, the second by rows.
PAIR: Final = (P(None, TENSOR), P(TENSOR, None))
WEIGHTS: Final = PAIR * PAIRS
# Of each replica its own, before they are summed.
GRADIENTS: Final = tuple(P(DATA, *spec) for spec in WEIGHTS)

Arrays = Sequence[Any]


def mesh_of(tensor_parallel: int) -> Mesh:
    """Return all ranks, one device each, as replicas × parts of a replica."""
    devices = sorted(jax.devices(), key=lambda device: device.process_index)
    return Mesh(np.array(devices).reshape(-1, tensor_parallel), (DATA, TENSOR))


class Model:
    """The weights of one rank, and the two programs of an iteration.

    A shard is `width` wide, so gradients are `width`² numbers of 4 bytes for each of four shards.
    """

    def __init__(self, mesh: Mesh, width: int) -> None:
        self._shardings = [NamedSharding(mesh, spec) for spec in WEIGHTS]
        self._mesh = mesh
        self._width = width
        self._replica = jax.process_index() // mesh.shape[TENSOR]
        parts = mesh.shape[TENSOR]
        self._sizes = ((width, parts * width), (parts * width, width)) * PAIRS
        on_mesh = partial(jax.shard_map, mesh=mesh)
        self._passes = jax.jit(
            on_mesh(_passes, in_specs=(WEIGHTS, P(DATA)), out_specs=(P(DATA), GRADIENTS))
        )
        self._descend = jax.jit(on_mesh(_descend, in_specs=(WEIGHTS, GRADIENTS), out_specs=WEIGHTS))
        self._mean = jax.jit(jnp.mean, out_shardings=NamedSharding(mesh, P()))
        self._least = jax.jit(jnp.min, out_shardings=NamedSharding(mesh, P()))
        self.weights = self._initial()

    def _initial(self) -> Arrays:
        """Return weights as PyTorch draws those of a linear layer: even, up to 1 / √inputs."""
        # By numpy, as the batches: XLA takes a second to compile what draws numbers.
        draw = np.random.default_rng(0)
        return tuple(
            jax.make_array_from_callback(size, sharding, even.__getitem__)
            for size, sharding in zip(self._sizes, self._shardings, strict=True)
            for even in [draw.uniform(-1, 1, size).astype(np.float32) / size[0] ** 0.5]
        )

    def passes(self, step: int) -> tuple[Any, Arrays]:
        """Return loss and gradients of each replica: activations are summed over its parts."""
        sharding = NamedSharding(self._mesh, P(DATA))
        # The parts of a replica draw the same.
        draw = np.random.default_rng((step, self._replica))
        batch = draw.standard_normal((BATCH, self._width), np.float32)
        given = jax.make_array_from_process_local_data(sharding, batch)
        return jax.block_until_ready(  # type: ignore[no-any-return]
            self._passes(self.weights, given)
        )

    def descend(self, gradients: Arrays) -> None:
        """Sum the gradients over all replicas, and change the weights by them."""
        self.weights = jax.block_until_ready(self._descend(self.weights, gradients))

    def mean(self, losses: Any) -> float:
        """Return the mean loss of all replicas."""
        return float(self._mean(losses))

    def least(self, number: int) -> int:
        """Return the least of the numbers that all ranks give."""
        sharding = NamedSharding(self._mesh, P((DATA, TENSOR)))
        given = jax.make_array_from_process_local_data(sharding, np.array([number], np.int32))
        return int(self._least(given))

    def shards(self) -> list[np.ndarray]:
        """Return this rank's part of the weights."""
        return [np.asarray(weight.addressable_data(0)) for weight in self.weights]

    def take_shards(self, shards: Arrays) -> None:
        """Take up this rank's part of the weights."""
        self.weights = tuple(
            jax.make_array_from_process_local_data(sharding, shard, size)
            for sharding, shard, size in zip(self._shardings, shards, self._sizes, strict=True)
        )


def _passes(weights: Arrays, batch: Any) -> tuple[Any, Arrays]:
    """Run on one rank the forward and the backward pass of its replica's own batch."""
    # Else JAX sums the gradients over the replicas at once, in the backward pass.
    own = tuple(jax.lax.pcast(weight, DATA, to="varying") for weight in weights)
    loss, gradients = jax.value_and_grad(_loss)(own, batch)
    return loss[None], tuple(gradient[None] for gradient in gradients)


def _loss(weights: Arrays, batch: Any) -> Any:
    x = batch
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        x = x + jax.lax.psum(jax.nn.relu(x @ up) @ down, TENSOR)
    return (x**2).mean()


def _descend(weights: Arrays, gradients: Arrays) -> Arrays:
    return tuple(
        weight - RATE * jax.lax.psum(gradient[0], DATA)
        for weight, gradient in zip(weights, gradients, strict=True)
    )
