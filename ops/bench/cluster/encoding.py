"""Messages of simulated agents as bytes: what stays the same is encoded once. Pure.

A codec takes tens of microseconds for a small record and a millisecond for a round, and a cluster
publishes 12,000 messages a second. Of a heartbeat, a round's header or counters only a time and
some counts differ from second to second: `Form` has the bytes around them. Results of rounds come
from columns. A trace is put together from pieces, most of which it shares with others.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from arena.simulation.agents import TRANSPORT
from arena.world.fabric import address
from ops.bench.cluster.shape import CLUSTER
from schemas import avro
from schemas.codec import Codec
from schemas.columns.arrays import Int64s
from schemas.columns.encoder import encode_records, make_layout
from schemas.columns.pieces import known_number_bytes, number_bytes, text_bytes
from schemas.columns.wire import WORD_BYTES
from schemas.enums import ClockSource, ProbeStatus, TraceCause
from schemas.ids import FlowId, path_id
from schemas.topics import PATH_TRACE, PROBE_ROUND, Topic
from schemas.units import US_NS

# Stand for the numbers of a form while it is made; no record has them otherwise.
MARK: Final = 2**61 + 0x5A5A5A5A5A
NULL: Final = -1
HOP_NS: Final = 5_000
SLOW_PATH_NS: Final = 150_000
# Hops of all paths of the published cluster: a switch or a target, at one distance or two.
HOPS: Final = 2**17


class Form:
    """An encoded record with gaps for whole numbers.

    Parameters
    ----------
    datum
        The record; what it says of the fields in `gaps` does not matter.
    gaps
        Fields of type long, in the order of the schema.
    """

    def __init__(self, codec: Codec, topic: Topic, datum: dict[str, Any], *gaps: str) -> None:
        marks = {name: MARK + place for place, name in enumerate(gaps)}
        rest = codec.encode_datum(topic, datum | marks)
        self._pieces: list[bytes] = []
        for name in gaps:
            piece, mark, rest = rest.partition(number_bytes(marks[name]))
            if not mark:
                raise RuntimeError(f"{name} of {topic.name} is not where it was")
            self._pieces += [piece, b""]
        self._pieces.append(rest)

    def fill(self, *numbers: bytes) -> bytes:
        """Return the record with these numbers, each as Avro writes it."""
        pieces = self._pieces.copy()
        pieces[1::2] = numbers
        return b"".join(pieces)


def _symbols(record: dict[str, Any], enum: str) -> dict[str, int]:
    """Return the symbols of a record's field, and their places in the schema."""
    (field,) = (f for f in record["fields"] if f["name"] == enum)
    return {symbol: place for place, symbol in enumerate(field["type"]["symbols"])}


_ROUND: Final = avro.current(PROBE_ROUND.name)
_ITEM: Final = next(f for f in _ROUND.parsed["fields"] if f["name"] == "results")["type"]["items"]
_LAYOUT: Final = make_layout(replace(_ROUND, parsed=_ITEM), ("src", "dst", "flow"), ())
_TRANSPORT: Final = _symbols(_ITEM, "transport")[TRANSPORT]
_STATUS: Final = _symbols(_ITEM, "status")
_CLOCK: Final = _symbols(_ITEM, "clock")
OK: Final = _STATUS[ProbeStatus.OK.value]
LOST: Final = (_STATUS[ProbeStatus.TIMEOUT.value], _STATUS[ProbeStatus.UNREACHABLE.value])


class FlowNames:
    """The encoded names of some 5-tuples, one after the other."""

    def __init__(self, src: Sequence[str], dst: Sequence[str], flow: Sequence[int]) -> None:
        names = [
            text_bytes(a) + text_bytes(b) + known_number_bytes(n)
            for a, b, n in zip(src, dst, flow, strict=True)
        ]
        self.lengths = np.fromiter(map(len, names), np.int64, len(names))
        self.begins = np.cumsum(self.lengths) - self.lengths
        self.data = np.frombuffer(b"".join(names) + bytes(WORD_BYTES), np.uint8)


def encode_results(names: FlowNames, places: Int64s, status: Int64s, **columns: Int64s) -> bytes:
    """Return results as they stand behind the header of a round.

    Parameters
    ----------
    places : (n,) int64; of each result's 5-tuple among the names
    status : (n,) int64; `OK`, or one of `LOST`: then there is no round trip and no delay
    columns : the other numbers, each (n,) int64
    """
    count, answered = len(places), status == OK
    found: dict[str, Int64s | int] = {
        "sent_offset_ns": columns.pop("sent_offset_ns"), "transport": _TRANSPORT,
        "status": status,
        "clock": np.where(
            answered, _CLOCK[ClockSource.HARDWARE.value], _CLOCK[ClockSource.SOFTWARE.value]
        ),
        **{name: np.where(answered, column, NULL) for name, column in columns.items()},
    }  # fmt: skip
    values = np.empty((len(_LAYOUT.names), count), np.int64)
    for row, name in enumerate(_LAYOUT.names):
        values[row] = found[name]
    lengths = names.lengths[places]
    room = int(lengths.sum()) + count * _LAYOUT.max_bytes + WORD_BYTES
    out, ends = np.empty(room, np.uint8), np.zeros(count, np.int64)
    encode_records(
        names.data, names.begins[places], lengths, _LAYOUT.nulls, values, NULL,
        np.zeros(WORD_BYTES, np.uint8), out, ends,
    )  # fmt: skip
    size = int(ends[-1]) if count else 0
    # One block, and the mark that the array ends.
    return number_bytes(count) + out[:size].tobytes() + b"\0"


_NO: Final = b"\0"
_YES: Final = b"\1"
_NULL: Final = b"\0"
_VALUE: Final = b"\2"
_TRACE: Final = avro.current(PATH_TRACE.name)
_CAUSES: Final = {
    TraceCause(symbol): number_bytes(place)
    for symbol, place in _symbols(_TRACE.parsed, "cause").items()
}
_WHOLE: Final = _YES + _NULL + _NULL
_BROKEN: Final = _NO + _VALUE + text_bytes("no answer") + _NULL


class TraceWriter:
    """Puts traces together, in the order of the schema's fields."""

    def __init__(self, codec: Codec) -> None:
        header = codec.framer.header(_TRACE)
        self._begin = header + text_bytes(CLUSTER)

    def write(
        self,
        flow: FlowId,
        hops: Sequence[int | None],
        *,
        agent: str,
        at_ns: int,
        cause: TraceCause,
    ) -> tuple[bytes, bytes]:
        """Return a trace's key and value.

        Parameters
        ----------
        hops
            Numbers of what answered, see `arena.world.fabric.address`; None: nothing did. Whole
            if the last one did.
        """
        src, dst, number = flow
        path = path_id(src, dst)
        whole = len(hops) > 0 and hops[-1] is not None
        value = b"".join(
            (
                self._begin, text_bytes(path), text_bytes(src), text_bytes(dst),
                known_number_bytes(number), text_bytes(agent), number_bytes(at_ns // US_NS),
                _CAUSES[cause], _WHOLE if whole else _BROKEN,
                known_number_bytes(len(hops)), *map(_hop, range(1, len(hops) + 1), hops), b"\0",
            )
        )  # fmt: skip
        return path.encode(), value


@lru_cache(HOPS)
def _hop(ttl: int, shown: int | None) -> bytes:
    if shown is None:
        return number_bytes(ttl) + _NULL + _NULL
    rtt = _VALUE + number_bytes(SLOW_PATH_NS + HOP_NS * ttl)
    return number_bytes(ttl) + _VALUE + text_bytes(address(shown)) + rtt
