"""The stream workers of a cluster without a broker: rounds in, what they would publish out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schemas.codec import Codec
from schemas.enums import AnomalyState
from schemas.records import Anomaly
from schemas.units import MS_NS
from streams.columns.rounds import RoundColumns
from streams.config import DetectionConfig
from streams.core.feed import Feed, LogMessage
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output, progress
from streams.core.partition import Identity, RefusedRoundError

# As the worker does: a partition without rounds for so long must not hold the rest back.
IDLE_NS: Final = 2 * 10**9
# Behind all rounds of a second.
LAST: Final = 2**63


@dataclass(frozen=True, slots=True)
class PublishedAnomaly:
    """A record of a partition of the anomaly topic.

    `order`: begin and host of the round that made it, by which records of several processes are
    put in the order in which one process makes them.
    """

    partition: int
    key: str
    record: Anomaly
    order: tuple[int, int] = (0, 0)


def published_anomalies(
    partition: int, outputs: Iterable[Output], order: tuple[int, int] = (0, 0)
) -> list[PublishedAnomaly]:
    """Return the anomalies and progress marks among a partition's outputs."""
    return [
        PublishedAnomaly(partition, o.key, o.record, order)
        for o in outputs
        if isinstance(o.record, Anomaly)
    ]


class SilentPartitions:
    """Marks partitions as idle that have heard nothing for a while, as workers do."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._heard_ns: dict[int, int] = {}

    def hear(self, partition: int, at_ns: int) -> None:
        """Note when a partition heard its latest round."""
        self._heard_ns[partition] = at_ns

    def idle(self, now_ns: int, progress_at: Callable[[int], int | None]) -> list[PublishedAnomaly]:
        """Return the marks of partitions that are silent by `now_ns`.

        `progress_at` says how far a partition is decided, microseconds; None: it has no round.
        """
        silent = [p for p, heard_ns in self._heard_ns.items() if now_ns - heard_ns >= IDLE_NS]
        return [mark for p in sorted(silent) for mark in self._mark(p, progress_at(p))]

    def finish(self, progress_at: Callable[[int], int | None]) -> list[PublishedAnomaly]:
        """Return the marks of all partitions when nothing more comes."""
        return [mark for p in sorted(self._heard_ns) for mark in self._mark(p, progress_at(p))]

    def _mark(self, partition: int, at: int | None) -> list[PublishedAnomaly]:
        del self._heard_ns[partition]
        if at is None:
            return []
        mark = progress(self._cluster, partition, AnomalyState.IDLE, at)
        return [PublishedAnomaly(partition, "", mark, (LAST, partition))]


class Detection:
    """The state machines of some partitions.

    Attributes
    ----------
    refused
        Rounds that the worker would have put into the dead letters, by reason.
    """

    def __init__(self, cluster: str, config: DetectionConfig) -> None:
        self.refused: dict[str, int] = {}
        self._cluster = cluster
        self._config = config
        self._codec = Codec()
        self._machines: dict[int, PartitionMachine] = {}
        self._feeds: dict[int, Feed] = {}
        self._offsets: dict[int, int] = {}
        self._silent = SilentPartitions(cluster)

    def round(
        self,
        partition: int,
        datum: dict[str, Any],
        *,
        timestamp_ms: int,
        columns: RoundColumns | None = None,
    ) -> list[Output]:
        """Take in a decoded round; return what the worker publishes, but for windows.

        `columns` as in `PartitionMachine.process`.
        """
        machine = self._machine(partition)
        self._silent.hear(partition, timestamp_ms * MS_NS)
        offset = self._offsets.get(partition, 0)
        self._offsets[partition] = offset + 1
        try:
            return machine.process(datum, offset, timestamp_ms * MS_NS, columns)
        except RefusedRoundError as error:
            self._refuse(error.counter)
            return []

    def messages(
        self, partition: int, messages: Sequence[LogMessage], *, timestamp_ms: int
    ) -> list[Output]:
        """Take in rounds as Kafka holds them, one after the other, as the worker does.

        `timestamp_ms` is that of the last one. A partition is told of its rounds either so, or
        by `round`.
        """
        feed = self._feeds.get(partition)
        if feed is None:
            feed = self._feeds[partition] = Feed(self._machine(partition), self._codec)
        self._silent.hear(partition, timestamp_ms * MS_NS)
        outputs: list[Output] = []
        for taken in feed.process(messages):
            outputs += taken.outputs
            if taken.refused is not None:
                self._refuse(taken.refused.counter)
        return outputs

    def _machine(self, partition: int) -> PartitionMachine:
        machine = self._machines.get(partition)
        if machine is None:
            identity = Identity(self._cluster, partition)
            machine = PartitionMachine(self._config, identity, publish_windows=False)
            self._machines[partition] = machine
        return machine

    def _refuse(self, counter: str) -> None:
        self.refused[counter] = self.refused.get(counter, 0) + 1

    def idle(self, now_ns: int) -> list[PublishedAnomaly]:
        """Return the marks of partitions that have heard nothing for a while by `now_ns`."""
        return self._silent.idle(now_ns, self._progress_at)

    def finish(self) -> list[PublishedAnomaly]:
        """Return the marks of all partitions when nothing more comes."""
        return self._silent.finish(self._progress_at)

    def _progress_at(self, partition: int) -> int | None:
        return self._machines[partition].progress_at
