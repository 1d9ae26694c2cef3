"""Many agents' connections to one broker: a process that holds them all.

`python -m ops.bench.cluster.connections --bootstrap … --topic … --agents 1000 --seconds 20` sends
a round a second on each of so many connections and prints what came of it, as JSON. A real client
of an agent takes two threads and a per mille of a core, so a machine holds some hundred of them;
here requests are encoded once and only their bytes are sent, so that nearly all of the work is
the broker's. Each request is one produce request with one batch of one round, as an agent sends.
"""

import argparse
import json
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from aiokafka.protocol.produce import ProduceRequest_v7
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from ops.bench.rig.load import Load, LoadShape
from ops.bench.rig.process_cost import cpu_s, memory
from ops.log.reading import LogReader
from probers.publish.publisher import COMPRESSION
from schemas.kafka.connection import settings_from_table
from schemas.kafka.murmur2 import partition_of
from schemas.units import SECOND_NS

# Of `aiokafka.record.default_records`.
CODECS: Final = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# All replicas, as librdkafka asks by default; and how long the broker may take.
ALL_REPLICAS: Final = -1
TIMEOUT_MS: Final = 30_000
# What a request begins with: key, version, correlation id, client id.
HEADER: Final = struct.Struct(">hhih")
LENGTH: Final = struct.Struct(">i")
# A round of eight RNICs with seven targets each: 56 5-tuples.
RNICS: Final = 8
TARGETS: Final = 7
CONNECT_TIMEOUT_S: Final = 10.0
# Sent before what is measured: the JVM compiles, and the broker opens what it writes.
WARM_S: Final = 15
# Answers that are awaited at the end.
DRAIN_S: Final = 10.0


def produce_request(topic: str, partition: int, key: bytes, value: bytes) -> bytes:
    """Return a whole request, with its length, as bytes."""
    batch = DefaultRecordBatchBuilder(2, CODECS[COMPRESSION], False, -1, -1, -1, 1 << 20)
    batch.append(0, time.time_ns() // 10**6, key, value, [])
    request: Any = ProduceRequest_v7(
        None, ALL_REPLICAS, TIMEOUT_MS, [(topic, [(partition, bytes(batch.build()))])]
    )
    client = b"agent"
    head = HEADER.pack(request.API_KEY, request.API_VERSION, 0, len(client)) + client
    body: bytes = head + request.encode()
    return LENGTH.pack(len(body)) + body


def produce_requests(topic: str, partitions: int, agents: int) -> list[bytes]:
    """Return a request with a round for each of so many agents, placed as their keys are."""
    shape = LoadShape(agents=agents, rnics=RNICS, targets=TARGETS, bodies=1, late=0, twice=0)
    return [
        produce_request(topic, partition_of(sent.key, partitions), sent.key, sent.value)
        for sent in Load(shape).interval(0, time.time_ns() // 1_000)
    ]


@dataclass(slots=True)
class Connection:
    """One agent's: what it sends each second, and the times of requests without an answer."""

    socket: socket.socket
    request: bytes
    sent_ns: deque[int] = field(default_factory=deque)
    read: bytearray = field(default_factory=bytearray)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


class Answers:
    """What the broker answered.

    Parameters
    ----------
    topic : whose name stands in each answer

    Attributes
    ----------
    waited_ns : of each answer, since its request was sent
    refused : requests that were answered with an error
    """

    def __init__(self, topic: str) -> None:
        # Length, correlation id, topics, name, partitions, partition; then the error's code, which
        # three numbers of 8 bytes and the throttle's time follow.
        self._error_at = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
        self._bytes = self._error_at + 2 + 8 + 8 + 8 + 4
        self.waited_ns: list[int] = []
        self.refused = 0

    def receive(self, connection: Connection) -> None:
        """Read what has come on a connection.

        Raises
        ------
        ConnectionError
            If the broker closed it.
        """
        found = connection.socket.recv(65_536)
        if not found:
            raise ConnectionError("the broker closed a connection")
        now_ns = time.monotonic_ns()
        read = connection.read
        read += found
        while len(read) >= self._bytes:
            if LENGTH.unpack_from(read)[0] != self._bytes - LENGTH.size:
                raise ConnectionError("an answer of another length than those to produce requests")
            self.refused += read[self._error_at : self._error_at + 2] != b"\0\0"
            self.waited_ns.append(now_ns - connection.sent_ns.popleft())
            del read[: self._bytes]


def connect(bootstrap: str, requests: list[bytes]) -> Iterator[Connection]:
    """Yield a connection for each request."""
    host, _, port = bootstrap.rpartition(":")
    for request in requests:
        one = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Connection(one, request)


def send(connections: list[Connection], topic: str, seconds: int) -> dict[str, Any]:
    """Send a request a second on each connection, one after another; return what came of it."""
    answers, late_ns = Answers(topic), 0
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)

        def receive(timeout_ns: int) -> None:
            for key, _ in selector.select(max(0, timeout_ns) / SECOND_NS):
                answers.receive(key.data)

        begin_ns, used_s = time.monotonic_ns(), time.process_time()
        step_ns = SECOND_NS // len(connections)
        for number in range(seconds * len(connections)):
            due_ns = begin_ns + number * step_ns
            while (left_ns := due_ns - time.monotonic_ns()) > 0:
                receive(left_ns)
            connection = connections[number % len(connections)]
            now_ns = time.monotonic_ns()
            late_ns = max(late_ns, now_ns - due_ns)
            connection.sent_ns.append(now_ns)
            connection.socket.sendall(connection.request)
        took_s = (time.monotonic_ns() - begin_ns) / SECOND_NS
        used_s = time.process_time() - used_s
        until_ns = time.monotonic_ns() + int(DRAIN_S * SECOND_NS)
        sent = seconds * len(connections)
        while len(answers.waited_ns) < sent and time.monotonic_ns() < until_ns:
            receive(SECOND_NS // 10)
    waited_s = np.array(answers.waited_ns) / SECOND_NS
    return {
        "sent": sent, "answered": len(waited_s), "refused": answers.refused, "took_s": took_s,
        "cpu_s": used_s, "late_s": late_ns / SECOND_NS,
        "median_s": float(np.median(waited_s)), "p99_s": float(np.quantile(waited_s, 0.99)),
        "bytes": sum(len(c.request) for c in connections) / len(connections),
    }  # fmt: skip


def main() -> int:
    """Be this process: connect, send, and print what came of it and what it cost the broker."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.cluster.connections")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--broker-pid", required=True, type=int)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--agents", required=True, type=int)
    parser.add_argument("--seconds", required=True, type=int)
    options = parser.parse_args()
    with LogReader(settings_from_table(options.bootstrap, {})) as reader:
        partitions = len(reader.partitions([options.topic]))
    requests = produce_requests(options.topic, partitions, options.agents)
    with ExitStack() as stack:
        connections = [
            stack.enter_context(connection) for connection in connect(options.bootstrap, requests)
        ]
        send(connections, options.topic, WARM_S)
        before_s = cpu_s(options.broker_pid)
        found = send(connections, options.topic, options.seconds)
        found["broker_cpu_s"] = cpu_s(options.broker_pid) - before_s
        found["broker_rss_bytes"] = memory(options.broker_pid).rss_bytes
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
