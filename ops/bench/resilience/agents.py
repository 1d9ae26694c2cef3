"""A process of agents that publish rounds as the product's agents do, each with its own backlog.

`python -m ops.bench.resilience.agents --bootstrap … --shape … --seconds …` prints one line of JSON
at its end: `rounds` and `results` that the broker has confirmed, `dropped` results for which an
agent had no room, and `waiting` messages that did not arrive.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from ops.bench.rig.load import CLUSTER, Load, LoadShape, Sent
from probers.clock import SystemClock
from probers.publish.publisher import Publisher
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings, settings_from_table
from schemas.process.eventlog import EventLog
from schemas.topics import PROBE_ROUND
from schemas.units import MS_NS, SECOND_NS

# As often as an agent serves its producer, or more.
POLL_S: Final = 0.02
# As an agent has by default (`queue_kbytes`).
QUEUE_BYTES: Final = 768 * 1024
# What waits is published within seconds of the broker's return.
FLUSH_NS: Final = 120 * SECOND_NS


class Agents:
    """The agents of a load, each with the publisher of a real one."""

    def __init__(self, settings: KafkaSettings, shape: LoadShape) -> None:
        self._codec = Codec()
        self._load = Load(shape, self._codec)
        self._shape = shape
        self._publishers = {
            f"agent-job7-w{n}": Publisher(
                settings, self._codec, SystemClock(), client_id=f"agent-job7-w{n}",
                queue_bytes=QUEUE_BYTES, log=EventLog("agent"),
            )
            for n in range(shape.agents)
        }  # fmt: skip

    def run(self, seconds: float) -> dict[str, Any]:
        """Publish in real time, then what still waits; return the counts of all agents."""
        interval_s = self._shape.interval_ns / SECOND_NS
        begin_s = (time.time() // interval_s + 1) * interval_s
        for number in range(round(seconds / interval_s)):
            self._publish_interval(self._load.interval(number, round(begin_s * 1e6)))
        publishers = self._publishers.values()
        missing = [publisher.close(FLUSH_NS) for publisher in publishers]
        return {
            "rounds": sum(p.counts.rounds_sent for p in publishers),
            "results": sum(p.counts.results_sent for p in publishers),
            "dropped": sum(p.counts.results_dropped for p in publishers),
            "waiting": sum(missing),
        }

    def _publish_interval(self, rounds: Sequence[Sent]) -> None:
        for sent in rounds:
            while time.time() * 1e3 < sent.at_ms:
                for publisher in self._publishers.values():
                    publisher.poll()
                time.sleep(POLL_S)
            record = self._codec.decode(PROBE_ROUND, sent.value)
            agent = sent.key.decode()
            self._publishers[agent].publish_round(agent, record, sent.at_ms * MS_NS)


def main() -> int:
    """Be this process."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.resilience.agents")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", default="")
    parser.add_argument("--shape", type=LoadShape.parse, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    table = {"cluster": CLUSTER, "topic.prefix": options.prefix}
    settings = settings_from_table(options.bootstrap, table)
    print(json.dumps(Agents(settings, options.shape).run(options.seconds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
