"""What some agents of a cluster read from Kafka: a process with the readers of several agents.

`python -m ops.bench.cluster.readers --bootstrap … --hosts 1,2,…` prints JSON, one event a line:
`ready` when all have read what stands, `going` each second with what was read so far, and `active`
for each target that became active. Readers, inboxes and followers are those of the real agent, and
are asked as often as it asks them; nothing is probed.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from arena.world.topology import agent_id, endpoint_id
from ops.bench.cluster.shape import CLUSTER, RAILS
from probers.agent import KAFKA_EVERY_NS
from probers.clock import SystemClock
from probers.lists.consumer import TopicReader
from probers.lists.follower import PingListFollower
from probers.lists.inbox import Inbox
from probers.lists.registration import Registration
from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings, settings_from_table
from schemas.process.eventlog import EventLog
from schemas.records import Endpoint
from schemas.units import SECOND_NS

FLOWS: Final = 4
# librdkafka counts the bytes that come over its connections. What it tells has a megabyte where
# topics have thousands of partitions: it is told seldom, and only the total is looked for.
STATISTICS_S: Final = 10
READ_BYTES: Final = re.compile(r'"rx_bytes":\s*(\d+)')
UP: Final = re.compile(r'"state":\s*"UP"')


class Reader:
    """One agent's reading.

    Attributes
    ----------
    read_bytes : payload of all its connections, in bytes, `STATISTICS_S` ago at most
    connections : of its client that are up
    """

    def __init__(self, settings: KafkaSettings, agent_id: str, endpoints: frozenset[str]) -> None:
        clock, log = SystemClock(), EventLog("reader")
        counted: Any = {
            "stats_cb": self._count, "statistics.interval.ms": STATISTICS_S * 1_000,
        }  # fmt: skip
        self.read_bytes = self.connections = 0
        self._registered_ns: dict[str, int] = {}
        self._active: frozenset[str] = frozenset()
        self._reader = TopicReader(
            replace(settings, options=counted), clock, (topics.PINGLIST, topics.TARGET),
            others=(topics.ENDPOINT,), client_id=agent_id, log=log,
        )  # fmt: skip
        self._follower = PingListFollower(
            cluster=settings.cluster, agent_id=agent_id, endpoints=endpoints, max_flows=FLOWS
        )
        registration = Registration(
            agent_id=agent_id, cluster=settings.cluster, started=clock.now()
        )
        self._inbox = Inbox(
            agent_id=agent_id, reader=self._reader, codec=Codec(), clock=clock,
            follower=self._follower, registration=registration, dead_letters=self, log=log,
            observer=self,
        )  # fmt: skip

    @property
    def ready(self) -> bool:
        """Whether it has read what stands."""
        return self._reader.read_to_end

    @property
    def flows(self) -> int:
        """5-tuples that it would probe."""
        return len(self._follower.flows())

    def poll(self) -> list[int]:
        """Read what has come; return when the targets registered that have become active, ns."""
        self._inbox.poll()
        active = frozenset(flow.dst for flow in self._follower.flows())
        began, self._active = active - self._active, active
        return [self._registered_ns[name] for name in sorted(began)]

    def registered(self, endpoint: Endpoint) -> None:
        """Note when an endpoint registered."""
        self._registered_ns[endpoint.endpoint_id] = endpoint.registered_at * 1_000

    def left(self, endpoint_id: str) -> None:
        """Know nothing of those that have left."""

    def dead_letter(self, error: DecodeError, **_: Any) -> None:
        """End: nothing here is wrong."""
        raise error

    def _count(self, told: str) -> None:
        found = READ_BYTES.search(told)
        self.read_bytes = 0 if found is None else int(found[1])
        self.connections = len(UP.findall(told))


def follow(readers: Sequence[Reader]) -> None:
    """Let the agents read until the process is ended."""
    ready, told_s = False, 0.0
    while True:
        began = time.monotonic()
        for reader in readers:
            now_ns = time.time_ns()
            waited = [(now_ns - since_ns) / SECOND_NS for since_ns in reader.poll()]
            if waited and ready:
                print_event("active", waited_s=waited)
        if not ready and all(reader.ready for reader in readers):
            ready = True
            print_event("ready")
        if began >= told_s + 1:
            told_s = began
            print_event(
                "going", at_s=time.time(), cpu_s=time.process_time(),
                read=[r.read_bytes for r in readers], flows=[r.flows for r in readers],
                connections=max(r.connections for r in readers),
            )  # fmt: skip
        time.sleep(max(0.0, KAFKA_EVERY_NS / SECOND_NS - (time.monotonic() - began)))


def print_event(event: str, **more: Any) -> None:
    """Print an event as a line of JSON."""
    print(json.dumps({"event": event, **more}), flush=True)


def main() -> int:
    """Be this process."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.cluster.readers")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--hosts", required=True, type=lambda text: list(map(int, text.split(","))))
    options = parser.parse_args()
    settings = settings_from_table(options.bootstrap, {"cluster": CLUSTER})
    follow(
        [
            Reader(
                settings,
                agent_id(host),
                frozenset(endpoint_id(host, rail) for rail in range(RAILS)),
            )
            for host in options.hosts
        ]
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
