"""Follows the counters of the agents that somebody looks at, and of nobody else's."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from ops.log.reading import LogReader, Place, now_ms
from ops.log.timespan import Bound
from ops.view.counters import HORIZON_MS, read_counters
from ops.web.on_demand import OnDemand
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.murmur2 import partition_of
from schemas.kafka.registry import codec_for
from schemas.records import CounterBatch
from schemas.topics import RNIC_COUNTERS
from skeleton_job.series.columns import CounterColumns

Batch = CounterBatch | CounterColumns

# Agents whose counters are read at once: half as many, of 8 RNICs, take a twentieth of a core in a
# cluster of 5,000 hosts. Who looks at more waits until others look no more.
MAX_AGENTS: Final = 256
BATCH_S: Final = 0.25
NONE: Final = "none came yet: agents send them for RNICs whose counters they can read"
FULL: Final = f"others look at {MAX_AGENTS} agents, as many as are read at once: try again later"
# Records before now that are read at most when somebody begins to look: of 5,000 agents some
# seconds, of a lab two minutes.
MAX_BACK: Final = 40_000


class CounterFollower(OnDemand):
    """A thread that reads counters while somebody wants any.

    Parameters
    ----------
    settings
        Broker, prefix, registry.
    take
        Called in that thread with batches that came, and with why there are none, if so.
    """

    def __init__(
        self, settings: KafkaSettings, take: Callable[[Iterable[Batch], str | None], None]
    ) -> None:
        super().__init__(settings, "counters", MAX_AGENTS)
        self._topic = settings.topic(RNIC_COUNTERS.name)
        self._take = take
        # Up to where the counters of an agent have been read, microseconds since the epoch.
        self._latest_us: dict[str, int] = {}

    def _say(self, why: str) -> None:
        self._take((), why)

    def _follow(self, reader: LogReader) -> None:
        codec = codec_for(self._settings)
        followed: frozenset[str] = frozenset()
        self._latest_us.clear()
        while (wanted := self._goes_on()) is not None:
            if wanted - followed:
                self._look_back(reader, wanted)
                self._latest_us = {a: t for a, t in self._latest_us.items() if a in wanted}
            followed = wanted
            keys = {agent.encode() for agent in wanted}
            read = (read_counters(entry, codec) for _, entry in reader.batch(BATCH_S, keys))
            batches = [batch for batch in read if batch is not None and self._later(batch)]
            self._take(batches, reader.away or (FULL if self._full else NONE))

    def _later(self, batch: Batch) -> bool:
        """Note up to where an agent is read; what was read before is not taken again."""
        known_us = self._latest_us.get(batch.agent_id)
        if known_us is not None and batch.started_at <= known_us:
            return False
        self._latest_us[batch.agent_id] = batch.started_at
        return True

    def _look_back(self, reader: LogReader, wanted: Collection[str]) -> None:
        """Begin some time ago, in the partitions where the agents' keys stand."""
        ranges = reader.partitions([self._topic])
        count = len(ranges)
        own = {(self._topic, partition_of(agent.encode(), count)) for agent in wanted}
        chosen = {place: ranges[place] for place in own}
        starts = reader.offsets_at(chosen, Bound("time", now_ms() - HORIZON_MS))
        most = MAX_BACK // max(1, len(chosen))
        bounded: dict[Place, int] = {
            place: max(at, chosen[place].high - most) for place, at in starts.items()
        }
        reader.start(bounded)
