"""The pipeline straight through its pure cores: no broker, no processes, no clock.

What the live pipeline does with topics in between is done here record by record: each
partition's rounds go through the stream worker's machine, its anomalies and progress marks
through the localizer's merge, and the localizer decides up to the watermark. The same
records in the same order give the same transitions as a worker and a localizer that keep
up with them.
"""

from typing import Any, Final

from localizer.config_core import CoreConfig
from localizer.core import Core
from localizer.merge import Merge
from schemas.enums import AnomalyState
from schemas.records import FaultEvent
from schemas.topics import ANOMALY
from streams.columns import RoundColumns
from streams.config import DetectionConfig
from streams.outputs import Output, progress
from streams.partition import Identity, PartitionMachine, RefusedRoundError

MS_NS: Final = 10**6
# As the worker does: a partition without rounds for so long must not hold the rest back.
IDLE_NS: Final = 2 * 10**9


class DirectRun:
    """Worker and localizer of one cluster in one object.

    Attributes
    ----------
    refused
        Rounds that the worker would have put into the dead letters, by reason.
    anomalies
        Anomaly records made, without progress marks.
    """

    def __init__(self, cluster: str, detection: DetectionConfig, core: CoreConfig) -> None:
        self.refused: dict[str, int] = {}
        self.anomalies = 0
        self.cluster = cluster
        self._detection = detection
        self._core = Core(core)
        self._merge = Merge()
        self._machines: dict[int, PartitionMachine] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._heard_ns: dict[int, int] = {}

    def record(
        self, topic: str, key: str, record: Any, *, timestamp_ms: int, partition: int = 0
    ) -> None:
        """Take in a record of an input of the localizer; None is a tombstone."""
        event = self._merge.put(
            topic,
            key,
            record,
            partition=partition,
            offset=self._next(topic, partition),
            timestamp_ms=timestamp_ms,
        )
        if event is not None:
            self._core.feed(event)

    def round(
        self,
        partition: int,
        datum: dict[str, Any],
        *,
        timestamp_ms: int,
        columns: RoundColumns | None = None,
    ) -> list[Output]:
        """Take in a decoded round; return what the worker publishes, windows included.

        `columns` as in `PartitionMachine.process`.
        """
        machine = self._machines.get(partition)
        if machine is None:
            identity = Identity(self.cluster, partition)
            machine = self._machines[partition] = PartitionMachine(self._detection, identity)
        self._heard_ns[partition] = timestamp_ms * MS_NS
        try:
            outputs = machine.process(datum, self._next("rounds", partition), columns)
        except RefusedRoundError as error:
            self.refused[error.counter] = self.refused.get(error.counter, 0) + 1
            return []
        for output in outputs:
            if output.topic is ANOMALY:
                self._put(partition, output.key, output.record)
        return outputs

    def decide(self, now_ns: int) -> list[FaultEvent]:
        """Decide what can be decided when event time is `now_ns`.

        Everything that happened before must have been taken in.
        """
        for partition, heard_ns in list(self._heard_ns.items()):
            if now_ns - heard_ns >= IDLE_NS:
                self._idle(partition)
        return self._advance()

    def finish(self) -> list[FaultEvent]:
        """Decide what is left when nothing more comes."""
        for partition in list(self._heard_ns):
            self._idle(partition)
        return self._advance()

    def _idle(self, partition: int) -> None:
        del self._heard_ns[partition]
        at = self._machines[partition].progress_at
        if at is not None:
            self._put(partition, "", progress(self.cluster, partition, AnomalyState.IDLE, at))

    def _advance(self) -> list[FaultEvent]:
        watermark_ns = self._merge.watermark_ns
        return [] if watermark_ns is None else self._core.advance(watermark_ns)

    def _put(self, partition: int, key: str, record: Any) -> None:
        event = self._merge.put(
            ANOMALY.name,
            key,
            record,
            partition=partition,
            offset=self._next(ANOMALY.name, partition),
            timestamp_ms=0,
        )
        if event is not None:
            self.anomalies += 1
            self._core.feed(event)

    def _next(self, log: str, partition: int) -> int:
        offset = self._offsets.get((log, partition), 0)
        self._offsets[log, partition] = offset + 1
        return offset
