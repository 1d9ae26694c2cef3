"""Bounds of the fields that move time, memory or a life cycle: one table for all readers.

`Codec` checks every record that it decodes; kernels derive their limits from the table. A field
without a row moves nothing: it is shown, or not read at all. What is out of bounds is a dead
letter. `docs/reference/topics.md` has the table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import groupby
from typing import Any, Final

from schemas.ids import MAX_ID_CHARS
from schemas.units import HOUR_NS, MS_NS, SECOND_NS, US_NS, US_PER_MS

# How far an event time may lie ahead of the arrival of its record at the broker: clocks of hosts
# under NTP differ by milliseconds, and a broken one must not move others' time.
MAX_AHEAD_NS: Final = 60 * SECOND_NS
# The same of what processes compute from agents' times: a round's probes are sent up to 30 s after
# its start, and decisions wait for the end of a grid step.
MAX_DERIVED_AHEAD_NS: Final = 2 * MAX_AHEAD_NS
# The same of times of arrival, and of what is decided by them: brokers' clocks differ by less.
MAX_ARRIVAL_AHEAD_NS: Final = 5 * SECOND_NS
# Year 2200: keeps every time in nanoseconds within int64.
MAX_TIME_US: Final = 7_258_118_400_000_000
MAX_ARRIVAL_MS: Final = MAX_TIME_US // US_PER_MS
MAX_TIME_NS: Final = MAX_TIME_US * US_NS
# Of numbers that count or number things: exact in a double, never reached.
MAX_COUNT: Final = 2**53
# A thousand a second for 34 years.
MAX_NUMBER: Final = 2**40
MAX_RTT_NS: Final = 60 * SECOND_NS
# Real rounds take an interval and a few timeouts, some 2 s. The bound keeps the look-back of a
# restart finite.
MAX_ROUND_SPAN_NS: Final = 30 * SECOND_NS
# A batch of counters is a second of ticks; one that spans more is not ours.
MAX_BATCH_SPAN_NS: Final = 600 * SECOND_NS
# Ranks are one for each GPU; the largest jobs have some 100,000.
MAX_RANK: Final = 2**17 - 1
MAX_NAME_CHARS: Final = 1_024
MAX_TEXT_CHARS: Final = 16_384
MAX_LONG: Final = 2**63 - 1
MAX_DOUBLE: Final = 1e18


class Measure(Enum):
    """What of a field is bounded."""

    VALUE = "value"
    CHARACTERS = "characters"
    ITEMS = "items"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Limits of one field.

    Attributes
    ----------
    field
        Its name, of a field of an array's items behind the array's: `results.rtt_ns`.
    least, greatest
        Both are allowed. A value that is missing (null) is.
    ahead_ns
        How far the time may lie ahead of the record's arrival; None: no time, or any.
    unit_ns
        Unit of a time.
    """

    topic: str
    field: str
    least: float
    greatest: float
    reason: str
    measure: Measure = Measure.VALUE
    ahead_ns: int | None = None
    unit_ns: int = US_NS


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that is out of bounds."""

    bound: Bound
    value: float
    ahead: bool

    def __str__(self) -> str:
        bound = self.bound
        if self.ahead:
            allowed_s = (bound.ahead_ns or 0) // SECOND_NS
            return (
                f"{bound.field}={self.value} is more than {allowed_s} s ahead of the record's "
                f"arrival: {bound.reason}"
            )
        what = "" if bound.measure is Measure.VALUE else f" {bound.measure.value}"
        return (
            f"{bound.field}={self.value}{what}: from {bound.least} to {bound.greatest}, "
            f"{bound.reason}"
        )


def violation(
    topic: str, datum: Mapping[str, Any], arrival_ns: int | None = None
) -> Violation | None:
    """Return the first field of a decoded datum that is out of bounds; None: all are within.

    Parameters
    ----------
    arrival_ns
        Timestamp of the Kafka record, in nanoseconds; None: unknown, nothing is compared with it.
    """
    fields, checks = _checks(topic)
    # Inline: every heartbeat has twenty of them, and calls were most of the time.
    for name, measured, least, greatest, ahead_ns, unit_ns, bound in fields:
        value = datum[name]
        if value is None:
            continue
        if measured:
            value = len(value)
        if not least <= value <= greatest or (
            ahead_ns is not None
            and arrival_ns is not None
            and value * unit_ns > arrival_ns + ahead_ns
        ):
            return value_violation(bound, value, arrival_ns)
    for check in checks:
        found = check(datum, arrival_ns)
        if found is not None:
            return found
    return None


def bound_of(topic: str, field: str) -> Bound:
    """Return the bound of a field, whose limits a kernel needs.

    Raises
    ------
    KeyError
        If the table has none.
    """
    return _BY_FIELD[topic, field]


def value_violation(bound: Bound, value: float, arrival_ns: int | None = None) -> Violation | None:
    """Return what is wrong with one value of a field (or its length)."""
    if not bound.least <= value <= bound.greatest:
        return Violation(bound, value, ahead=False)
    if is_ahead(bound, value, arrival_ns):
        return Violation(bound, value, ahead=True)
    return None


def is_ahead(bound: Bound, value: float, arrival_ns: int | None) -> bool:
    """Return whether a time lies further ahead of the arrival than its bound allows."""
    if bound.ahead_ns is None or arrival_ns is None:
        return False
    return value * bound.unit_ns > arrival_ns + bound.ahead_ns


def arrival_of(timestamp: tuple[int, int]) -> int | None:
    """Return the arrival of a message, nanoseconds, from a client's `message.timestamp()`.

    Of whichever type it is: a replay keeps recorded times of arrival (CreateTime). None: it is not
    known, or beyond what 64 bits of nanoseconds hold.
    """
    kind, at_ms = timestamp
    return at_ms * MS_NS if kind and at_ms <= MAX_ARRIVAL_MS else None


_Check = Callable[[Mapping[str, Any], int | None], Violation | None]
# Of a field that is no array's: name, whether its length counts, least, greatest, how far it may be
# ahead in units of so many nanoseconds, and all of it.
_Field = tuple[str, bool, float, float, int | None, int, Bound]


@cache
def _checks(topic: str) -> tuple[tuple[_Field, ...], tuple[_Check, ...]]:
    rows = [bound for bound in BOUNDS if bound.topic == topic]
    fields = tuple(
        (b.field, b.measure is not Measure.VALUE, b.least, b.greatest, b.ahead_ns, b.unit_ns, b)
        for b in rows
        if "." not in b.field
    )
    nested = [bound for bound in rows if "." in bound.field]
    arrays = groupby(nested, key=lambda b: b.field.partition(".")[0])
    return fields, tuple(_items_check(array, tuple(bounds)) for array, bounds in arrays)


def _items_check(array: str, bounds: tuple[Bound, ...]) -> _Check:
    columns = [(bound, bound.field.partition(".")[2]) for bound in bounds]

    def check(datum: Mapping[str, Any], arrival_ns: int | None) -> Violation | None:
        items = datum[array]
        if not items:
            return None
        for bound, name in columns:
            # Texts of an array have no field of their own.
            values = [item[name] for item in items] if name else items
            if bound.measure is not Measure.VALUE:
                values = [len(value) for value in values if value is not None]
            elif None in values:
                values = [value for value in values if value is not None]
            least, greatest = bound.least, bound.greatest
            # NaN compares as nothing: of doubles each is looked at.
            whole = not isinstance(least, float)
            if whole and (not values or (least <= min(values) and max(values) <= greatest)):
                continue
            for value in values:
                if (found := value_violation(bound, value, arrival_ns)) is not None:
                    return found
        return None

    return check


def _times(
    topic: str, *fields: str, ahead_ns: int | None = MAX_AHEAD_NS, reason: str = ""
) -> Iterator[Bound]:
    for field in fields:
        yield Bound(
            topic=topic, field=field, least=0, greatest=MAX_TIME_US, ahead_ns=ahead_ns,
            reason=reason or "a later time would move the time of others",
        )  # fmt: skip


def _incarnation(topic: str, ahead_ns: int | None, reason: str) -> Bound:
    return Bound(
        topic=topic, field="incarnation", least=0, greatest=MAX_TIME_NS, unit_ns=1,
        ahead_ns=ahead_ns, reason=reason,
    )  # fmt: skip


def _numbers(
    topic: str, least: float, greatest: float, reason: str, *fields: str
) -> Iterator[Bound]:
    for field in fields:
        yield Bound(topic=topic, field=field, least=least, greatest=greatest, reason=reason)


def _array(topic: str, field: str, items: int) -> Bound:
    return Bound(
        topic=topic, field=field, least=0, greatest=items, measure=Measure.ITEMS,
        reason="memory for each",
    )  # fmt: skip


def _ids(topic: str, *fields: str, chars: int = MAX_ID_CHARS, least: int = 1) -> Iterator[Bound]:
    for field in fields:
        yield Bound(
            topic=topic, field=field, least=least, greatest=chars, measure=Measure.CHARACTERS,
            reason="state is kept by it" if chars <= MAX_NAME_CHARS else "a text for people",
        )  # fmt: skip


def _texts(topic: str, *fields: str) -> Iterator[Bound]:
    yield from _ids(topic, *fields, chars=MAX_TEXT_CHARS, least=0)


_NUMBERED: Final = "counted up from 0 or 1"
_FLOW: Final = "flows are indices of source ports"
# Arrival says when; a host whose clock is wrong has ranks like any other.
_OWN_CLOCK: Final = "a rank's times are compared with each other only"
_CLOCK: Final = "beyond a minute it is a broken clock"
_TOTAL: Final = "a count"
_RANK: Final = "one for each GPU of a job"


def _fault(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "fault_id", "component_id", "component_kind", chars=MAX_NAME_CHARS)
    yield from _ids(topic, "fault_kind", "severity", chars=MAX_ID_CHARS)
    yield from _texts(topic, "summary")
    yield from _numbers(topic, 1, MAX_NUMBER, _NUMBERED, "seq")
    yield from _times(
        topic, "event_at", ahead_ns=MAX_ARRIVAL_AHEAD_NS,
        reason="a localizer that starts again publishes nothing up to it",
    )  # fmt: skip
    yield from _times(topic, "onset_at", "opened_at", "resolved_at", ahead_ns=MAX_DERIVED_AHEAD_NS)
    yield from _numbers(topic, 0.0, 1.0, "a share", "confidence")
    yield from _numbers(
        topic, 0, MAX_COUNT, _TOTAL, "bad_paths", "good_paths", "unexplained_paths", "flaps"
    )
    yield _array(topic, "tasks", 4_096)
    yield _array(topic, "candidates", 64)
    yield _array(topic, "evidence", 64)
    yield _array(topic, "related_fault_ids", 64)
    yield _array(topic, "ranks", 4_096)
    yield from _ids(topic, "tasks.", "related_fault_ids.", "ranks.", chars=MAX_NAME_CHARS)
    yield from _ids(topic, "candidates.component_id", chars=MAX_NAME_CHARS)
    yield from _numbers(topic, 0.0, 1.0, "a share", "candidates.score")
    yield from _texts(topic, "evidence.")


def _silence(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "silence_id", "author", chars=MAX_NAME_CHARS)
    yield _array(topic, "matchers", 16)
    yield from _ids(topic, "matchers.label")
    yield from _ids(topic, "matchers.pattern", chars=MAX_NAME_CHARS)
    yield from _times(topic, "from_at", "until_at", ahead_ns=None, reason="may be planned")
    yield from _times(topic, "created_at")
    yield from _texts(topic, "reason", "ended_by")


def _note(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "fault_id", "note_id", "author", chars=MAX_NAME_CHARS)
    yield from _times(topic, "noted_at")
    yield from _texts(topic, "text", "cause")


def _probe_round(topic: str) -> Iterator[Bound]:
    yield from _times(topic, "started_at")
    yield from _ids(topic, "agent_id")
    yield _incarnation(topic, None, "tells two agents of one name apart")
    yield from _numbers(topic, 0, MAX_NUMBER, _NUMBERED, "round_seq")
    yield _array(topic, "results", 65_536)
    yield from _ids(topic, "results.src", "results.dst")
    yield from _numbers(topic, 0, 65_535, _FLOW, "results.flow")
    yield from _numbers(
        topic, 0, MAX_ROUND_SPAN_NS, "keeps the look-back of a restart finite",
        "results.sent_offset_ns",
    )  # fmt: skip
    yield from _numbers(
        topic, -MAX_RTT_NS, MAX_RTT_NS, _CLOCK,
        "results.rtt_ns", "results.prober_delay_ns", "results.responder_delay_ns",
    )  # fmt: skip


def _rnic_counters(topic: str) -> Iterator[Bound]:
    yield from _times(topic, "started_at")
    yield from _ids(topic, "agent_id")
    yield _array(topic, "samples", 65_536)
    yield from _ids(topic, "samples.endpoint_id")
    yield from _numbers(
        topic, 0, MAX_BATCH_SPAN_NS, "a batch is a second of ticks",
        "samples.tick_offset_ns", "samples.read_delay_ns",
    )  # fmt: skip
    yield from _numbers(
        topic, 0, MAX_LONG, "counters never fall below 0", "samples.tx_bytes", "samples.rx_bytes"
    )
    yield from _numbers(topic, 1, 64, "the counter wraps there", "samples.counter_bits")


def _path_trace(topic: str) -> Iterator[Bound]:
    yield from _times(topic, "traced_at")
    yield from _ids(topic, "path_id", chars=MAX_NAME_CHARS)
    yield from _ids(topic, "src", "dst", "agent_id")
    yield from _numbers(topic, 0, 65_535, _FLOW, "flow")
    yield from _texts(topic, "incomplete_reason")
    yield _array(topic, "hops", 64)
    yield from _numbers(topic, 1, 255, "a TTL has 8 bits", "hops.ttl")
    yield from _ids(topic, "hops.address", chars=MAX_NAME_CHARS)
    yield from _numbers(topic, -MAX_RTT_NS, MAX_RTT_NS, _CLOCK, "hops.rtt_ns")


def _task(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "task_id")
    yield from _times(topic, "submitted_at", "ended_at")
    yield from _numbers(topic, 1, 4_096, "of one host", "gpus_per_host")
    yield _array(topic, "endpoints", 65_536)
    yield from _ids(
        topic, "endpoints.endpoint_id", "endpoints.container_id", "endpoints.host_id",
        "endpoints.agent_id",
    )  # fmt: skip
    yield from _numbers(topic, 0, 4_095, "of one host", "endpoints.rail")


def _endpoint(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "endpoint_id", "agent_id", "container_id", "host_id", "task_id")
    yield from _numbers(topic, 0, 4_095, "of one host", "rail")
    yield from _ids(topic, "address", chars=MAX_NAME_CHARS)
    yield from _numbers(topic, 0, 2**24 - 1, "numbers of queue pairs have 24 bits", "port")
    yield from _numbers(topic, 0, 2**32 - 1, "a Q_Key has 32 bits", "qkey")
    yield _incarnation(topic, MAX_AHEAD_NS, "the later agent of an endpoint displaces the other")
    yield from _times(topic, "registered_at")


def _agent_heartbeat(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "agent_id", "host_id")
    yield _incarnation(topic, None, "the later agent of a name counts")
    yield from _numbers(topic, 0, MAX_NUMBER, _NUMBERED, "seq")
    yield from _times(
        topic, "sent_at", ahead_ns=None,
        reason="any within: an agent with a wrong clock is alive, and its clock is judged by it",
    )  # fmt: skip
    yield from _numbers(
        topic, SECOND_NS // 1_000, HOUR_NS, "a silence is measured in it", "interval_ns"
    )
    yield from _texts(
        topic, "state_reason", "probing_reason", "list_refusal", "clock_offset_reason"
    )
    yield from _numbers(topic, 0, MAX_NUMBER, _NUMBERED, "pinglist_version")
    yield from _numbers(
        topic, 0, MAX_COUNT, _TOTAL,
        "endpoints", "targets_active", "targets_waiting", "rounds_sent", "results_sent",
        "rounds_dropped", "replies_duplicate", "replies_late", "replies_foreign",
        "packets_malformed", "flows_active", "lists_refused", "registrations_refused",
        "packets_filtered", "records_undecodable",
    )  # fmt: skip
    yield from _numbers(topic, 0, HOUR_NS, "a delay within one interval", "host_delay_ns")
    yield from _numbers(topic, 0, MAX_TIME_NS, "an incarnation", "displaced_by")
    yield from _numbers(
        topic, -MAX_TIME_NS, MAX_TIME_NS, "any clock", "clock_offset_ns", "clock_error_ns"
    )


def _pinglist(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "agent_id")
    yield from _numbers(topic, 0, MAX_NUMBER, "an agent follows the greatest", "version")
    yield from _times(topic, "updated_at", ahead_ns=MAX_DERIVED_AHEAD_NS)
    yield _array(topic, "targets", 65_536)
    yield from _ids(topic, "targets.src", "targets.dst")
    yield from _ids(topic, "targets.task_id", least=0)
    yield from _numbers(topic, 1, 65_536, _FLOW, "targets.flows")


def _skeleton(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "task_id")
    yield from _numbers(topic, 0, MAX_NUMBER, "the greatest counts", "version")
    yield from _times(topic, "window_start_at", "window_end_at", ahead_ns=MAX_DERIVED_AHEAD_NS)
    yield from _numbers(topic, 0.0, 1.0, "a share", "confidence")
    yield from _texts(topic, "reason")
    yield from _numbers(topic, 0, HOUR_NS, "of one training iteration", "period_ns")
    yield from _numbers(topic, 1, 2**20, "of the job's endpoints", "dp", "pp", "tp", "ep", "cp")
    yield _array(topic, "members", 65_536)
    yield _array(topic, "pairs", 1_048_576)
    yield from _ids(topic, "members.endpoint_id")
    yield from _numbers(topic, 0, 2**20, "of the job's", "members.group", "members.stage")
    yield from _ids(topic, "pairs.a", "pairs.b")


def _topology(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "component_id", "a", "b", "parent", chars=MAX_NAME_CHARS)
    yield from _numbers(topic, 0, 255, "levels of switches", "tier")
    yield from _times(topic, "updated_at")
    yield _array(topic, "addresses", 4_096)
    yield from _ids(topic, "addresses.", chars=MAX_NAME_CHARS)


def _overlay_flows(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "host_id")
    yield from _times(topic, "captured_at")
    yield _array(topic, "entries", 65_536)
    yield from _ids(topic, "entries.node", "entries.dst", "entries.next_hop", chars=MAX_NAME_CHARS)


def _component_state(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "state_id", "component_id", "attribute", "source", chars=MAX_NAME_CHARS)
    yield from _texts(topic, "text", "missing_reason")
    yield from _numbers(topic, -MAX_DOUBLE, MAX_DOUBLE, "finite", "number")
    yield from _times(topic, "changed_at", "observed_at")


def _probe_window(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "path_id", chars=MAX_NAME_CHARS)
    yield from _ids(topic, "src", "dst", "agent_id")
    yield from _numbers(topic, 0, 65_535, _FLOW, "flow")
    yield from _times(
        topic, "window_start_at", "window_end_at", ahead_ns=None, reason="keeps sums within int64"
    )
    yield from _numbers(topic, 0, MAX_COUNT, _TOTAL, "sent", "ok", "lost", "duplicate_results")
    yield from _numbers(
        topic, 0, MAX_RTT_NS, _CLOCK,
        "p25_ns", "p50_ns", "p75_ns", "p90_ns", "p99_ns", "min_ns", "mean_ns", "std_ns", "max_ns",
        "host_delay_p50_ns", "responder_delay_p50_ns",
    )  # fmt: skip


def _anomaly(topic: str) -> Iterator[Bound]:
    yield from _times(
        topic, "event_at", ahead_ns=MAX_DERIVED_AHEAD_NS,
        reason="a progress mark would let others decide too early",
    )  # fmt: skip
    yield from _times(topic, "onset_at", ahead_ns=MAX_DERIVED_AHEAD_NS)
    # A progress mark names no path.
    yield from _ids(topic, "anomaly_id", "path_id", chars=MAX_NAME_CHARS, least=0)
    yield from _ids(topic, "src", "dst", "agent_id", "detector", "unit", least=0)
    yield from _numbers(topic, 0, 65_535, _FLOW, "flow")
    yield from _numbers(topic, -MAX_DOUBLE, MAX_DOUBLE, "finite", "value", "reference", "threshold")
    yield from _numbers(
        topic, 0, MAX_COUNT, _TOTAL,
        "sent", "lost", "prober_late", "prober_answers", "responder_late", "responder_answers",
    )  # fmt: skip
    yield from _numbers(
        topic, 0, MAX_RTT_NS, _CLOCK,
        "rtt_p50_ns", "baseline_p50_ns", "host_delay_ns", "host_delay_baseline_ns",
    )  # fmt: skip


def _rank_of_task(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "rank_id", chars=MAX_NAME_CHARS)
    yield from _ids(topic, "task_id", "host_id")
    yield from _numbers(topic, 0, MAX_RANK, _RANK, "rank")
    yield from _times(topic, "taken_at", ahead_ns=None, reason=_OWN_CLOCK)
    yield from _texts(topic, "missing_reason")


def _collective_comm(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "communicator_id", chars=MAX_NAME_CHARS)
    yield from _ids(topic, "task_id")
    yield from _ids(topic, "communicator", chars=MAX_NAME_CHARS, least=0)
    yield from _texts(topic, "description", "members_missing_reason")
    yield _array(topic, "ranks", 65_536)
    yield from _numbers(topic, 0, MAX_RANK, _RANK, "ranks.")
    yield from _times(topic, "updated_at", ahead_ns=None, reason=_OWN_CLOCK)


def _collective_op(topic: str) -> Iterator[Bound]:
    yield from _rank_of_task(topic)
    yield from _numbers(topic, 1, MAX_RANK + 1, _RANK, "world_size")
    yield _array(topic, "endpoint_ids", 64)
    yield from _ids(topic, "endpoint_ids.")
    yield Bound(
        topic=topic,
        field="attempt",
        least=0,
        greatest=MAX_TIME_US,
        reason="the latest attempt counts while it is heard",
    )
    yield from _numbers(topic, 1, 2**32, "numbers of processes", "pid")
    yield from _numbers(topic, 0, MAX_LONG, _TOTAL, "cpu_ns")
    yield from _ids(topic, "library", "format_version", chars=MAX_NAME_CHARS, least=0)
    yield from _times(topic, "recorded_at", ahead_ns=None, reason=_OWN_CLOCK)
    yield from _numbers(topic, 0, MAX_LONG, _TOTAL, "dropped_before")
    for field in ("communicators", "shapes", "signatures", "frames", "stacks", "operations"):
        yield _array(topic, field, 65_536)
    yield _array(topic, "reasons", 64)
    yield from _ids(topic, "communicators.", chars=MAX_NAME_CHARS, least=0)
    yield _array(topic, "shapes.sizes", 64)
    yield from _ids(topic, "signatures.operation", chars=MAX_NAME_CHARS, least=0)
    for side in ("input_shapes", "output_shapes", "input_dtypes", "output_dtypes"):
        yield _array(topic, f"signatures.{side}", 65_536)
    yield from _ids(topic, "frames.", chars=MAX_NAME_CHARS, least=0)
    yield _array(topic, "stacks.frames", 100)
    yield from _texts(topic, "reasons.")
    yield from _numbers(
        topic, 0, 65_535, "an index",
        "operations.communicator", "operations.signature", "operations.missing_reason",
        "operations.stack",
    )  # fmt: skip
    yield from _numbers(topic, 0, MAX_LONG, _NUMBERED, "operations.record_id")
    yield from _numbers(topic, 0, MAX_RANK, _RANK, "operations.sender", "operations.receiver")
    yield from _times(
        topic, "operations.launched_at", "operations.started_at", "operations.completed_at",
        ahead_ns=None, reason=_OWN_CLOCK,
    )  # fmt: skip


def _collective_flow(topic: str) -> Iterator[Bound]:
    yield from _rank_of_task(topic)
    yield _array(topic, "sockets", 4_096)
    yield from _ids(topic, "sockets.protocol")
    yield from _ids(topic, "sockets.local_address", "sockets.peer_address", chars=MAX_NAME_CHARS)
    # Queue pairs have 24 bits, ports 16.
    yield from _numbers(
        topic, 0, 2**24 - 1, "numbers of queue pairs have 24 bits",
        "sockets.local_port", "sockets.peer_port",
    )  # fmt: skip
    yield from _numbers(topic, 0, MAX_RANK, _RANK, "sockets.peer_rank")
    yield from _numbers(
        topic, 0, MAX_LONG, _TOTAL,
        "sockets.queued_bytes", "sockets.unacked_bytes", "sockets.unread_bytes",
        "sockets.sent_bytes", "sockets.acked_bytes", "sockets.received_bytes",
        "sockets.retransmits", "sockets.rtt_ns", "sockets.backoff", "sockets.stalled_ns",
    )  # fmt: skip


def _collective_hang(topic: str) -> Iterator[Bound]:
    yield from _ids(topic, "hang_id", chars=MAX_NAME_CHARS)
    yield from _ids(topic, "task_id")
    yield from _numbers(topic, 1, MAX_NUMBER, _NUMBERED, "seq")
    yield from _times(
        topic, "event_at", ahead_ns=MAX_DERIVED_AHEAD_NS,
        reason="the localizer would wait for others up to it",
    )  # fmt: skip
    yield from _times(topic, "onset_at", "resolved_at", ahead_ns=MAX_DERIVED_AHEAD_NS)
    yield _array(topic, "ranks", 65_536)
    yield _array(topic, "waiting_ranks", 65_536)
    yield _array(topic, "endpoint_ids", 65_536)
    yield _array(topic, "stuck_flows", 64)
    yield _array(topic, "evidence", 64)
    yield _array(topic, "next_steps", 16)
    yield from _numbers(topic, 0, MAX_RANK, _RANK, "ranks.", "waiting_ranks.")
    yield from _ids(topic, "endpoint_ids.")
    yield from _numbers(topic, 0, MAX_RANK, _RANK, "stuck_flows.src_rank", "stuck_flows.dst_rank")
    yield from _ids(topic, "stuck_flows.src_endpoint_id", "stuck_flows.dst_endpoint_id")
    yield from _numbers(
        topic, 0, MAX_LONG, _TOTAL, "waited_ns", "stuck_flows.unacked_bytes",
        "stuck_flows.stalled_ns",
    )  # fmt: skip
    yield from _ids(topic, "communicator", "operation", chars=MAX_NAME_CHARS, least=0)
    yield from _texts(topic, "summary", "evidence.", "next_steps.")


_ROWS: Final[Mapping[str, Callable[[str], Iterator[Bound]]]] = {
    "probe.round.v1": _probe_round,
    "rnic.counters.v1": _rnic_counters,
    "path.trace.v1": _path_trace,
    "task.v1": _task,
    "endpoint.v1": _endpoint,
    "target.v1": _endpoint,
    "agent.heartbeat.v1": _agent_heartbeat,
    "pinglist.v1": _pinglist,
    "skeleton.v1": _skeleton,
    "topology.v1": _topology,
    "overlay.flows.v1": _overlay_flows,
    "component.state.v1": _component_state,
    "probe.window.v1": _probe_window,
    "anomaly.v1": _anomaly,
    "fault.event.v1": _fault,
    "fault.state.v1": _fault,
    "silence.v1": _silence,
    "incident.note.v1": _note,
    "collective.comm.v1": _collective_comm,
    "collective.op.v1": _collective_op,
    "collective.flow.v1": _collective_flow,
    "collective.hang.v1": _collective_hang,
}


def _in_order(bounds: Iterable[Bound]) -> list[Bound]:
    """Return the rows of a topic: those of an array's items together, behind all others."""
    return sorted(bounds, key=lambda b: b.field.partition(".")[0] if "." in b.field else "")


BOUNDS: Final = tuple(bound for topic, rows in _ROWS.items() for bound in _in_order(rows(topic)))
_BY_FIELD: Final = {(bound.topic, bound.field): bound for bound in BOUNDS}
