"""A small tensor- and data-parallel training job over gloo, in processes on loopback.

Needs PyTorch, which the project itself never imports: run it by the Python of an environment
that has it (`make test-training` makes one).

    python tests/training/job.py OUT --causes stalled,exited --ranks 4

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
from typing import Any, Final

# Before PyTorch is imported: the recorder reads it once.
os.environ["TORCH_FR_BUFFER_SIZE"] = os.environ.get("TORCH_FR_BUFFER_SIZE", "400")
os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

TENSOR_PARALLEL: Final = 2
WIDTH: Final = 64
BATCH: Final = 16
# Iterations before the fault, so that each communicator has a history.
HEALTHY_STEPS: Final = 12
# A stuck job is dumped so long after it began; a pause of a checkpoint is shorter than that.
DUMP_AFTER_S: Final = 6.0
PAUSE_S: Final = 1.5
# What a slow rank takes longer for in each iteration: several times an iteration.
SLOWER_S: Final = 0.15


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


def load_batch_from_slow_storage() -> None:
    """Never returns: the name is to be found in stacks."""
    time.sleep(3600)


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
    """One rank of the job."""

    def __init__(self, rank: int, ranks: int, fault: Fault, *, experts: bool) -> None:
        self.rank, self.ranks, self.fault, self.experts = rank, ranks, fault, experts
        self.step = 0
        self.tensor: Any = None
        self.data: Any = None
        for begin in range(0, ranks, TENSOR_PARALLEL):
            members = list(range(begin, begin + TENSOR_PARALLEL))
            group = dist.new_group(members, group_desc="tp")
            self.tensor = group if rank in members else self.tensor
        for place in range(TENSOR_PARALLEL):
            members = list(range(place, ranks, TENSOR_PARALLEL))
            group = dist.new_group(members, group_desc="dp")
            self.data = group if rank in members else self.data
        torch.manual_seed(rank % TENSOR_PARALLEL)
        self.layers = [
            (torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.Linear(WIDTH, WIDTH, bias=False))
            for _ in range(2)
        ]
        parameters = [p for pair in self.layers for layer in pair for p in layer.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=0.01)

    def train(self, steps: int) -> None:
        """Run iterations; each is one forward and backward pass, and one step of the optimizer."""
        self.fault.rank = self.rank
        for step in range(steps):
            self.step = self.fault.step = step
            x = torch.randn(BATCH, WIDTH)
            for up, down in self.layers:
                x = x + Summed.apply(
                    down(torch.relu(up(Sharded.apply(x, self.tensor)))), self.tensor
                )
            if self.experts:
                x = self.exchange(x)
            loss = x.pow(2).mean()
            self.fault.before_backward()
            self.optimizer.zero_grad()
            loss.backward()
            self.synchronise()
            self.optimizer.step()
            if self.step % 4 == 3:
                dist.all_reduce(loss.detach())

    def exchange(self, x: torch.Tensor) -> torch.Tensor:
        """Send rows to the experts of the other ranks of the data-parallel group."""
        peers = dist.get_world_size(self.data)
        rows = self.fault.splits(peers)
        sent = x.detach().repeat(2, 1)[: sum(rows)].contiguous()
        received = torch.empty(BATCH, WIDTH)
        equal = [BATCH // peers] * peers
        dist.all_to_all_single(received, sent, equal, rows, group=self.data)
        return x + received.mean(0)

    def synchronise(self) -> None:
        """Sum the gradients over the data-parallel group."""
        gradients = [p.grad for p in self.optimizer.param_groups[0]["params"]]
        shares = [
            gradients[0],
            gradients[1].flatten()[: WIDTH * WIDTH // 2].clone(),
            *gradients[2:],
        ]
        for gradient in self.fault.gradients(shares):
            self.fault.reduce(gradient, self.data)


def dump(folder: Path, rank: int, form: str) -> None:
    """Write the rank's dump as the job's own machinery does, under a name with a host in it."""
    if form == "json":
        content = _dump_fr_trace_json(includeCollectives=True)
    else:
        content = _dump_fr_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False)
    (folder / f"fr_trace_host{rank // 2:02d}_rank_{rank}").write_bytes(content)


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
        dump(run.folder, rank, run.form)
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
    names = {rank: folder / f"fr_trace_host{rank // 2:02d}_rank_{rank}" for rank in range(ranks)}
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
        "groups": {
            **{
                f"tp{b}": list(range(b, b + TENSOR_PARALLEL))
                for b in range(0, ranks, TENSOR_PARALLEL)
            },
            **{f"dp{p}": list(range(p, ranks, TENSOR_PARALLEL)) for p in range(TENSOR_PARALLEL)},
        },
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
