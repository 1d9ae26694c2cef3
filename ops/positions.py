"""Where consumer groups stand, asked from outside."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from ops.reading import Place
from ops.topic_admin import api
from schemas.connection import KafkaSettings
from streams.config import WorkerConfig

REQUEST_TIMEOUT_S: Final = 10.0


def worker_group(settings: KafkaSettings, table: Mapping[str, Any]) -> str:
    """Return the group of the workers; `table` is the `[worker]` table."""
    return settings.topic(str(table.get("group", WorkerConfig().group)))


def localizer_group(settings: KafkaSettings) -> str:
    """Return the group under which the localizer remembers what it has decided."""
    return f"{settings.topic_prefix}localizer-{settings.cluster}"


class GroupPositions:
    """Looks up committed offsets."""

    def __init__(self, settings: KafkaSettings) -> None:
        # In a variable of its own: a temporary client is collected before its futures end.
        self._client = api.AdminClient(
            {**settings.librdkafka(), "log_level": 0, "error_cb": lambda _error: None}
        )

    def committed(self, group: str, places: Collection[Place]) -> dict[Place, int | None]:
        """Return the committed offset of each partition.

        None: none was ever committed, the group is not there, or may not be seen.
        """
        if not places:
            return {}
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(*p) for p in places])
        try:
            futures = self._client.list_consumer_group_offsets(
                [request], request_timeout=REQUEST_TIMEOUT_S
            )
            found = futures[group].result().topic_partitions
        except KafkaException:
            return dict.fromkeys(places)
        return {
            (tp.topic, tp.partition): tp.offset if tp.offset >= 0 and tp.error is None else None
            for tp in found
        }

    def forget(self, group: str) -> None:
        """Delete a group and its offsets; one that is still in use stays as it is."""
        futures = self._client.delete_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)
        with suppress(KafkaException):
            futures[group].result()
