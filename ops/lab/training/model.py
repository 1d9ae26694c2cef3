"""A small tensor- and data-parallel training job of PyTorch over gloo: one rank, and its dump.

Needs PyTorch, which the rest of the project never imports. The job of `lab up --job torch` and
that of `make test-training` are this one.
"""

from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

from ops.lab.training.faults import BATCH, Fault
from ops.lab.training.layout import TENSOR_PARALLEL, groups

WIDTH: Final = 64


class Sharded(torch.autograd.Function):  # type: ignore[misc]
    """A column-parallel layer's input: the gradients of its shards are summed."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        """Pass on."""
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        """Sum over the tensor-parallel group."""
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class Summed(torch.autograd.Function):  # type: ignore[misc]
    """A row-parallel layer's output: the outputs of its shards are summed."""

    @staticmethod
    def forward(_context: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        """Sum over the tensor-parallel group."""
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> Any:
        """Pass on."""
        return gradient, None


class Job:
    """One rank of the job.

    Layers are `width` wide, so gradients are some `width`² numbers of 4 bytes. Subclasses say
    what an iteration does beside the model.
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        fault: Fault,
        *,
        experts: bool,
        width: int = WIDTH,
        tensor_parallel: int = TENSOR_PARALLEL,
    ) -> None:
        self.rank, self.ranks, self.fault, self.experts = rank, ranks, fault, experts
        self.width = width
        self.step = 0
        self.tensor: Any = None
        self.data: Any = None
        for name, members in groups(ranks, tensor_parallel).items():
            group = dist.new_group(members, group_desc=name[:2])
            if rank in members and name.startswith("tp"):
                self.tensor = group
            elif rank in members:
                self.data = group
        torch.manual_seed(rank % tensor_parallel)
        self.layers = [
            (torch.nn.Linear(width, width, bias=False), torch.nn.Linear(width, width, bias=False))
            for _ in range(2)
        ]
        parameters = [p for pair in self.layers for layer in pair for p in layer.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=0.01)

    def begin_step(self) -> None:
        """Do what comes before the forward pass."""

    def compute(self) -> None:
        """Take as long as a larger model takes for a pass."""

    def train(self, steps: int, first: int = 0) -> None:
        """Run iterations; each is one forward and backward pass, and one step of the optimizer."""
        self.fault.rank = self.rank
        for step in range(first, first + steps):
            self.step = self.fault.step = step
            self.begin_step()
            x = torch.randn(BATCH, self.width)
            for up, down in self.layers:
                x = x + Summed.apply(
                    down(torch.relu(up(Sharded.apply(x, self.tensor)))), self.tensor
                )
            self.compute()
            if self.experts:
                x = self.exchange(x)
            loss = x.pow(2).mean()
            self.fault.before_backward()
            self.optimizer.zero_grad()
            loss.backward()
            self.compute()
            self.synchronise()
            self.optimizer.step()
            if self.step % 4 == 3:
                dist.all_reduce(loss.detach())

    def exchange(self, x: torch.Tensor) -> torch.Tensor:
        """Send rows to the experts of the other ranks of the data-parallel group."""
        peers = dist.get_world_size(self.data)
        rows = self.fault.splits(peers)
        sent = x.detach().repeat(2, 1)[: sum(rows)].contiguous()
        received = torch.empty(BATCH, self.width)
        equal = [BATCH // peers] * peers
        dist.all_to_all_single(received, sent, equal, rows, group=self.data)
        return x + received.mean(0)

    def synchronise(self) -> None:
        """Sum the gradients over the data-parallel group."""
        gradients = [p.grad for p in self.optimizer.param_groups[0]["params"]]
        shares = [
            gradients[0],
            gradients[1].flatten()[: self.width * self.width // 2].clone(),
            *gradients[2:],
        ]
        for gradient in self.fault.gradients(shares):
            self.fault.reduce(gradient, self.data)


def dump(path: Path, form: str) -> None:
    """Write what the recorder of this rank knows, at once whole, as pickle or as JSON."""
    if form == "json":
        content = _dump_fr_trace_json(includeCollectives=True)
    else:
        content = _dump_fr_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False)
    # Beside the folder: whoever reads the folder finds nothing unfinished.
    begun = path.parent.with_name(f".{path.parent.name}.{path.name}")
    begun.write_bytes(content)
    begun.rename(path)
