"""Options of Kafka clients: what all of ours have in common. No client is imported here.

The order is the same everywhere: defaults, which the `[kafka]` table may change; the table; what
must be as it is.
"""

from collections.abc import Mapping
from typing import Any, Final

from schemas.kafka.connection import KafkaSettings
from schemas.topics import DLQ_MAX_MESSAGE_BYTES

Options = Mapping[str, Any]
NONE: Final[Options] = {}

# Where Java's producer puts a key: all writers of a topic must agree.
PARTITIONER: Final = "murmur2_random"
# Of all clients that read by assignment and join no group. Librdkafka wants a name all the same,
# and looks for its coordinator: with one name there is one resource to grant.
READER_GROUP: Final = "skeletonhunter-reader"
# After a fetch that failed, half a second by default: a poison batch holds nobody up for so long.
RETRY: Final[Options] = {"fetch.error.backoff.ms": 100}
# What a broker collects for a fetch before it answers, if the wait allows.
FETCH_BYTES: Final = 256 * 1024
# A tool reports errors by itself; the client's own lines would repeat them.
QUIET: Final[Options] = {"log_level": 0, "error_cb": lambda _error: None}


def batched_fetch(wait_ms: int) -> Options:
    """Return options by which a broker answers when there is much, or after a wait.

    By default it answers at the first record: in a cluster whose agents write thousands a second
    it is asked hundreds of times a second, which costs both sides more than the records.
    """
    return {"fetch.min.bytes": FETCH_BYTES, "fetch.wait.max.ms": wait_ms}


def group_name(prefix: str, cluster: str, role: str) -> str:
    """Return what the group, and the transactional id, of a role on a cluster is called.

    >>> group_name("review.", "cluster-7", "localizer")
    'review.localizer-cluster-7'
    """
    return f"{prefix}{role}-{cluster}"


def producer_options(
    settings: KafkaSettings, *, defaults: Options = NONE, fixed: Options = NONE
) -> dict[str, Any]:
    """Return the options of a producer that writes each record once and in order.

    It sends whatever fits into the largest of our topics; the broker knows each topic's limit.
    """
    return {
        **defaults,
        **settings.librdkafka(),
        "partitioner": PARTITIONER,
        "enable.idempotence": True,
        "message.max.bytes": DLQ_MAX_MESSAGE_BYTES,
        **fixed,
    }


def consumer_options(
    settings: KafkaSettings, group: str, *, defaults: Options = NONE, fixed: Options = NONE
) -> dict[str, Any]:
    """Return the options of a consumer that commits nothing by itself.

    `group` is its group on the broker.
    """
    return {
        **RETRY,
        **defaults,
        **settings.librdkafka(),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        **fixed,
    }


def reader_options(
    settings: KafkaSettings,
    group: str | None = None,
    *,
    defaults: Options = NONE,
    fixed: Options = NONE,
) -> dict[str, Any]:
    """Return the options of a consumer that is assigned partitions, and joins no group.

    `group` is the one under which it commits; None: it commits nothing. It reports the end of each
    partition, and goes on at a log's beginning where the offset that it was given is gone.
    """
    return consumer_options(
        settings,
        group or settings.topic(READER_GROUP),
        defaults=defaults,
        fixed={"enable.partition.eof": True, "auto.offset.reset": "earliest", **fixed},
    )
