"""Heartbeats and traces as the service takes them, in batches; twins take them one by one."""

from collections.abc import Sequence

import numpy as np

from localizer.core import Core
from localizer.facts.heartbeats import HeartbeatBatch
from localizer.facts.inputs import Event
from localizer.network.trace_batches import MAX_WHOLE, NO_HOP, SILENT, TraceBatch
from localizer.network.trace_reader import Places
from localizer.network.traces import key_of
from schemas.columns.interpreter import NULL
from schemas.enums import ProbingState, TraceCause
from schemas.records import Heartbeat, PathTrace
from schemas.units import us_to_ns

# When it takes effect, partition and offset.
Place = tuple[int, int, int]


def is_regular(trace: PathTrace) -> bool:
    """Return whether a trace is one of those that may stand in a batch."""
    ttls = [hop.ttl for hop in trace.hops]
    whole = all(hop.address is not None for hop in trace.hops)
    return (whole or not trace.complete) and ttls == list(range(1, len(ttls) + 1)) and (
        1 <= len(ttls) <= MAX_WHOLE
    )  # fmt: skip


def batch_of(traces: Sequence[PathTrace], places: Sequence[Place] | None = None) -> TraceBatch:
    """Return such traces as a batch."""
    width = max(len(trace.hops) for trace in traces)
    addresses: dict[str, int] = {}
    ends: dict[str, int] = {}
    hops = np.full((len(traces), width), NO_HOP, np.int32)
    rtts_ns = np.full((len(traces), width), NULL, np.int64)
    for row, trace in enumerate(traces):
        for place, hop in enumerate(trace.hops):
            hops[row, place] = (
                SILENT if hop.address is None
                else addresses.setdefault(hop.address, len(addresses))
            )  # fmt: skip
            rtts_ns[row, place] = NULL if hop.rtt_ns is None else hop.rtt_ns
    src = [ends.setdefault(trace.src, len(ends)) for trace in traces]
    dst = [ends.setdefault(trace.dst, len(ends)) for trace in traces]
    in_log = np.array(places or [(0, 0, n) for n in range(len(traces))], np.int64)
    return TraceBatch(
        keys=[key_of(trace.src, trace.dst, trace.flow) for trace in traces],
        ends=list(ends),
        src=np.array(src, np.int32),
        dst=np.array(dst, np.int32),
        at_ns=in_log[:, 0],
        partition=in_log[:, 1],
        offset=in_log[:, 2],
        traced_ns=np.array([us_to_ns(trace.traced_at) for trace in traces], np.int64),
        discovery=np.array([trace.cause is TraceCause.DISCOVERY for trace in traces]),
        complete=np.array([trace.complete for trace in traces]),
        addresses=list(addresses),
        hops=hops,
        rtts_ns=rtts_ns,
    )


def is_plain(beat: Heartbeat) -> bool:
    """Return whether a heartbeat is one of those that may stand in a batch."""
    words = (beat.probing_reason, beat.list_refusal, beat.displaced_by)
    return words == (None, None, None) and beat.probing is not ProbingState.DISPLACED


def heartbeats_of(events: Sequence[Event]) -> HeartbeatBatch:
    """Return such heartbeats as a batch."""
    in_log = np.array([(e.at_ns, e.partition, e.offset) for e in events], np.int64)
    return HeartbeatBatch.of_records([event.record for event in events], Places(*in_log.T))


def feed_batched(core: Core, events: Sequence[Event]) -> None:
    """Feed the events of a poll as the service does: those in batches after all others."""
    regular = [e for e in events if isinstance(e.record, PathTrace) and is_regular(e.record)]
    beats = [e for e in events if isinstance(e.record, Heartbeat) and is_plain(e.record)]
    gone = set(map(id, regular + beats))
    for event in events:
        if id(event) not in gone:
            core.feed(event)
    if beats:
        core.feed_heartbeats(heartbeats_of(beats))
    if regular:
        places = [(event.at_ns, event.partition, event.offset) for event in regular]
        core.feed_traces(batch_of([event.record for event in regular], places))


def feed_polls(core: Core, events: Sequence[Event], size: int = 500) -> None:
    """Feed events as polls of that size."""
    for begin in range(0, len(events), size):
        feed_batched(core, events[begin : begin + size])
