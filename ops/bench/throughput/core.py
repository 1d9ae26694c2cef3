"""The throughput of the pure core: decode, windows, all detectors; no Kafka.

`python -m ops.bench.throughput.core` feeds a recording from memory to the core, in a process of
its own, and prints one JSON object for each run. Beside it, in turns, the kernel alone that reads
the same bytes and puts what was measured at the places of the 5-tuples.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from ops.bench.rig import process_cost
from ops.bench.rig.load import CLUSTER, Load, LoadShape
from ops.bench.throughput.decoder import Decoder
from schemas.codec import Codec
from schemas.kafka.murmur2 import partition_of
from streams.config import DetectionConfig
from streams.core.feed import Feed, LogMessage, window_bytes
from streams.core.machine import PartitionMachine
from streams.core.partition import Identity
from streams.core.window_bytes import WindowBytes
from streams.core.window_records import WindowBatch
from streams.edge.engine import WINDOWS_AT_ONCE
from streams.warm import warm

# As a worker of two holds of four.
PARTITIONS: Final = 2
# Of a worker's batch, the part that is one partition's.
BATCH: Final = 1_000
# Intervals that are not timed: in the first ones every 5-tuple is new, which costs a hundred times
# what it does later, and one window closes.
WARM: Final = 60
# A window begins with it.
START_US: Final = 1_790_000_010 * 10**6


Logs = list[list[bytes]]
# By partition, batches of messages.
Batches = list[list[list[LogMessage]]]


def recording(shape: LoadShape, intervals: Sequence[int]) -> list[tuple[Logs, int]]:
    """Return stretches of so many intervals: values by partition, and the number of results."""
    load = Load(shape)
    stretches: list[tuple[Logs, int]] = []
    number = 0
    for count in intervals:
        logs: Logs = [[] for _ in range(PARTITIONS)]
        results = sum(append_interval(load, each, logs) for each in range(number, number + count))
        number += count
        stretches.append((logs, results))
    return stretches


def append_interval(load: Load, interval: int, logs: Logs) -> int:
    """Put an interval's rounds behind those of their partitions; return their results."""
    sent = load.interval(interval, START_US)
    for each in sent:
        logs[partition_of(each.key, PARTITIONS)].append(each.value)
    return sum(each.results for each in sent)


class Core:
    """What a worker has of its partitions, from their beginning.

    Parameters
    ----------
    publish
        Whether windows are encoded, as for their topic; nobody gets them.
    """

    def __init__(self, *, publish: bool = False) -> None:
        self._machines = [
            PartitionMachine(DetectionConfig(), Identity(CLUSTER, p), publish_windows=False)
            for p in range(PARTITIONS)
        ]
        if publish:
            for machine in self._machines:
                machine.window_sink = partial(_encode, window_bytes(Codec(), machine))
        self._feeds = [Feed(machine, Codec()) for machine in self._machines]
        self._offsets = [0] * PARTITIONS

    def consume(self, logs: Logs) -> Counter[str]:
        """Take what comes next, in batches as workers do; return what was counted."""
        return self.take(self.batches(logs))

    def batches(self, logs: Logs) -> Batches:
        """Return what comes next as a worker's consumer hands it over: messages with offsets."""
        batches: Batches = []
        for partition, log in enumerate(logs):
            offset = self._offsets[partition]
            messages = [LogMessage(value, offset + n) for n, value in enumerate(log)]
            self._offsets[partition] += len(log)
            batches.append([messages[n : n + BATCH] for n in range(0, len(log), BATCH)])
        return batches

    def take(self, batches: Batches) -> Counter[str]:
        """Take the batches of each partition; return what was counted."""
        counts: Counter[str] = Counter()
        for machine, feed, own in zip(self._machines, self._feeds, batches, strict=True):
            machine.counts.clear()
            for batch in own:
                for taken in feed.process(batch):
                    if taken.refused is not None:
                        counts[taken.refused.counter] += 1
            counts.update(machine.counts)
        return counts


def read_and_put(decoder: Decoder, logs: Logs) -> int:
    """Do only what any core has to, in the same batches; return how many results there were."""
    return sum(
        decoder.count(log[first : first + BATCH])
        for log in logs
        for first in range(0, len(log), BATCH)
    )


def _encode(encoder: WindowBytes, windows: WindowBatch) -> None:
    for part in windows.parts(WINDOWS_AT_ONCE):
        encoder.encode(part)


def main() -> int:
    """Run it some times."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.throughput.core")
    parser.add_argument("--shape", type=LoadShape.parse, default=LoadShape())
    parser.add_argument("--intervals", type=int, required=True)
    parser.add_argument("--warm", type=int, default=WARM)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    warm(Codec())
    (before, _), (logs, results) = recording(options.shape, (options.warm, options.intervals))
    for _ in range(options.runs):
        decoder = Decoder(flows=options.shape.paths)
        read_and_put(decoder, before)
        begin_s = time.process_time()
        put = read_and_put(decoder, logs)
        bare_s = time.process_time() - begin_s
        core = Core()
        core.consume(before)
        batches = core.batches(logs)
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        counts = core.take(batches)
        run = {
            "results": results,
            "bare_hz": put / bare_s,
            "wall_s": time.perf_counter() - wall_s,
            "cpu_s": time.process_time() - cpu_s,
            "rss_bytes": process_cost.memory(os.getpid()).peak_bytes,
            "counts": counts,
        }
        print(json.dumps(run), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
