"""What a result costs on the broker in other layouts than the contract's; pure, no broker.

The bytes of a record batch are computed: 61 of its header, and the records compressed by the
codecs that librdkafka uses. Beside them stands what no codec can go below: the entropy of what
is in a result.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any, Final, TypeVar

import cramjam
import numpy as np
import polars as pl

from ops.bench.rig.load import Load, LoadShape
from ops.bench.rig.report import Figure
from ops.bench.throughput.figures import Say, row
from ops.bench.throughput.layout_parts import TIMES, Result
from ops.bench.throughput.round_layouts import LAYOUTS, RECORDS, Layout

Item = TypeVar("Item")
Datum = dict[str, Any]
# Makes the values of messages of some rounds.
Encode = Callable[[Sequence[Datum]], list[bytes]]

START_US: Final = 1_790_000_000 * 10**6
AGENTS: Final = 4
# Rounds of an agent in one batch; it sends as many together only after an outage.
TOGETHER: Final = 50
# Of a Kafka record batch, magic 2, never compressed.
BATCH_BYTES: Final = 61
# librdkafka's default levels are lz4's quickest and zstd's own, 3; cramjam has others.
CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "none": bytes,
    "lz4": lambda data: bytes(cramjam.lz4.compress(data, level=0)),
    "zstd 1": lambda data: bytes(cramjam.zstd.compress(data, level=1)),
    "zstd 3": lambda data: bytes(cramjam.zstd.compress(data, level=3)),
    "zstd 9": lambda data: bytes(cramjam.zstd.compress(data, level=9)),
}
JUDGED: Final = "zstd 3"
# What agents use, and what the bar is for; the rest is told in passing.
SHOWN: Final = ("lz4", JUDGED)


def layouts(runs: int, say: Say, *, agents: int = AGENTS, rounds: int = TOGETHER) -> list[Figure]:
    """Compare layouts by bytes and by CPU; which bytes stay in the end, and of which field."""
    load = Load(LoadShape(agents=agents, bodies=1))
    data = [d for n in range(agents) for d in load.data(n, rounds, START_US)]
    rows = _bounds([d["results"] for d in data], say)
    _left_out(data, say)
    for layout in LAYOUTS:
        rows += _sizes(layout.name, _each(layout), data, rounds, say)
        _cost(layout, data, runs, say)
    for name, encode in FRAMES.items():
        rows += _sizes(name, encode, data, rounds, say)
    return rows


def _each(layout: Layout) -> Encode:
    return lambda data: [layout.encode(datum) for datum in data]


def batches(data: Sequence[Datum], encode: Encode, each: int) -> Iterator[bytes]:
    """Yield the records of each batch of so many rounds, not compressed."""
    for first in range(0, len(data), each):
        some = data[first : first + each]
        key = some[0]["agent_id"].encode()
        yield b"".join(record(n, key, value) for n, value in enumerate(encode(some)))


def record(number: int, key: bytes, value: bytes) -> bytes:
    """Return a record as it stands in a batch of Kafka's: a second after the one before."""
    head = b"\0" + varint(1_000 * number) + varint(number)
    body = head + varint(len(key)) + key + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    """Return a number as Kafka and Avro write it: zigzag, seven bits a byte."""
    left, out = number << 1 ^ number >> 63, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def stored(data: Sequence[Datum], encode: Encode, codec: str, each: int = 1) -> float:
    """Return bytes a result on the broker, so many rounds a batch."""
    pack = CODECS[codec]
    total = sum(BATCH_BYTES + len(pack(found)) for found in batches(data, encode, each))
    return total / _count(data)


def entropy_bits(values: Sequence[int]) -> float:
    """Return the entropy of a number that spreads over many values, by the spacing of a sample.

    Vasicek (1976), with spacings of the square root of the sample's size; a draw within each
    unit makes the whole numbers continuous, and the entropy of both is the same.
    """
    sample = np.sort(np.array(values) + np.random.default_rng(1).random(len(values)))
    apart = math.isqrt(len(sample))
    gaps = np.maximum(sample[apart:] - sample[:-apart], np.finfo(np.float64).tiny)
    return float(np.mean(np.log2((len(sample) + 1) / apart * gaps)))


def _bounds(rounds: Sequence[Sequence[Result]], say: Say) -> list[Figure]:
    bits = {
        name: entropy_bits([r[name] for rs in rounds for r in rs if r[name] is not None])
        for name in TIMES
    }
    offsets = [[r["sent_offset_ns"] for r in rs] for rs in rounds]
    bits["sent_offset_ns"] = entropy_bits([int(g) for o in offsets for g in np.diff(o)])
    # Which of the round's 5-tuples comes next: their names stand in each message once at least.
    orders = statistics.fmean(math.lgamma(len(o) + 1) / len(o) for o in offsets)
    bits["the order of the 5-tuples"] = orders / math.log(2)
    for name, found in bits.items():
        say(f"entropy of {name}: {found:.1f} bits a result")
    total = sum(bits.values()) / 8
    return [row("entropy of what a result says", [total], "bytes a result", sense="<=")]


def _left_out(data: Sequence[Datum], say: Say) -> None:
    """Tell what the contract's records take without a field."""
    nothing: Datum = {"src": "", "dst": "", "sent_offset_ns": 0, **dict.fromkeys(TIMES)}
    for names in (*((name,) for name in nothing), ("src", "dst"), TIMES, tuple(nothing)):
        gone = {name: nothing[name] for name in names}
        less = [{**d, "results": [{**r, **gone} for r in d["results"]]} for d in data]
        size = stored(less, _each(RECORDS), JUDGED)
        say(f"{RECORDS.name} without {', '.join(names)}: {size:.1f} bytes a result, {JUDGED}")


def _sizes(name: str, encode: Encode, data: Sequence[Datum], rounds: int, say: Say) -> list[Figure]:
    found = {
        (codec, each): stored(data, encode, codec, each) for codec in CODECS for each in (1, rounds)
    }
    for each in (1, rounds):
        told = ", ".join(f"{codec} {found[codec, each]:.1f}" for codec in CODECS)
        say(f"{name}, {each} a batch: {told}")
    return [
        row(f"layout {name}: {codec}, one round a batch", [found[codec, 1]], "bytes a result",
            sense="<=")
        for codec in SHOWN
    ]  # fmt: skip


def _cost(layout: Layout, data: Sequence[Datum], runs: int, say: Say) -> None:
    values = [layout.encode(datum) for datum in data]
    encode = [_us(layout.encode, data) for _ in range(runs)]
    decode = [_us(layout.decode, values) for _ in range(runs)]
    say(f"{layout.name}: {statistics.median(encode):.0f} µs to encode a round, "
        f"{statistics.median(decode):.0f} to decode")  # fmt: skip


def _us(run: Callable[[Item], object], items: Sequence[Item]) -> float:
    started = time.process_time()
    for item in items:
        run(item)
    return (time.process_time() - started) / len(items) * 1e6


def _frame(data: Sequence[Datum]) -> pl.DataFrame:
    """Return the results of some rounds as a table, the header's fields beside them."""
    head = {"results", "producer_version", "pinglist_version"}
    return pl.DataFrame(
        [{**{k: v for k, v in d.items() if k not in head}, **r} for d in data for r in d["results"]]
    )


def _parquet(data: Sequence[Datum]) -> list[bytes]:
    out = BytesIO()
    _frame(data).write_parquet(out, compression="zstd", compression_level=3)
    return [out.getvalue()]


def _arrow(data: Sequence[Datum]) -> list[bytes]:
    out = BytesIO()
    _frame(data).write_ipc_stream(out)
    return [out.getvalue()]


def _count(data: Sequence[Datum]) -> int:
    return sum(len(d["results"]) for d in data)


FRAMES: Final[dict[str, Encode]] = {
    "Parquet (zstd inside)": _parquet,
    "Arrow IPC stream": _arrow,
}
