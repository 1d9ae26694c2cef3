"""The pure core alone: what a worker does with messages, without the Kafka around it.

`python -m ops.bench.throughput_core` takes a recording in memory through the pure core, alone in
its process: decode, windows, all detectors; no Kafka. It prints one JSON object a run.
"""

import argparse
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from confluent_kafka import Message

from ops.bench.load import CLUSTER, Load, LoadShape
from ops.murmur2 import partition_of
from schemas.codec import Codec
from streams.config import DetectionConfig
from streams.feed import Feed, warm
from streams.partition import Identity, PartitionMachine

# As a worker of two holds of four.
PARTITIONS: Final = 2
# Of a worker's batch, the part that is one partition's.
BATCH: Final = 1_000
START_US: Final = 1_790_000_000 * 10**6


class Made(NamedTuple):
    """A message that no broker sent."""

    raw: bytes
    number: int

    def value(self) -> bytes:
        """Return its bytes."""
        return self.raw

    def offset(self) -> int:
        """Return its place in the log."""
        return self.number


def recording(shape: LoadShape, intervals: int) -> tuple[list[list[bytes]], int]:
    """Return the values of each partition in order, and the number of results."""
    logs: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    results = 0
    for sent in Load(shape).rounds(intervals, START_US):
        logs[partition_of(sent.key, PARTITIONS)].append(sent.value)
        results += sent.results
    return logs, results


def judge(logs: Sequence[Sequence[bytes]]) -> Counter[str]:
    """Take the logs through fresh machines, in batches as workers do; return what was counted."""
    counts: Counter[str] = Counter()
    for partition, log in enumerate(logs):
        identity = Identity(CLUSTER, partition)
        machine = PartitionMachine(DetectionConfig(), identity, publish_windows=False)
        feed = Feed(machine, Codec())
        for first in range(0, len(log), BATCH):
            batch = [Made(v, first + n) for n, v in enumerate(log[first : first + BATCH])]
            for taken in feed.take(cast(list[Message], batch)):
                if taken.refused is not None:
                    counts[taken.refused.counter] += 1
        counts.update(machine.counts)
    return counts


def main() -> int:
    """Run it some times."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.throughput_core")
    parser.add_argument("--shape", type=LoadShape.parse, default=LoadShape())
    parser.add_argument("--intervals", type=int, required=True)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    warm(Codec())
    logs, results = recording(options.shape, options.intervals)
    for _ in range(options.runs):
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        counts = judge(logs)
        run = {
            "results": results,
            "wall_s": time.perf_counter() - wall_s,
            "cpu_s": time.process_time() - cpu_s,
            "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "counts": counts,
        }
        print(json.dumps(run), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
