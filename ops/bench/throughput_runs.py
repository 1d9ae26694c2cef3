"""What the throughput benchmark fills topics with, and what it sees taken from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ops.bench.load import LoadShape
from schemas.connection import KafkaSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Topics full of rounds."""

    settings: KafkaSettings
    shape: LoadShape
    start_us: int
    intervals: int
    messages: int
    results: int
    bytes: int
    seconds: float

    @property
    def per_message(self) -> float:
        """Results of a message on average."""
        return self.results / self.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of a core, and the largest resident memory of one process, bytes."""

    cpu_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What processes of one kind have taken, and what it cost; not `whole`: they were cut off."""

    results: float
    seconds: float
    workers: Cost
    broker_cpu_s: float
    whole: bool = True
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def rate_hz(self) -> float:
        """Results a second."""
        return self.results / self.seconds
