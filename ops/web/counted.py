"""Follows the counters of the agents that somebody looks at, and of nobody else's."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

from ops.log.reading import LogReader, Place, UnknownTopicError, now_ms
from ops.log.timespan import Bound
from ops.view.counters import HORIZON_MS, read_counters
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.murmur2 import partition_of
from schemas.kafka.registry import RegistryError, codec_for
from schemas.records import CounterBatch
from schemas.topics import RNIC_COUNTERS
from skeleton_job.series.columns import CounterColumns

LOG: Final = logging.getLogger(__name__)
Batch = CounterBatch | CounterColumns

# Agents whose counters are read at once: half as many, of 8 RNICs, take a twentieth of a core in a
# cluster of 5,000 hosts. Who looks at more waits until others look no more.
MAX_AGENTS: Final = 256
# A page that is open is made anew each second or two; whose is closed is not read for longer.
KEEP_S: Final = 15.0
BATCH_S: Final = 0.25
RETRY_S: Final = 2.0
NONE: Final = "none came yet: agents send them for RNICs whose counters they can read"
FULL: Final = f"others look at {MAX_AGENTS} agents, as many as are read at once: try again later"
# Records before now that are read at most when somebody begins to look: of 5,000 agents some
# seconds, of a lab two minutes.
MAX_BACK: Final = 40_000


class CounterFollower:
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
        self._settings = settings
        self._topic = settings.topic(RNIC_COUNTERS.name)
        self._take = take
        self._until_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._full = False
        self._wake = threading.Event()
        self._stopping = threading.Event()
        # Up to where the counters of an agent have been read, microseconds since the epoch.
        self._latest_us: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="counters", daemon=True)

    def start(self) -> None:
        """Begin to wait for somebody who looks."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=5.0)

    def want(self, agents: Collection[str]) -> None:
        """Say whose counters a page shows now."""
        if not agents:
            return
        until_s = time.monotonic() + KEEP_S
        with self._lock:
            for agent in agents:
                if agent in self._until_s or len(self._until_s) < MAX_AGENTS:
                    self._until_s[agent] = until_s
            self._full = any(agent not in self._until_s for agent in agents)
        self._wake.set()

    def _wanted(self) -> frozenset[str]:
        now_s = time.monotonic()
        with self._lock:
            self._until_s = {a: until_s for a, until_s in self._until_s.items() if until_s > now_s}
            return frozenset(self._until_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._wanted():
                self._wake.wait()
                # Cleared before it is looked who woke it: nobody is overlooked.
                self._wake.clear()
                continue
            try:
                with LogReader(self._settings) as reader:
                    self._follow(reader)
            except UnknownTopicError as error:
                self._say(f"{error}: run `skeletonhunter topics apply`")
            except (ConnectionError, RegistryError, OSError) as error:
                self._say(str(error))
            except Exception as error:
                # One batch that cannot be read must not end all counters without a word.
                LOG.exception("counters")
                self._say(f"they cannot be read: {error!r}; the server's log says where")

    def _say(self, why: str) -> None:
        self._take((), why)
        self._stopping.wait(RETRY_S)

    def _follow(self, reader: LogReader) -> None:
        """Read until nobody looks any more."""
        codec = codec_for(self._settings)
        followed: frozenset[str] = frozenset()
        self._latest_us.clear()
        while not self._stopping.is_set() and (wanted := self._wanted()):
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
