"""The code under test, named in one place: what makes columns of bytes, and what judges them.

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
from typing import Any, Final

from ops.bench.load import CLUSTER, Load, LoadShape
from ops.murmur2 import partition_of
from schemas.codec import Codec
from schemas.topics import PROBE_ROUND
from streams.columns import RoundColumns, round_columns
from streams.config import DetectionConfig
from streams.partition import Identity, PartitionMachine, RefusedRoundError

# As a worker of two holds of four.
PARTITIONS: Final = 2
START_US: Final = 1_790_000_000 * 10**6


class Decoder:
    """Bytes of a message to what the windows take, by the decoder that the workers use."""

    def __init__(self) -> None:
        self._codec = Codec()

    def columns(self, value: bytes) -> tuple[dict[str, Any], RoundColumns]:
        """Return the header and the columns."""
        datum = self._codec.decode_datum(PROBE_ROUND, value)
        return datum, round_columns(datum)

    def count(self, values: Sequence[bytes]) -> int:
        """Decode messages; return how many results they hold."""
        return sum(self.columns(value)[1].count for value in values)


def recording(shape: LoadShape, intervals: int) -> tuple[list[list[bytes]], int]:
    """Return the values of each partition in order, and the number of results."""
    logs: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    results = 0
    for sent in Load(shape).rounds(intervals, START_US):
        logs[partition_of(sent.key, PARTITIONS)].append(sent.value)
        results += sent.results
    return logs, results


def judge(logs: Sequence[Sequence[bytes]]) -> Counter[str]:
    """Take the logs through fresh machines; return what was counted."""
    decoder = Decoder()
    counts: Counter[str] = Counter()
    for partition, log in enumerate(logs):
        identity = Identity(CLUSTER, partition)
        machine = PartitionMachine(DetectionConfig(), identity, publish_windows=False)
        for offset, value in enumerate(log):
            datum, columns = decoder.columns(value)
            try:
                machine.process(datum, offset, columns)
            except RefusedRoundError as error:
                counts[error.counter] += 1
        counts.update(machine.counts)
    return counts


def main() -> int:
    """Run it some times."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.throughput_core")
    parser.add_argument("--shape", type=LoadShape.parse, default=LoadShape())
    parser.add_argument("--intervals", type=int, required=True)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
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
