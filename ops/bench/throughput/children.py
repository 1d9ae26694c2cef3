"""Processes of the throughput benchmark beside the workers: they publish loads, or read them.

`python -m ops.bench.throughput.children fill|pace|fill-probes|bare|source …`: each but `source`
prints one JSON object when it ends. They are processes of their own, so that the CPU time of each
can be measured and none shares an interpreter with what is measured.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final
from unittest.mock import patch

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ops.bench.rig import process_cost
from ops.bench.rig.load import CLUSTER, Load, LoadShape, Sent
from ops.bench.rig.publisher import Publisher
from ops.bench.throughput.peer_windows import TOPIC, encode
from schemas.codec import Codec
from schemas.ids import path_id
from schemas.kafka.connection import KafkaSettings, settings_from_table
from schemas.kafka.options import consumer_options
from schemas.process.eventlog import setup_logging
from schemas.topics import PROBE_ROUND
from streams.edge.lookback import QUEUE_BACKOFF

BATCH: Final = 2_000
POLL_S: Final = 0.2
# No message for so long, and the end is not reached: something hangs.
SILENCE_S: Final = 30.0
# A slot of a paced load: what is due in it leaves at once.
SLOT_S: Final = 0.01


class Filler:
    """Publishes rounds."""

    def __init__(self, settings: KafkaSettings, compression: str, *, alone: bool = False) -> None:
        options: dict[str, Any] = {"compression.type": compression}
        if alone:
            # An agent has one round at a time: its batches hold one message.
            options["batch.num.messages"] = 1
        self.publisher = Publisher(settings, **options)
        self._results = 0

    def publish(self, sent: Sent) -> None:
        """Queue a round; waits while the queue is full."""
        self.publisher.publish(PROBE_ROUND.name, sent.key, sent.value, sent.at_ms)
        self._results += sent.results

    def finish(self) -> dict[str, Any]:
        """Wait until the broker has all; return what was published."""
        self.publisher.finish()
        return {**self.publisher.counts, "results": self._results}


def fill(options: argparse.Namespace) -> dict[str, Any]:
    """Publish some intervals as fast as it goes."""
    load = Load(options.shape)
    filler = Filler(_settings(options), options.compression, alone=options.alone)
    started = time.monotonic()
    for number in range(options.first, options.first + options.intervals):
        for sent in load.interval(number, options.start_us):
            filler.publish(sent)
    found = filler.finish()
    return {**found, "seconds": time.monotonic() - started, "cpu_s": time.process_time()}


def pace(options: argparse.Namespace) -> dict[str, Any]:
    """Publish rounds when they begin; tell which 5-tuples were cut off in which round, and when.

    A round leaves at its Kafka timestamp: how long an agent collects results is not in it.
    """
    load = Load(options.shape)
    filler = Filler(_settings(options), options.compression)
    interval_s = options.shape.interval_ns / 1e9
    # Begins on a whole interval, once the load is made.
    begin_s = (time.time() // interval_s + 2) * interval_s
    cuts: list[tuple[str, str, int, int]] = []
    behind_s = 0.0
    for number in range(options.intervals):
        for slot_s, slot in _slots(load.interval(number, int(begin_s * 1e6))):
            wait_s = slot_s + SLOT_S - time.time()
            if wait_s > 0:
                filler.publisher.serve()
                time.sleep(wait_s)
            behind_s = max(behind_s, -wait_s)
            for sent in slot:
                filler.publish(sent)
                if sent.cut is not None:
                    cuts.append((*sent.cut, sent.at_ms, int(time.time() * 1e3)))
    found = filler.finish()
    return {**found, "begin_s": begin_s, "behind_s": behind_s, "cuts": cuts}


def _slots(interval: Sequence[Sent]) -> Iterator[tuple[float, list[Sent]]]:
    """Yield what is due together, with when it begins to be."""
    due: list[Sent] = []
    slot = 0
    # A late round leaves when it comes, with those that are on time.
    for sent in interval:
        at = max(slot, int(sent.at_ms / 1000 / SLOT_S))
        if at > slot and due:
            yield slot * SLOT_S, due
            due = []
        slot = at
        due.append(sent)
    if due:
        yield slot * SLOT_S, due


def bare(options: argparse.Namespace) -> dict[str, Any]:
    """Only consume and decode: what any program that reads these rounds must do at least."""
    # What is measured is imported here alone: fillers need not wait for it.
    from ops.bench.throughput.decoder import Decoder  # noqa: PLC0415

    settings, decoder = _settings(options), Decoder()
    topic = settings.topic(PROBE_ROUND.name)
    consumer = Consumer(
        consumer_options(settings, "skeletonhunter-bench-bare", defaults=QUEUE_BACKOFF)
    )
    places = [TopicPartition(topic, p, 0) for p in options.partitions]
    left = sum(consumer.get_watermark_offsets(place, timeout=30.0)[1] for place in places)
    while time.time() < options.go_s:
        time.sleep(0.001)
    consumer.assign(places)
    begin_s, cpu_s, results, messages = time.time(), time.process_time(), 0, 0
    end_s = begin_s
    while messages < left:
        values = [v for m in consumer.consume(BATCH, POLL_S) if (v := _value(m)) is not None]
        results += decoder.count(values)
        messages += len(values)
        now = time.time()
        if values:
            end_s = now
        elif now - end_s > SILENCE_S:
            raise RuntimeError(f"{left - messages} messages did not come")
        if now - begin_s > options.most_s:
            break
    cpu_s = time.process_time() - cpu_s
    consumer.close()
    return {
        "messages": messages, "results": results, "begin_s": begin_s, "end_s": end_s,
        "cpu_s": cpu_s, "rss_bytes": process_cost.memory(os.getpid()).peak_bytes,
    }  # fmt: skip


def _value(message: Message) -> bytes | None:
    error = message.error()
    if error is not None:
        if error.retriable() or error.code() == KafkaError._PARTITION_EOF:
            return None
        raise RuntimeError(error.str())
    return message.value()


def _settings(options: argparse.Namespace) -> KafkaSettings:
    table = {"cluster": CLUSTER, "topic.prefix": options.prefix}
    return settings_from_table(options.bootstrap, table)


def fill_probes(options: argparse.Namespace) -> dict[str, Any]:
    """Publish the results of a load one by one, keyed by path: the topic of the peers."""
    publisher = Publisher(_settings(options), **{"linger.ms": 20})
    codec = Codec()
    start_us = int(time.time() * 1e6) - options.intervals * options.shape.interval_ns // 1000
    for sent in Load(options.shape).rounds(options.intervals, start_us):
        datum = codec.decode_datum(PROBE_ROUND, sent.value)
        for result in datum["results"]:
            sent_ns = datum["started_at"] * 1000 + result.pop("sent_offset_ns")
            value = encode({"agent_id": datum["agent_id"], "sent_ns": sent_ns, **result})
            key = path_id(result["src"], result["dst"])
            publisher.publish(TOPIC, key, value, sent_ns // 10**6)
    publisher.finish()
    return {"messages": publisher.counts["messages"]}


def source(options: argparse.Namespace) -> None:
    """Run the worker's batch source, Faust channel and agent until SIGTERM; judge nothing."""
    # Fillers need not wait for the worker's imports.
    from streams import worker  # noqa: PLC0415
    from streams.config import WorkerConfig  # noqa: PLC0415
    from streams.edge.engine import Batch, Engine  # noqa: PLC0415

    class OffsetsOnly(Engine):
        """Accepts batches as the engine does, and only notes their offsets."""

        def _process(self, batch: Batch) -> None:
            for partition, messages in batch.messages.items():
                if partition in self._sessions:
                    session = self._sessions[partition]
                    session.next_offset = int(messages[-1].offset() or 0) + 1
                    # Nothing was sent that would have to be confirmed.
                    point = session.commit_point()
                    if point is not None:
                        point.settle()
            self._moved()
            self.commit_due()

    setup_logging(as_json=True)
    with patch.object(worker, "Engine", OffsetsOnly):
        worker.run_worker(_settings(options), WorkerConfig(group=options.group, commit_s=0.05))


def main() -> int:
    """Run the process that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.throughput.children")
    commands = parser.add_subparsers(required=True)
    for run in (fill, pace, fill_probes, bare, source):
        command = commands.add_parser(run.__name__.replace("_", "-"), help=run.__doc__)
        command.set_defaults(run=run)
        command.add_argument("--bootstrap", required=True)
        command.add_argument("--prefix", default="")
        if run is source:
            command.add_argument("--group", required=True)
        elif run is bare:
            command.add_argument("--partitions", type=int, nargs="+", required=True)
            command.add_argument("--go-s", type=float, default=0.0)
            command.add_argument("--most-s", type=float, default=600.0)
        else:
            command.add_argument("--shape", type=LoadShape.parse, required=True)
            command.add_argument("--intervals", type=int, required=True)
            command.add_argument("--compression", default="lz4")
        if run is fill:
            command.add_argument("--first", type=int, default=0)
            command.add_argument("--start-us", type=int, required=True)
            command.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    printed = options.run(options)
    if printed is not None:
        print(json.dumps(printed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
