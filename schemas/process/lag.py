"""How far a reader is behind the logs that it reads, in time.

Messages say how many records wait, not for how long. The age of the newest record that was read
says it, as long as more are there; at the end of the log a reader is not behind, however old the
last record is.
"""

import time

from schemas.units import MS_NS, SECOND_NS

Place = tuple[str, int]


class LogLag:
    """How far each partition was read; one thread notes, another may ask.

    Times are those at which the broker took a record.
    """

    def __init__(self) -> None:
        # None: all that is there was read.
        self._read_ms: dict[Place, int | None] = {}
        self.polled_s: float | None = None

    def note_poll(self) -> None:
        """Note that the reader asked for records just now."""
        self.polled_s = time.time()

    def note_record(self, topic: str, partition: int, arrived_ms: int) -> None:
        """Note the newest record that was read."""
        self._read_ms[topic, partition] = arrived_ms

    def note_end(self, topic: str, partition: int) -> None:
        """Note that all of a partition was read."""
        self._read_ms[topic, partition] = None

    def forget(self, topic: str, partition: int) -> None:
        """Forget a partition that is read by another process now."""
        self._read_ms.pop((topic, partition), None)

    def by_topic_s(self, now_ns: int) -> dict[str, float]:
        """Return the lag of each topic's partition that is furthest behind, in seconds."""
        found: dict[str, float] = {}
        for (topic, _), read_ms in dict(self._read_ms).items():
            behind_ns = 0 if read_ms is None else max(0, now_ns - read_ms * MS_NS)
            found[topic] = max(behind_ns / SECOND_NS, found.get(topic, 0.0))
        return found
