"""The hang watcher over a recording: what collectors told, decided anew without a broker."""

import heapq
from collections.abc import Iterator
from typing import Final

from localizer.collectives.hang_watch import GRID_NS, HangWatch
from ops.log.entry import Entry
from ops.recording.order import between
from ops.recording.source import Item, Source
from schemas.codec import Codec
from schemas.records import Hang
from schemas.topics import (
    COLLECTIVE_COMM,
    COLLECTIVE_FLOW,
    COLLECTIVE_HANG,
    COLLECTIVE_OP,
    Topic,
)
from schemas.units import MS_NS, US_PER_MS

INPUTS: Final[tuple[Topic, ...]] = (COLLECTIVE_COMM, COLLECTIVE_OP, COLLECTIVE_FLOW)


def hangs_of(
    source: Source,
    cluster: str,
    codec: Codec,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> Iterator[Hang]:
    """Yield the transitions of hangs that a hang watcher would have published, in their order.

    Records of another cluster, and those that it would have refused, are left out.
    """
    watch = HangWatch(cluster)
    streams = [between(s, from_ms, to_ms) for s in source.others(codec, INPUTS)]
    for item in heapq.merge(*streams, key=lambda item: item.at_ms):
        arrived_ns = (item.entry.timestamp_ms or item.at_ms) * MS_NS
        if watch.now_ns is None or arrived_ns - watch.now_ns > GRID_NS:
            yield from watch.advance(arrived_ns)
        try:
            key, value = (item.entry.key or b"").decode(), item.entry.value
            record = (
                value if value is None else codec.decode(item.topic, value, arrival_ns=arrived_ns)
            )
            if record is None or record.cluster == cluster:
                watch.feed(key, record, arrived_ns)
        except ValueError:
            continue
    if watch.now_ns is not None:
        yield from watch.advance(watch.now_ns + 2 * GRID_NS)


def hang_items(hangs: Iterator[Hang], codec: Codec) -> Iterator[Item]:
    """Yield hangs as records of their topic, as the localizer reads them."""
    for offset, hang in enumerate(hangs):
        at_ms = hang.event_at // US_PER_MS
        value = codec.encode(COLLECTIVE_HANG, hang)
        entry = Entry(
            key=hang.hang_id.encode(), value=value, headers=(), partition=0, offset=offset,
            timestamp_ms=at_ms,
        )  # fmt: skip
        yield Item(COLLECTIVE_HANG, entry, at_ms, at_ms)
