"""Bytes of a result on the broker's disk and CPU to consume it, by codec."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Figure, Say
from ops.bench.throughput.report import MEGA, row
from ops.bench.throughput.rig import Ends, FilledTopics, Rig
from schemas.kafka.options import consumer_options
from schemas.topics import PROBE_ROUND

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
# Enough for the broker's own bytes to count for nothing; each body once, so that nothing in the
# log is there twice.
SHAPE: Final = LoadShape(agents=1_600, bodies=1, twice=0)
INTERVALS: Final = 1
BAR_BYTES: Final = 8.0
# Of consuming, which is over quickly.
TURNS: Final = 3
TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.2


def log_bytes(data_dir: Path, topic: str) -> int:
    """Return the bytes of a topic's log segments."""
    return sum(f.stat().st_size for f in (data_dir / "logs").glob(f"{topic}-*/*.log"))


def consume_s(filled: FilledTopics, ends: Ends) -> float:
    """Return the CPU seconds of a client that consumes all, and decodes nothing.

    Raises
    ------
    TimeoutError
        If it does not come.
    """
    topic = filled.settings.topic(PROBE_ROUND.name)
    begun_s, deadline = time.process_time(), time.monotonic() + TIMEOUT_S
    consumer = Consumer(consumer_options(filled.settings, "skeletonhunter-bench-wire"))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    left = sum(ends.values())
    while left > 0:
        left -= sum(message.error() is None for message in consumer.consume(left, POLL_S))
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left} messages did not come")
    cpu_s = time.process_time() - begun_s
    consumer.close()
    return cpu_s


def wire(
    rig: Rig,
    runs: int,
    say: Say,
    *,
    shape: LoadShape = SHAPE,
    intervals: int = INTERVALS,
    codecs: Sequence[str] = CODECS,
) -> list[Figure]:
    """Publish the same rounds by each codec: as agents do, one round a batch; and together."""
    del runs  # the same load has the same bytes
    rows: list[Figure] = []
    raw: list[float] = []
    for codec in codecs:
        for alone in (True, False):
            prefix = f"wire-{codec}-{'alone' if alone else 'together'}."
            filled = rig.fill(prefix, shape, intervals, compression=codec, alone=alone)
            raw = [filled.bytes / filled.results]
            topic = filled.settings.topic(PROBE_ROUND.name)
            stored = log_bytes(rig.kafka.data_dir, topic) / filled.results
            how = "one round a batch, as agents send" if alone else "many rounds a batch"
            ends = rig.ends(filled.settings, PROBE_ROUND.name)
            cpu_s = [consume_s(filled, ends) / filled.results * MEGA for _ in range(TURNS)]
            say(f"{codec}, {how}: {stored:.1f} bytes a result on the broker, "
                f"{median(cpu_s):.2f} s of CPU to consume a million")  # fmt: skip
            bar = BAR_BYTES if codec == "zstd" and alone else None
            rows += [
                row(f"on the broker, {codec}, {how}", [stored], "bytes a result", bar, "<="),
                row(f"to consume a million, {codec}, {how}", cpu_s, "s of CPU", sense="<="),
            ]  # fmt: skip
    return [row("a result in Avro, its share of framing and header with it", raw,
                "bytes a result", sense="<="), *rows]  # fmt: skip
