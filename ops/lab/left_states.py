"""Takes back what the agents of a lab said of components, once they have ended.

In service a state outlives its agent: it is evidence of what broke. The components of a lab are
gone with it, and its names come again with the next one.
"""

from collections.abc import Collection

from ops.log.reading import LogReader
from ops.log.writing import LogWriter
from schemas.codec import DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.topics import COMPONENT_STATE


def withdraw_states(settings: KafkaSettings, agents: Collection[str]) -> int:
    """Write a tombstone for each state whose latest record is of one of these agents.

    Returns
    -------
    int
        How many.

    Raises
    ------
    ConnectionError
        If the broker does not answer.
    LookupError
        If it has no such topic.
    """
    codec, name = codec_for(settings, bounded=False), settings.topic(COMPONENT_STATE.name)
    left: dict[tuple[int, bytes], None] = {}
    with LogReader(settings) as reader:
        ranges = reader.partitions([name])
        starts = {place: r.low for place, r in ranges.items()}
        for (_, partition), entry in reader.read_to(starts, {p: r.high for p, r in ranges.items()}):
            place = (partition, entry.key or b"")
            left.pop(place, None)
            if entry.value is None:
                continue
            try:
                source = codec.decode(COMPONENT_STATE, entry.value).source
            except DecodeError:
                continue
            if source in agents:
                left[place] = None
    writer = LogWriter(settings)
    for partition, key in left:
        # Where the record stands, whoever chose its partition.
        writer.write(name, key=key, value=None, timestamp_ms=None, partition=partition)
    writer.flush()
    return len(left)
