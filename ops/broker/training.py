"""Runs Kafka once to create its class data archive; see `ops.broker.warm`."""

import tempfile
from pathlib import Path

from ops.broker import warm
from ops.broker.embedded import EmbeddedKafka
from ops.broker.errors import BrokerError, CacheError
from ops.topics.admin import apply_topics
from schemas.kafka.connection import KafkaSettings


def train() -> bool:
    """Write the cache if there is no current one and this Java can use it; return whether it was.

    Raises
    ------
    EmbeddedServerError
        If the broker does not start, or does not leave a cache; nothing is lost but time.
    """
    target = warm.cache_file()
    if target is None or warm.is_current(target):
        return False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as scratch:
            record = Path(scratch) / target.name
            _run_once(record)
            if not record.is_file():
                raise BrokerError("Java wrote no cache for quicker starts")
            for old in target.parent.glob(f"*{warm.SUFFIX}"):
                old.unlink()  # of another Java
            record.replace(target)
    except OSError as error:
        raise CacheError.from_os_error(target.parent, error) from error
    return True


def _run_once(record: Path) -> None:
    with EmbeddedKafka(announce=False, record=record) as kafka:
        # What every run does first.
        apply_topics(KafkaSettings(bootstrap=kafka.bootstrap))
        kafka.shut_down()
