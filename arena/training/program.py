"""What a rank does in an iteration: the 1F1B schedule of a pipeline, step by step.

Warm-up forwards, then one forward and one backward in turns, then the rest of the backwards
(Narayanan et al., SC 2021). Tensor-parallel sums and the experts' exchanges stand within each
microbatch; gradients are summed and parameters gathered after the last one. At the end all ranks
agree on the norm of the gradients, which the host waits for.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from arena.training.shape import JobShape
from schemas.enums import CommunicatorRole

Shapes = tuple[tuple[int, ...], ...]

TYPE: Final = "BFloat16"
BYTES_EACH: Final = 2
TP, PP, DP, EP = (
    CommunicatorRole.TP, CommunicatorRole.PP, CommunicatorRole.DP, CommunicatorRole.EP,
)  # fmt: skip
WORLD: Final = CommunicatorRole.WORLD
TOKENS: Final = 4_096
HIDDEN: Final = 2_048
# Elements of a stage's two buckets of gradients; the first stage has the embedding as well.
BUCKETS: Final = (24_000_000, 16_000_000)
EMBEDDING: Final = 8_000_000
# Microbatches of an evaluation.
EVALUATED: Final = 8


class Does(Enum):
    """Sorts of step."""

    COMPUTE = "compute"
    COLLECTIVE = "collective operation"
    SEND = "send to another stage"
    RECEIVE = "receive from another stage"
    SYNC = "the host waits for the GPU"
    LOAD = "the next batch is loaded"
    SAVE = "a checkpoint is written"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a rank.

    Attributes
    ----------
    us
        Of computing, as planned.
    role
        Of an operation: on which of the rank's communicators.
    towards
        Of a transfer: to or from the next stage (1) or the one before (−1).
    """

    does: Does
    us: int = 0
    role: CommunicatorRole = WORLD
    operation: str = ""
    inputs: Shapes = ()
    outputs: Shapes = ()
    towards: int = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of the tensor that goes in."""
        return BYTES_EACH * sum(_product(shape) for shape in self.inputs or self.outputs)


def _product(shape: tuple[int, ...]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def collective(role: CommunicatorRole, operation: str, *sizes: int, members: int = 1) -> Step:
    """Return an operation on tensors of a shape; `members` times smaller or larger where due."""
    inputs: Shapes = (sizes,)
    outputs = inputs
    if operation == "_reduce_scatter_base":
        outputs = ((sizes[0] // members, *sizes[1:]),)
    elif operation == "_allgather_base":
        inputs = ((sizes[0] // members, *sizes[1:]),)
    return Step(Does.COLLECTIVE, 0, role, operation, inputs, outputs)


def training(shape: JobShape, stage: int) -> tuple[Step, ...]:
    """Return an iteration of a stage."""
    warm_up = min(shape.pp - stage - 1, shape.microbatches)
    forward, backward = _forward(shape, stage), _backward(shape, stage)
    steps = [Step(Does.LOAD)]
    steps += forward * warm_up
    for _ in range(shape.microbatches - warm_up):
        steps += forward + backward
    steps += backward * warm_up
    if shape.dp > 1:
        for elements in _buckets(stage):
            steps.append(collective(DP, "_reduce_scatter_base", elements, members=shape.dp))
    steps += [collective(WORLD, "allreduce", 1), Step(Does.SYNC)]
    steps.append(Step(Does.COMPUTE, shape.forward_us // 2))
    if shape.dp > 1:
        elements = sum(_buckets(stage))
        steps.append(collective(DP, "_allgather_base", elements, members=shape.dp))
    return tuple(steps)


def evaluation(shape: JobShape, stage: int) -> tuple[Step, ...]:
    """Return an evaluation: forwards only, and the loss of all."""
    steps = [Step(Does.LOAD), *(_forward(shape, stage) * EVALUATED)]
    return (*steps, collective(WORLD, "allreduce", 4), Step(Does.SYNC))


def checkpoint() -> tuple[Step, ...]:
    """Return a checkpoint: it is written, and all wait until it is."""
    return (Step(Does.SAVE), collective(WORLD, "barrier", 1), Step(Does.SYNC))


def _buckets(stage: int) -> tuple[int, int]:
    return BUCKETS[0] + (EMBEDDING if stage == 0 else 0), BUCKETS[1]


def _transfer(does: Does, towards: int) -> Step:
    name = "send" if does is Does.SEND else "recv"
    return Step(does, 0, PP, name, ((TOKENS, HIDDEN),), (), towards)


def _forward(shape: JobShape, stage: int) -> list[Step]:
    steps = [_transfer(Does.RECEIVE, -1)] if stage > 0 else []
    steps.append(Step(Does.COMPUTE, shape.forward_us // 2))
    if shape.tp > 1:
        steps.append(collective(TP, "allreduce", TOKENS, HIDDEN))
    if shape.ep > 1:
        steps.append(collective(EP, "alltoall_base", TOKENS, HIDDEN))
    steps.append(Step(Does.COMPUTE, shape.forward_us // 2))
    if shape.ep > 1:
        steps.append(collective(EP, "alltoall_base", TOKENS, HIDDEN))
    if stage < shape.pp - 1:
        steps.append(_transfer(Does.SEND, 1))
    return steps


def _backward(shape: JobShape, stage: int) -> list[Step]:
    steps = [_transfer(Does.RECEIVE, 1)] if stage < shape.pp - 1 else []
    steps.append(Step(Does.COMPUTE, shape.forward_us))
    if shape.ep > 1:
        steps.append(collective(EP, "alltoall_base", TOKENS, HIDDEN))
    steps.append(Step(Does.COMPUTE, shape.forward_us))
    if shape.tp > 1:
        steps.append(collective(TP, "allreduce", TOKENS, HIDDEN))
    if stage > 0:
        steps.append(_transfer(Does.SEND, -1))
    return steps
