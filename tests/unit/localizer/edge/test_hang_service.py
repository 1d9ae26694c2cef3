"""What the hang watcher takes from a message: one record never ends the process."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from localizer.collectives.hang_watch import HangWatch
from localizer.config import HangsConfig
from localizer.edge.hang_service import HangService
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.records import CollectiveBatch
from schemas.topics import COLLECTIVE_OP
from tests.collective_batches import CLUSTER, Job, arrivals


def test_a_batch_that_refers_to_what_it_does_not_hold_is_a_dead_letter(tmp_path: Path) -> None:
    """Its fields are all within their bounds; what comes after it is used."""
    first = next(
        a
        for a in arrivals(Job.load("healthy", tmp_path))
        if isinstance(a.record, CollectiveBatch) and a.record.operations
    )
    settings, codec = KafkaSettings(bootstrap="", cluster=CLUSTER), Codec()
    service = HangService(settings, codec, HangsConfig())
    watch = HangWatch(CLUSTER)
    letters: list[DecodeError] = []
    outbox: Any = SimpleNamespace(
        letters=SimpleNamespace(put=lambda error, _message: letters.append(error))
    )
    beyond = replace(first.record.operations[0], communicator=len(first.record.communicators))
    for record in (replace(first.record, operations=(beyond,)), first.record):
        value = codec.encode(COLLECTIVE_OP, record)
        message = SimpleNamespace(
            key=first.key.encode,
            value=lambda value=value: value,
            partition=lambda: 1,
            offset=lambda: 7,
            timestamp=lambda: (2, first.at_ns // 10**6),
        )
        service._take(cast(Any, message), COLLECTIVE_OP, watch, outbox, None)
    assert [letter.reason.split(" of the batch")[0] for letter in letters] == [
        f"an index beyond the {len(first.record.communicators)} communicators"
    ]
    assert service.counts.dead_letters.total() == 1
    assert len(watch) == 1
