"""A simulated training job: how many bytes each RNIC has sent and received by a time.

Pure and deterministic. Tensor parallelism stays inside the host (one GPU and one
RNIC per rail), so the network sees two patterns, both along a rail:

* pipeline parallelism: activations to the next stage, micro-batch by micro-batch,
  later the gradients of the activations back;
* data parallelism: at the end of an iteration the replicas of a stage reduce
  their gradients around a ring, the last stage first, since its backward pass
  is the first to end.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ops.lab.errors import LabUsageError
from ops.lab.shape import EndpointSpec, LabShape
from schemas.units import MS_NS

DEFAULT_PERIOD_NS: Final = 2_000 * MS_NS
# Below this, an iteration has no sample of its own at 10 Hz.
MIN_PERIOD_NS: Final = 400 * MS_NS
MAX_PERIOD_NS: Final = 600_000 * MS_NS
MICRO_BATCHES: Final = 4

# A bf16 gradient shard of some 500 M parameters, and the activations of one
# micro-batch of 8,192 tokens at a hidden size of 4,096: what one GPU of a
# mid-size job moves. Multiples of 4, as the counters count words.
GRADIENT_BYTES: Final = 1 << 30
ACTIVATION_BYTES: Final = 64 << 20

# An iteration in thousandths of its period: a data-loading pause, the forward
# passes, the backward passes, the reduction, a pause for the optimizer step.
FORWARD: Final = (50, 350)
BACKWARD: Final = (350, 700)
REDUCE: Final = (720, 980)
WHOLE: Final = 1_000
# Share of a stage's time slot that a transfer takes: the wire is idle in between.
DUTY_PERCENT: Final = 60


class WorkloadError(LabUsageError):
    """A job that does not fit the lab."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Bytes sent at an even rate, from `start_ns` after the iteration's begin."""

    start_ns: int
    duration_ns: int
    size_bytes: int

    def sent_bytes(self, phase_ns: int) -> int:
        """Return how many bytes are through at that time of the iteration."""
        elapsed_ns = min(max(phase_ns - self.start_ns, 0), self.duration_ns)
        return self.size_bytes * elapsed_ns // self.duration_ns


@dataclass(frozen=True, slots=True)
class Transfer:
    """All that one endpoint sends to another, iteration after iteration."""

    src: str
    dst: str
    why: str
    bursts: tuple[Burst, ...]

    def sent_bytes(self, elapsed_ns: int, period_ns: int) -> int:
        """Return the bytes sent since the job began; 0 before."""
        if elapsed_ns <= 0:
            return 0
        iterations, phase_ns = divmod(elapsed_ns, period_ns)
        whole = iterations * sum(b.size_bytes for b in self.bursts)
        return whole + sum(b.sent_bytes(phase_ns) for b in self.bursts)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A job on all hosts of a lab: host = replica × stages + stage.

    `stages` None: two stages where the hosts allow it, else one.

    Raises
    ------
    WorkloadError
        If the stages do not divide the hosts, or the period is out of bounds.
    """

    shape: LabShape
    stages: int | None = None
    period_ns: int = DEFAULT_PERIOD_NS

    def __post_init__(self) -> None:
        if not MIN_PERIOD_NS <= self.period_ns <= MAX_PERIOD_NS:
            raise WorkloadError(
                f"period of {self.period_ns / MS_NS:g} ms: {MIN_PERIOD_NS / MS_NS:g} to "
                f"{MAX_PERIOD_NS / MS_NS:g} ms"
            )
        hosts = self.shape.hosts
        if self.stages is not None and (self.stages < 1 or hosts % self.stages):
            raise WorkloadError(f"stages={self.stages} must divide hosts={hosts}")

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        if self.stages is not None:
            return self.stages
        return 2 if self.shape.hosts >= 4 and self.shape.hosts % 2 == 0 else 1

    @property
    def dp(self) -> int:
        """Replicas."""
        return self.shape.hosts // self.pp

    def place(self, endpoint: EndpointSpec) -> tuple[int, int]:
        """Return replica and stage of an endpoint."""
        return divmod(endpoint.host, self.pp)

    def _at(self, replica: int, stage: int, rail: int) -> str:
        index = (replica * self.pp + stage) * self.shape.rails + rail
        return self.shape.endpoints[index].endpoint_id

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Everything that is sent, one entry for each ordered pair that communicates."""
        return tuple(
            transfer
            for rail in range(self.shape.rails)
            for transfer in (*self._pipeline(rail), *self._reduction(rail))
        )

    @cached_property
    def _alike(self) -> dict[tuple[Burst, ...], list[Transfer]]:
        """Transfers by what they send and when: all rails and replicas of a stage are alike."""
        alike: dict[tuple[Burst, ...], list[Transfer]] = {}
        for transfer in self.transfers:
            alike.setdefault(transfer.bursts, []).append(transfer)
        return alike

    def _pipeline(self, rail: int) -> Iterator[Transfer]:
        for replica in range(self.dp):
            for stage in range(self.pp - 1):
                here, there = self._at(replica, stage, rail), self._at(replica, stage + 1, rail)
                yield Transfer(here, there, "PP", self._staggered(FORWARD, stage))
                yield Transfer(there, here, "PP", self._staggered(BACKWARD, self.pp - 2 - stage))

    def _staggered(self, window: tuple[int, int], order: int) -> tuple[Burst, ...]:
        """One burst per micro-batch, each after the stage that is `order`-th has computed it."""
        begin_ns = self.period_ns * window[0] // WHOLE
        span_ns = self.period_ns * (window[1] - window[0]) // WHOLE
        slot_ns = span_ns // (MICRO_BATCHES + self.pp - 1)
        return tuple(
            Burst(
                begin_ns + (order + batch + 1) * slot_ns,
                slot_ns * DUTY_PERCENT // 100,
                ACTIVATION_BYTES,
            )
            for batch in range(MICRO_BATCHES)
        )

    def _reduction(self, rail: int) -> Iterator[Transfer]:
        if self.dp < 2:
            return
        begin_ns = self.period_ns * REDUCE[0] // WHOLE
        slot_ns = self.period_ns * (REDUCE[1] - REDUCE[0]) // WHOLE // (self.pp + 1)
        # A ring all-reduce moves 2(n−1)/n of the data over each of its edges
        # (Patarasuk and Yuan, 2009), here in whole words.
        size_bytes = 2 * (self.dp - 1) * GRADIENT_BYTES // self.dp // 4 * 4
        for stage in range(self.pp):
            burst = Burst(begin_ns + (self.pp - 1 - stage) * slot_ns, 2 * slot_ns, size_bytes)
            for replica in range(self.dp):
                yield Transfer(
                    self._at(replica, stage, rail),
                    self._at((replica + 1) % self.dp, stage, rail),
                    "DP",
                    (burst,),
                )

    def totals(self, elapsed_ns: int) -> dict[str, tuple[int, int]]:
        """Return bytes sent and received since the job began, by endpoint id."""
        tx = {e.endpoint_id: 0 for e in self.shape.endpoints}
        rx = dict(tx)
        for together in self._alike.values():
            sent = together[0].sent_bytes(elapsed_ns, self.period_ns)
            for transfer in together:
                tx[transfer.src] += sent
                rx[transfer.dst] += sent
        return {endpoint: (tx[endpoint], rx[endpoint]) for endpoint in tx}

    def pairs(self) -> dict[tuple[str, str], str]:
        """Return the unordered pairs that really communicate, and why."""
        ordered = ((*sorted((t.src, t.dst)), t.why) for t in self.transfers)
        return {(a, b): why for a, b, why in ordered}

    def truth(self) -> Mapping[str, Any]:
        """Return what an inference of the skeleton should find."""
        return {
            "task_id": self.shape.task_id,
            "period_ns": self.period_ns,
            "tp": self.shape.rails,
            "pp": self.pp,
            "dp": self.dp,
            "members": [
                {
                    "endpoint_id": e.endpoint_id,
                    "replica": self.place(e)[0],
                    "stage": self.place(e)[1],
                    "rail": e.rail,
                    # Same stage and rail, another replica: one data-parallel group.
                    "group": self.place(e)[1] * self.shape.rails + e.rail,
                }
                for e in self.shape.endpoints
            ],
            "pairs": [{"a": a, "b": b, "why": why} for (a, b), why in sorted(self.pairs().items())],
        }
