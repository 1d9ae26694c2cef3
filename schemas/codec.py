"""Records to message values and back."""

import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any, TypeGuard, cast

from schemas import avro
from schemas.bounds import Violation, violation
from schemas.framing import Framer, SingleObjectFramer
from schemas.record_writer import writer_of
from schemas.topics import Topic


class DecodeError(ValueError):
    """A record that cannot be decoded; names where it stands."""

    def __init__(
        self, reason: str, *, topic: str, partition: int | None, offset: int | None
    ) -> None:
        self.reason = reason
        self.topic = topic
        self.partition = partition
        self.offset = offset
        super().__init__(f"{topic}[{partition}]@{offset}: {reason}")


class OutOfBoundsError(DecodeError):
    """A record with a field that is out of bounds; the message holds field, value and bound."""

    def __init__(
        self, found: Violation, *, topic: str, partition: int | None, offset: int | None
    ) -> None:
        self.found = found
        super().__init__(str(found), topic=topic, partition=partition, offset=offset)


def to_datum(value: Any) -> Any:
    """Return a record as the plain dicts and lists that an Avro writer takes."""
    if isinstance(value, tuple):
        return [to_datum(item) for item in value]
    kind: type = type(value)
    dump = _dumper(kind)
    return value if dump is None else dump(value)


def from_datum(record: type, datum: dict[str, Any]) -> Any:
    """Return the record of that class; symbols of a later version become UNKNOWN."""
    return _builder(record)(datum)


@cache
def _names(record: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(record))


@cache
def _dumper(kind: type) -> Callable[[Any], dict[str, Any]] | None:
    """Return what turns a record of that class into a dict; None: no record.

    An agent encodes 80 results and samples a second; looking at each field's
    value anew costs four times as much.
    """
    if not is_dataclass(kind):
        return None
    names = _names(kind)
    hints = typing.get_type_hints(kind)
    # Avro finds a plain string faster among the symbols.
    enums = tuple(
        (n, {member: str(member.value) for member in hints[n]}) for n in names if _is_enum(hints[n])
    )
    nested = tuple(n for n in names if not _is_enum(hints[n]) and _converter(hints[n]) is not None)
    values_of = attrgetter(*names) if len(names) > 1 else lambda v: (getattr(v, names[0]),)

    def dump(record: Any) -> dict[str, Any]:
        datum = dict(zip(names, values_of(record), strict=True))
        for name, symbols in enums:
            datum[name] = symbols[datum[name]]
        for name in nested:
            datum[name] = to_datum(datum[name])
        return datum

    return dump


@cache
def _builder(record: type) -> Callable[[dict[str, Any]], Any]:
    hints = typing.get_type_hints(record)
    names = _names(record)
    special = tuple((n, c) for n in names if (c := _converter(hints[n])) is not None)

    def build(datum: dict[str, Any]) -> Any:
        # Nearly always these fields and no others: copying takes half as long as choosing.
        plain = len(datum) == len(names)
        values = datum.copy() if plain else {name: datum[name] for name in names}
        for name, conversion in special:
            values[name] = conversion(values[name])
        return record(**values)

    return build


def _is_enum(hint: Any) -> TypeGuard[type[StrEnum]]:
    return isinstance(hint, type) and issubclass(hint, StrEnum)


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    if isinstance(hint, types.UnionType):
        (inner,) = (a for a in typing.get_args(hint) if a is not type(None))
        return _optional(_converter(inner))
    if typing.get_origin(hint) is tuple:
        convert = _converter(typing.get_args(hint)[0])
        return tuple if convert is None else lambda v: tuple(convert(item) for item in v)
    if _is_enum(hint):
        known = {member.value: member for member in hint}
        unknown = known["UNKNOWN"]
        return lambda v: known.get(v, unknown)
    if is_dataclass(hint):
        return _builder(cast(type, hint))
    return None


def _optional(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if convert is None:
        return None
    present = convert
    return lambda v: None if v is None else present(v)


class Codec:
    """Encodes and decodes the values of all topics with one framing.

    Parameters
    ----------
    bounded
        Whether a record with a field out of bounds is an error. Not for tools that keep or show
        what is there.
    """

    def __init__(self, framer: Framer | None = None, *, bounded: bool = True) -> None:
        self._framer: Framer = framer or SingleObjectFramer()
        self._bounded = bounded
        self._headers: dict[str, bytes] = {}

    @property
    def framer(self) -> Framer:
        """How values say which schema wrote them."""
        return self._framer

    def encode(self, topic: Topic, record: Any) -> bytes:
        """Return the framed value of a record of this topic.

        Raises
        ------
        TypeError
            If the record is of another topic's class.
        """
        if not isinstance(record, topic.record):
            raise TypeError(
                f"{topic.name} takes {topic.record.__name__}, not {type(record).__name__}"
            )
        writer = writer_of(topic)
        if writer is not None:
            value = writer.write(self._header(topic), record)
            if value is not None:
                return value
        return self.encode_datum(topic, to_datum(record))

    def encode_datum(self, topic: Topic, datum: dict[str, Any]) -> bytes:
        """Return the framed value of a plain datum."""
        return self._header(topic) + avro.write_datum(avro.current(topic.name), datum)

    def _header(self, topic: Topic) -> bytes:
        header = self._headers.get(topic.name)
        if header is None:
            header = self._headers[topic.name] = self._framer.header(avro.current(topic.name))
        return header

    def decode_datum(
        self,
        topic: Topic,
        value: bytes,
        *,
        partition: int | None = None,
        offset: int | None = None,
        arrival_ns: int | None = None,
    ) -> dict[str, Any]:
        """Return the datum, resolved to the current schema.

        Parameters
        ----------
        arrival_ns
            Timestamp of the Kafka record (`schemas.bounds.arrival_of`); None: event times are not
            compared with it.

        Raises
        ------
        DecodeError
            On an unknown schema, on truncated, trailing or otherwise wrong bytes.
        OutOfBoundsError
            If a field is out of the bounds of `schemas.bounds`.
        """
        try:
            schema, start = self._framer.parse(topic.name, value)
            datum = avro.read_datum(schema, avro.current(topic.name), memoryview(value)[start:])
        except ValueError as error:
            raise DecodeError(
                str(error), topic=topic.name, partition=partition, offset=offset
            ) from error
        found = violation(topic.name, datum, arrival_ns) if self._bounded else None
        if found is not None:
            raise OutOfBoundsError(found, topic=topic.name, partition=partition, offset=offset)
        return datum

    def payload(self, topic: Topic, value: bytes) -> memoryview | None:
        """Return the bytes of the datum for a reader that knows the current schema by heart.

        None where they are of another version, or their frame is wrong: `decode` says what it is.
        """
        try:
            schema, start = self._framer.parse(topic.name, value)
        except ValueError:
            return None
        if schema.fingerprint != avro.current(topic.name).fingerprint:
            return None
        return memoryview(value)[start:]

    def decode(
        self,
        topic: Topic,
        value: bytes,
        *,
        partition: int | None = None,
        offset: int | None = None,
        arrival_ns: int | None = None,
    ) -> Any:
        """Return the record of the topic's class; raises DecodeError as `decode_datum`."""
        datum = self.decode_datum(
            topic, value, partition=partition, offset=offset, arrival_ns=arrival_ns
        )
        return from_datum(topic.record, datum)
