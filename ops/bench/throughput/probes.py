"""Fills the peers' topic: the results of the same load, each a message of its own, keyed by path.

`python -m ops.bench.throughput.probes` prints one JSON object at its end.
"""

import argparse
import json
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

from ops.bench.rig.load import Load, LoadShape
from ops.bench.throughput.peer_windows import TOPIC, encode
from schemas.codec import Codec
from schemas.ids import path_id
from schemas.topics import PROBE_ROUND

FLUSH_S = 120.0


def main() -> int:
    """Fill it."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.throughput.probes")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--shape", type=LoadShape.parse, required=True)
    parser.add_argument("--intervals", type=int, required=True)
    options = parser.parse_args()
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    failed = messages = 0

    def delivered(error: KafkaError | None, _message: Message) -> None:
        nonlocal failed
        failed += error is not None

    codec = Codec()
    start_us = int(time.time() * 1e6) - options.intervals * options.shape.interval_ns // 1000
    for sent in Load(options.shape).rounds(options.intervals, start_us):
        datum = codec.decode_datum(PROBE_ROUND, sent.value)
        for result in datum["results"]:
            sent_ns = datum["started_at"] * 1000 + result.pop("sent_offset_ns")
            value = encode({"agent_id": datum["agent_id"], "sent_ns": sent_ns, **result})
            key = path_id(result["src"], result["dst"])
            while True:
                try:
                    producer.produce(
                        options.prefix + TOPIC, key=key, value=value,
                        timestamp=sent_ns // 10**6, on_delivery=delivered,
                    )  # fmt: skip
                    break
                except BufferError:
                    producer.poll(0.05)
            messages += 1
        producer.poll(0)
    left = producer.flush(FLUSH_S)
    if left or failed:
        raise RuntimeError(f"the load is incomplete: {left} waiting, {failed} failed")
    print(json.dumps({"messages": messages}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
