"""What goes wrong with one rank of a training job of PyTorch, inside its process."""

import os
import signal
import time
from typing import Any, Final

import torch
import torch.distributed as dist

from ops.lab.training.orders import load_batch_from_slow_storage

# Iterations before the fault, so that each communicator has a history.
HEALTHY_STEPS: Final = 12
# A pause of a checkpoint: shorter than what a stuck job is given before its dumps are taken.
PAUSE_S: Final = 1.5
# What a slow rank takes longer for in each iteration: several times an iteration.
SLOWER_S: Final = 0.15
# Rows of a rank's batch.
BATCH: Final = 16


class Fault:
    """What goes wrong with which rank, from which iteration on.

    Subclasses change one of the methods; each is called by every rank in each iteration, which
    `rank` and `step` name.
    """

    kind = "healthy"
    truth: Final[dict[str, Any]] = {}

    def __init__(self, culprit: int) -> None:
        self.culprit = culprit
        self.rank = self.step = 0

    @property
    def strikes(self) -> bool:
        """Whether the fault is here and now."""
        return self.rank == self.culprit and self.step >= HEALTHY_STEPS

    def before_backward(self) -> None:
        """Do what happens between the forward and the backward pass."""

    def gradients(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the gradients to reduce over the data-parallel group, in order."""
        return gradients

    def reduce(self, gradient: torch.Tensor, group: Any) -> None:
        """Sum a gradient over its group."""
        dist.all_reduce(gradient, group=group)

    def splits(self, peers: int) -> list[int]:
        """Return how many rows of the experts' batch go to each peer."""
        return [BATCH // peers] * peers


class Stalled(Fault):
    """The rank never launches its next collective."""

    kind = "stalled"

    def before_backward(self) -> None:
        """Hang in Python."""
        if self.strikes:
            load_batch_from_slow_storage()


class Stopped(Fault):
    """The process of the rank is stopped by a signal, and cannot write a dump."""

    kind = "stopped"

    def before_backward(self) -> None:
        """Stop, as the kernel's SIGSTOP does from outside."""
        if self.strikes:
            os.kill(os.getpid(), signal.SIGSTOP)


class Exited(Fault):
    """The rank ends without a dump, as one that the kernel killed."""

    kind = "exited"

    def before_backward(self) -> None:
        """End."""
        if self.strikes:
            os._exit(1)


class Size(Fault):
    """The rank reduces a tensor of another size."""

    kind = "size"

    def gradients(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Double the first gradient."""
        if self.strikes:
            return [gradients[0].repeat(2, 1), *gradients[1:]]
        return gradients


class Order(Fault):
    """The rank reduces its gradients in another order."""

    kind = "order"

    def gradients(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Turn the order round."""
        return gradients[::-1] if self.strikes else gradients


class Skipped(Fault):
    """The rank leaves one collective out."""

    kind = "skipped"

    def gradients(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Leave the first gradient out, once."""
        if self.rank == self.culprit and self.step == HEALTHY_STEPS:
            return gradients[1:]
        return gradients


class Kind(Fault):
    """The rank calls another collective."""

    kind = "type"

    def reduce(self, gradient: torch.Tensor, group: Any) -> None:
        """Broadcast where the others reduce."""
        if self.strikes:
            dist.broadcast(gradient, src=dist.get_process_group_ranks(group)[0], group=group)
        else:
            dist.all_reduce(gradient, group=group)


class Dtype(Fault):
    """The rank reduces a tensor of another type of number."""

    kind = "dtype"

    def gradients(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Send half as many bytes."""
        if self.strikes:
            return [g.to(torch.float64) for g in gradients]
        return gradients


class Splits(Fault):
    """The rank sends other numbers of rows to its peers than they expect."""

    kind = "splits"

    def splits(self, peers: int) -> list[int]:
        """Send one row more to the last peer."""
        rows = super().splits(peers)
        if self.strikes:
            rows[-1] += 1
        return rows


class Slow(Fault):
    """The rank computes longer in each iteration."""

    kind = "slow"

    def before_backward(self) -> None:
        """Compute longer."""
        if self.rank == self.culprit:
            time.sleep(SLOWER_S)


class Pause(Fault):
    """A checkpoint: rank 0 writes, all others wait for it. Nothing is wrong."""

    kind = "pause"

    def before_backward(self) -> None:
        """Write for a while, each time in as many iterations."""
        if self.rank == 0 and self.step % (HEALTHY_STEPS // 2) == 3:
            time.sleep(PAUSE_S)


FAULTS: Final = {
    fault.kind: fault
    for fault in (
        Fault, Stalled, Stopped, Exited, Size, Order, Skipped, Kind, Dtype, Splits, Slow,
        Pause,
    )
}  # fmt: skip
