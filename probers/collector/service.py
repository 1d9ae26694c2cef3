"""The collector's loop: look, publish, serve Kafka."""

import gc
import threading
from typing import Final

from probers.clock import SystemClock
from probers.collector.config import CollectConfig
from probers.collector.look import Looker
from probers.publish.publisher import Publisher
from schemas.process.eventlog import EventLog
from schemas.units import MS_NS, SECOND_NS, US_NS

# Acknowledgements are served so often.
TURN_S: Final = 0.25
SUMMARY_NS: Final = 60 * SECOND_NS
# A dump of 2,000 operations makes so many objects; looking for cycles among them found none, and
# took a fifth of the time.
GC_OBJECTS: Final = 50_000
CLOSE_NS: Final = 5 * SECOND_NS


class Service:
    """Looks at the ranks at an interval and publishes what it saw."""

    def __init__(
        self, config: CollectConfig, looker: Looker, publisher: Publisher, log: EventLog
    ) -> None:
        self._interval_ns = config.interval_ms * MS_NS
        self._looker = looker
        self._publisher = publisher
        self._log = log
        self._clock = SystemClock()
        self._stopped = threading.Event()
        self._refused = 0

    def stop(self) -> None:
        """Ask the loop to end."""
        self._stopped.set()

    def run(self) -> None:
        """Look at the ranks until somebody stops it.

        Raises
        ------
        AccessError
            If Kafka refuses what is published, and never took anything.
        """
        # What is loaded stays; a dump's thousands of small objects are in no cycles.
        gc.freeze()
        gc.set_threshold(GC_OBJECTS)
        now_ns = self._clock.now().monotonic_ns
        look_ns, summary_ns = now_ns, now_ns + SUMMARY_NS
        self._log.info("collect.ready", interval_ms=self._interval_ns // MS_NS)
        while not self._stopped.is_set():
            now_ns = self._clock.now().monotonic_ns
            if now_ns >= look_ns:
                self._look()
                # After a pause of the host one look is enough.
                look_ns = max(look_ns + self._interval_ns, now_ns + self._interval_ns // 2)
            if now_ns >= summary_ns:
                summary_ns = now_ns + SUMMARY_NS
                self._summarise()
            self._publisher.poll()
            wait_ns = max(0, look_ns - self._clock.now().monotonic_ns)
            self._stopped.wait(min(TURN_S, wait_ns / SECOND_NS))

    def close(self) -> None:
        """Publish what waits, for a moment, and close."""
        self._summarise()
        missing = self._publisher.close(CLOSE_NS)
        self._looker.close()
        self._log.info("collect.stopped", unacknowledged=missing)

    def _look(self) -> None:
        for message in self._looker.look(self._clock.now()):
            try:
                self._publisher.publish(
                    message.topic, message.key, message.record, message.at_us * US_NS
                )
            except (ValueError, OverflowError, TypeError) as error:
                # A number beyond what Avro holds: of a dump that nobody's library wrote.
                self._looker.collector.counts.refused["record that Avro does not hold"] += 1
                self._log.warning("record.refused", key=message.key, reason=str(error))
        refused = self._looker.collector.counts.refused
        if refused.total() > self._refused:
            self._refused = refused.total()
            self._log.warning("dumps.refused", by_reason=dict(refused.most_common(5)))

    def _summarise(self) -> None:
        counts = self._looker.collector.counts
        self._log.info(
            "collect.counts", ranks=len(self._looker.scan.ranks), batches=counts.batches,
            operations=counts.operations, dumps=counts.dumps, rings=counts.rings, ras=counts.ras,
            sockets=counts.sockets, refused=counts.refused.total(),
            dropped=sum(self._publisher.counts.dropped.values()),
            waiting=self._publisher.waiting,
        )  # fmt: skip
