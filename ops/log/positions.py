"""Where consumer groups stand, asked from outside."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ops.log.reading import Place
from ops.topics.admin import api
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.leadership import Leader
from schemas.kafka.options import QUIET, consumer_options
from streams.config import WorkerConfig

REQUEST_TIMEOUT_S: Final = 10.0


def worker_group(settings: KafkaSettings, table: Mapping[str, Any]) -> str:
    """Return the group of the workers; `table` is the `[worker]` table."""
    return settings.topic(str(table.get("group", WorkerConfig().group)))


class GroupPositions:
    """Looks up committed offsets.

    Each group is asked by a consumer that names it and never joins it. An admin client would ask
    for several, but takes the process with it (SIGSEGV) when a broker answers that it does not
    coordinate the group, as one that has just started does: librdkafka 2.12 and 2.16, its
    issue 5040.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        # In a variable of its own: a temporary client is collected before its futures end.
        self._client = api.AdminClient({**settings.librdkafka(), **QUIET})
        self._consumers: dict[str, Consumer] = {}

    def committed(self, group: str, places: Collection[Place]) -> dict[Place, int | None]:
        """Return the committed offset of each partition.

        None: none was ever committed, the group is not there, or may not be seen.
        """
        if not places:
            return {}
        asked = [TopicPartition(*place) for place in places]
        try:
            found = self._asked(group).committed(asked, timeout=REQUEST_TIMEOUT_S)
        except KafkaException:
            return dict.fromkeys(places)
        return {
            (tp.topic, tp.partition): tp.offset if tp.offset >= 0 and tp.error is None else None
            for tp in found
        }

    def leader(self, group: str, place: Place) -> Leader | None:
        """Return who leads a group of a role, or led last; None: nobody yet, or not to be seen."""
        try:
            (found,) = self._asked(group).committed(
                [TopicPartition(*place)], timeout=REQUEST_TIMEOUT_S
            )
        except KafkaException:
            return None
        return Leader.parse(found.metadata)

    def _asked(self, group: str) -> Consumer:
        if group not in self._consumers:
            self._consumers[group] = Consumer(consumer_options(self._settings, group, fixed=QUIET))
        return self._consumers[group]

    def forget(self, group: str) -> None:
        """Delete a group and its offsets; one that is still in use stays as it is."""
        with suppress(KafkaException):
            known = self._client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
            # A broker that never had a group has no coordinator, and looks for one for 10 s.
            if not known.errors and group not in {found.group_id for found in known.valid}:
                return
            futures = self._client.delete_consumer_groups(
                [group], request_timeout=REQUEST_TIMEOUT_S
            )
            futures[group].result()
