"""Records as people and programs read them: one line each."""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from ops.log.entry import Entry
from ops.log.timespan import iso_ms, iso_us
from schemas.codec import Codec, DecodeError
from schemas.kafka.deadletter import ORIGIN_PREFIX
from schemas.topics import ANOMALY, BY_NAME, DLQ_SUFFIX, PROBE_ROUND, Topic
from schemas.units import MS_NS, SECOND_NS, US_NS

PROGRESS: Final = "PROGRESS"
# Said by the line's head already, or the same on every line.
NOT_SHOWN: Final = frozenset({"cluster", "producer_version"})
PREVIEW_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class TailTopic:
    """A topic of the contract, or its dead-letter topic."""

    topic: Topic
    dead_letters: bool

    @property
    def name(self) -> str:
        """Name without prefix."""
        return self.topic.dlq if self.dead_letters else self.topic.name


def find_topic(name: str) -> TailTopic:
    """Return the topic of that name, dead-letter topics included.

    Raises
    ------
    KeyError
        If there is none; the message lists those there are.
    """
    base = name.removesuffix(DLQ_SUFFIX)
    if base not in BY_NAME:
        raise KeyError(
            f"no topic {name!r} in the contract; there are {', '.join(BY_NAME)}, "
            f"each with its {DLQ_SUFFIX}"
        )
    return TailTopic(BY_NAME[base], base != name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A record made ready to be shown.

    `datum` is None for a tombstone, a dead letter and what could not be decoded;
    `error` says why it could not be.
    """

    topic: TailTopic
    entry: Entry
    datum: dict[str, Any] | None
    error: str | None

    @property
    def progress(self) -> bool:
        """Whether it only says how far a partition is decided."""
        return (
            self.topic.topic is ANOMALY
            and self.datum is not None
            and self.datum["kind"] == PROGRESS
        )


def show(topic: TailTopic, entry: Entry, codec: Codec) -> Shown:
    """Decode a record; what cannot be decoded carries its error."""
    datum, error = None, None
    if entry.value is not None and not topic.dead_letters:
        try:
            datum = codec.decode_datum(
                topic.topic, entry.value, partition=entry.partition, offset=entry.offset
            )
        except DecodeError as problem:
            error = problem.reason
    return Shown(topic=topic, entry=entry, datum=datum, error=error)


def as_json(shown: Shown) -> str:
    """Return the record as one line of JSON.

    Times (`*_at`) stay integer microseconds, durations (`*_ns`) nanoseconds, as in
    the schema. Bytes that are no text are given as base64.
    """
    entry = shown.entry
    line: dict[str, Any] = {
        "topic": shown.topic.name,
        "partition": entry.partition,
        "offset": entry.offset,
        "timestamp": None if entry.timestamp_ms is None else iso_ms(entry.timestamp_ms),
        "timestamp_ms": entry.timestamp_ms,
        **_content("key", entry.key),
        "headers": [{"name": k, **_content("value", v)} for k, v in entry.headers],
        "tombstone": entry.value is None,
        "value": shown.datum,
    }
    if shown.topic.dead_letters:
        line["origin"] = origin(entry)
    if shown.error is not None:
        line["error"] = shown.error
    if shown.datum is None and entry.value is not None:
        line["value_base64"] = base64.b64encode(entry.value).decode()
    try:
        return json.dumps(line, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(line), ensure_ascii=False)


def _without_nan(node: Any) -> Any:
    """Return a copy in which numbers that JSON does not have are text."""
    if isinstance(node, dict):
        return {k: _without_nan(v) for k, v in node.items()}
    if isinstance(node, list):
        return [_without_nan(v) for v in node]
    return str(node) if isinstance(node, float) and not math.isfinite(node) else node


def _content(name: str, raw: bytes | None) -> dict[str, str | None]:
    if raw is None:
        return {name: None}
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}


def as_line(shown: Shown) -> str:
    """Return the record as one line for people; nothing in it can move the terminal's cursor."""
    entry = shown.entry
    at = "-" * 24 if entry.timestamp_ms is None else iso_ms(entry.timestamp_ms)
    key = "-" if entry.key is None else entry.key.decode(errors="backslashreplace")
    return _printable(f"{at} {entry.partition}@{entry.offset} {key}  {_body(shown)}")


def _body(shown: Shown) -> str:
    value = shown.entry.value
    if shown.topic.dead_letters:
        return _dead_letter(shown.entry)
    if value is None:
        return "(tombstone)"
    if shown.datum is None:
        return f"(undecodable: {shown.error}) {_preview(value)}"
    special = _SPECIAL.get(shown.topic.name)
    if special is not None:
        return special(shown.datum)
    key = (shown.entry.key or b"").decode(errors="replace")
    return " ".join(
        f"{name}={_scalar(name, field)}"
        for name, field in shown.datum.items()
        if name not in NOT_SHOWN and field is not None and field not in ("", key)
    )


def origin(entry: Entry) -> dict[str, str]:
    """Return where a dead letter comes from and why, from its headers."""
    return {
        name.removeprefix(ORIGIN_PREFIX): (content or b"").decode(errors="replace")
        for name, content in entry.headers
        if name.startswith(ORIGIN_PREFIX)
    }


def _dead_letter(entry: Entry) -> str:
    found = origin(entry)
    if not found:
        return f"(no origin headers) {_preview(entry.value or b'')}"
    place = f"{found.get('topic', '?')}[{found.get('partition', '?')}]@{found.get('offset', '?')}"
    return (
        f"from {place} by {found.get('connector.name', '?')}: "
        f"{found.get('exception.message', '?')} {_preview(entry.value or b'')}"
    )


def _preview(raw: bytes) -> str:
    more = "…" if len(raw) > PREVIEW_BYTES else ""
    return f"[{len(raw)} bytes {raw[:PREVIEW_BYTES].hex()}{more}]"


def _scalar(name: str, field: Any) -> str:
    if isinstance(field, list):
        nested = bool(field) and isinstance(field[0], dict)
        return f"[{len(field) if nested else ','.join(map(str, field))}]"
    if isinstance(field, bool):
        return "yes" if field else "no"
    if isinstance(field, int) and name.endswith("_at"):
        return iso_us(field)
    if isinstance(field, int) and name.endswith("_ns"):
        return duration(field)
    return f"{field:.6g}" if isinstance(field, float) else str(field)


def duration(ns: int) -> str:
    """Return nanoseconds in the unit that people would choose.

    >>> duration(16_183), duration(1_500_000_000)
    ('16.2us', '1.5s')
    """
    for unit_ns, unit in ((SECOND_NS, "s"), (MS_NS, "ms"), (US_NS, "us")):
        if abs(ns) >= unit_ns:
            return f"{ns / unit_ns:.3g}{unit}"
    return f"{ns}ns"


def _round_body(datum: dict[str, Any]) -> str:
    results = datum["results"]
    statuses = Counter(str(r["status"]) for r in results)
    rtts_ns = [r["rtt_ns"] for r in results if r["rtt_ns"] is not None]
    middle = f" rtt_p50={duration(int(median(rtts_ns)))}" if rtts_ns else ""
    counts = " ".join(f"{name}={n}" for name, n in statuses.most_common())
    bad = sorted({f"{r['src']}>{r['dst']}#{r['flow']}" for r in results if r["status"] != "OK"})
    lost = f" lost: {', '.join(bad[:3])}{' …' if len(bad) > 3 else ''}" if bad else ""
    return f"round={datum['round_seq']} results={len(results)} {counts}{middle}{lost}"


def _fault_body(datum: dict[str, Any]) -> str:
    candidates = ""
    if not datum["decided"]:
        names = (f"{c['component_id']}({c['score']:.2f})" for c in datum["candidates"])
        candidates = " undecided: " + ", ".join(names)
    return (
        f"#{datum['seq']} {datum['state']} {datum['severity']} {datum['fault_kind']} "
        f"{datum['component_kind']} {datum['component_id']} "
        f"confidence={datum['confidence']:.2f} bad={datum['bad_paths']} "
        f"good={datum['good_paths']} event_at={iso_us(datum['event_at'])}{candidates}{_hit(datum)} "
        f"- {datum['summary']}"
    )


def _hit(datum: dict[str, Any]) -> str:
    """Return which ranks of jobs a fault stops, and which faults it goes with."""
    ranks, related = datum["ranks"], datum["related_fault_ids"]
    some = f"{', '.join(ranks[:3])}{' …' if len(ranks) > 3 else ''}"
    stops = f" stops {len(ranks)} ranks: {some}" if ranks else ""
    return stops + (f" with {', '.join(related)}" if related else "")


def _hang_body(datum: dict[str, Any]) -> str:
    return (
        f"#{datum['seq']} {datum['state']} {datum['hang_class']} {datum['certainty'].lower()} "
        f"ranks={','.join(map(str, datum['ranks'][:8]))} waiting={len(datum['waiting_ranks'])} "
        f"waited={duration(datum['waited_ns'])} event_at={iso_us(datum['event_at'])} "
        f"- {datum['summary']}"
    )


_SPECIAL: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    PROBE_ROUND.name: _round_body,
    "fault.event.v1": _fault_body,
    "fault.state.v1": _fault_body,
    "collective.hang.v1": _hang_body,
}


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
