"""Batches of RNICs' counters as columns where they have the usual shape: a tenth of the work."""

from ops.log.entry import Entry
from schemas.codec import Codec, DecodeError
from schemas.records import CounterBatch
from schemas.topics import RNIC_COUNTERS
from skeleton_job.series.columns import CounterColumns, counter_columns


def read_counters(entry: Entry, codec: Codec) -> CounterBatch | CounterColumns | None:
    """Return the batch of an entry; None: it cannot be used, or bears another agent's key."""
    if entry.value is None:
        return None
    try:
        payload = codec.payload(RNIC_COUNTERS, entry.value)
        columns = None if payload is None else counter_columns(payload)
        batch = columns or codec.decode(RNIC_COUNTERS, entry.value)
    except DecodeError:
        return None
    return batch if batch.agent_id.encode() == entry.key else None
