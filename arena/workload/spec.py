"""What a simulated training job is, and how badly its counters behave."""

from dataclasses import dataclass
from typing import Final

SCHEDULES: Final = ("1f1b", "interleaved", "zero-bubble")
ORDERS: Final = ("tp-cp-dp-pp", "tp-cp-pp-dp")
COLLECTIVES: Final = ("ring", "tree", "double-tree")
SHARDINGS: Final = ("none", "zero1", "fsdp")
SPREAD_TICK: Final = "spread"
SAME_TICK: Final = "same"


class SpecError(ValueError):
    """A job that cannot be laid out; names every parameter that is wrong."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A training job.

    Attributes
    ----------
    dp, pp, tp, cp
        Degrees of data, pipeline, tensor and context parallelism; their product is the
        number of GPUs.
    ep : ranks of an expert-parallel group, consecutive in the data-parallel dimension
    gpus_per_host, nics_per_host
        A host's GPUs share its NICs evenly.
    order : which dimension varies fastest along the ranks; tensor parallelism always first
    chunks : model chunks of a stage, for the interleaved schedule
    collective, sharding : how gradients are summed, see `COLLECTIVES` and `SHARDINGS`
    pxn
        Whether a transfer between rails is first moved, inside the sending host, to the NIC
        on the receiver's rail.
    period_s : length of an iteration, roughly
    pipeline_bytes, gradient_bytes, cp_bytes, ep_bytes
        Per NIC: of one activation transfer, of one gradient sum, of one operation's
        context ring, of one operation's all-to-all.
    rate_bytes_per_s : what a transfer reaches on the wire
    jitter : spread of an operation's duration, as a share of it
    wander : spread of a whole iteration's duration, as a share of it
    straggler : share by which one replica's stage is slower
    overlap : share of the gradient sum that runs beside the last backward passes
    checkpoint_every, checkpoint_s : iterations between checkpoints, and how long each takes
    evaluation_every, evaluation_s : the same for evaluations, which only use forward passes
    storage_bytes_per_s : data loading and checkpoints from outside the job, mean per NIC
    begins_s, ends_s : event time from the capture's begin; None: after it
    shuffled_ring : whether rings take the hosts in an order unknown to the platform
    """

    name: str = "job"
    dp: int = 2
    pp: int = 2
    tp: int = 8
    cp: int = 1
    ep: int = 1
    gpus_per_host: int = 8
    nics_per_host: int = 8
    order: str = "tp-cp-dp-pp"
    schedule: str = "1f1b"
    microbatches: int = 8
    chunks: int = 2
    collective: str = "ring"
    sharding: str = "none"
    pxn: bool = True
    period_s: float = 4.0
    pipeline_bytes: int = 60_000_000
    gradient_bytes: int = 2_000_000_000
    cp_bytes: int = 40_000_000
    ep_bytes: int = 40_000_000
    rate_bytes_per_s: float = 20e9
    jitter: float = 0.02
    wander: float = 0.01
    straggler: float = 0.0
    overlap: float = 0.0
    checkpoint_every: int = 0
    checkpoint_s: float = 10.0
    evaluation_every: int = 0
    evaluation_s: float = 6.0
    storage_bytes_per_s: float = 0.0
    begins_s: float = 0.0
    ends_s: float | None = None
    shuffled_ring: bool = False

    def __post_init__(self) -> None:
        wrong = [
            f"{name}={getattr(self, name)}: at least 1"
            for name in ("dp", "pp", "tp", "cp", "ep", "gpus_per_host", "nics_per_host",
                         "microbatches", "chunks")
            if getattr(self, name) < 1
        ]  # fmt: skip
        for name, choices in (
            ("schedule", SCHEDULES),
            ("order", ORDERS),
            ("collective", COLLECTIVES),
            ("sharding", SHARDINGS),
        ):
            if getattr(self, name) not in choices:
                wrong.append(f"{name}={getattr(self, name)!r}: one of {', '.join(choices)}")
        if not wrong:
            wrong = self._misfits()
        if wrong:
            raise SpecError("; ".join(wrong))

    def _misfits(self) -> list[str]:
        wrong = []
        if self.gpus % self.gpus_per_host:
            wrong.append(f"{self.gpus} GPUs do not fill hosts of {self.gpus_per_host}")
        if self.gpus_per_host % self.tp:
            wrong.append(f"tp={self.tp}: must divide gpus_per_host={self.gpus_per_host}")
        if self.gpus_per_host % self.nics_per_host:
            wrong.append(f"nics_per_host={self.nics_per_host}: must divide {self.gpus_per_host}")
        if self.dp % self.ep:
            wrong.append(f"ep={self.ep}: must divide dp={self.dp}")
        if self.schedule == "interleaved" and self.pp > 1 and self.microbatches % self.pp:
            wrong.append(f"microbatches={self.microbatches}: must be a multiple of pp={self.pp}")
        return wrong

    @property
    def stage_chunks(self) -> int:
        """Model chunks that a stage really has."""
        return self.chunks if self.schedule == "interleaved" and self.pp > 1 else 1

    @property
    def gpus(self) -> int:
        """GPUs, one rank each."""
        return self.dp * self.pp * self.tp * self.cp

    @property
    def hosts(self) -> int:
        """Hosts; the job owns them whole."""
        return self.gpus // self.gpus_per_host

    @property
    def width(self) -> int:
        """NICs that one tensor-parallel group has for itself or shares."""
        return max(1, self.tp * self.nics_per_host // self.gpus_per_host)

    @property
    def slots(self) -> int:
        """Sets of NICs in a host, each of `width`."""
        return self.nics_per_host // self.width


@dataclass(frozen=True, kw_only=True)
class Dirt:
    """How badly counters behave.

    Attributes
    ----------
    tick : "same": all hosts read at one wall-clock tick; "spread": each at its own phase
    read_delay_s : a reading comes up to this much after its tick, each anew
    clock_s : largest offset of a host's clock
    lost : share of single readings lost
    hole_s : readings of some hosts are missing for so long at once; 0: never
    stale : share of readings that repeat the one before
    bits : width of the counters
    resets : counters that fall back to 0 once
    noise : other traffic, as a share of the job's mean rate
    """

    tick: str = SAME_TICK
    read_delay_s: float = 0.004
    clock_s: float = 0.01
    lost: float = 0.0
    hole_s: float = 0.0
    stale: float = 0.0
    bits: int = 64
    resets: int = 0
    noise: float = 0.01


CLEAN: Final = Dirt()
