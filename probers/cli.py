"""The command line of the agent."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from probers.agent import Agent
from probers.clock import SystemClock
from probers.config.settings import OPTIONS, SECTION, AgentConfig, build_config
from probers.host.netns import located
from probers.publish import kafka_client
from probers.publish.codec import make_codec
from schemas.kafka.connection import KafkaSettings
from schemas.process.command import Command, Flags, Table
from schemas.process.eventlog import EventLog
from schemas.process.signals import call_on_stop
from schemas.topics import AGENT

USAGE: Final = 2
ENVIRONMENT: Final = 3

DESCRIPTION: Final = """\
Run the agent of one container or host.

It answers probes on its RNICs, registers them, follows its own ping list and
probes whom that names, once they have registered. What it measures goes to
Kafka: probe.round.v1, path.trace.v1, rnic.counters.v1, agent.heartbeat.v1; the state of
its RNICs and its host: component.state.v1; with an [agent.overlay] table
overlay.flows.v1 as well (docs/guide/agent.md).
"""
EPILOG: Final = """\
SKELETONHUNTER_AGENT_RNIC takes several RNICs, parted by ';'

  [kafka]
  "bootstrap.servers" = "broker:9092"     # and any other librdkafka setting
  cluster = "prod-1"

  [agent]
  host_id = "node17"
  container_id = "job1-w0"
  task_id = "job1"
  probe_key_file = "/etc/skeletonhunter/probe.key"   # seals probes; the same on all hosts

  [[agent.rnic]]
  rail = 0
  address = "10.0.0.17"
  counters = "/sys/class/infiniband/mlx5_0/ports/1"

example:
  skeletonhunter agent --bootstrap broker:9092 --container-id job1-w0 \\
      --rnic rail=0,address=10.0.0.17,counters=/sys/class/net/eth1/statistics

`skeletonhunter agent health` asks one that runs whether it is ready ([agent] health).

SIGTERM ends it: it says goodbye (tombstones), answers a moment longer, and exits 0.
exit codes: 0 stopped, 2 wrong settings, 3 no schema registry, no Kafka client, or somebody
else has the address of [agent] health
"""


COMMAND: Final = Command(
    prog="skeletonhunter agent",
    section=SECTION,
    description=DESCRIPTION,
    epilog=EPILOG,
    settings=OPTIONS,
)


def parser() -> argparse.ArgumentParser:
    """Return the parser with all options."""
    parser = COMMAND.parser()
    parser.add_argument("--check", action="store_true", help="check the settings and exit")
    parser.add_argument(
        "--rnic",
        action="append",
        metavar="KEY=VALUE,…",
        help="an RNIC: rail, address or the interface that has it, port, counters, component, "
        "endpoint_id, transport (udp, tcp, rdma), gateway, netns, tunnel_address, host_netns; for "
        "rdma also device, whose own address does as well, device_port, "
        "gid_index, traffic_class, service_level, fallback; may be repeated",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent until SIGTERM or SIGINT; return the exit code."""
    return COMMAND.run(arguments, _build, _start, parser())


def _build(flags: Flags, table: Table) -> tuple[AgentConfig, bool]:
    return build_config(flags, os.environ, table), bool(flags["check"])


def _start(settings: KafkaSettings, built: tuple[AgentConfig, bool]) -> int:
    config, only_check = built
    if only_check:
        print(f"{config.id}: settings are good, {len(config.rnics)} RNICs")
        return 0
    return _run(config, settings)


def _run(config: AgentConfig, settings: KafkaSettings) -> int:
    log = EventLog("agent")
    try:
        client = kafka_client.load()
        config = replace(config, rnics=tuple(located(rnic) for rnic in config.rnics))
        agent = Agent(config, settings, make_codec(settings, AGENT), SystemClock())
    except (RuntimeError, ImportError, OSError) as error:
        log.error("agent.cannot_start", reason=str(error))
        return ENVIRONMENT
    except client.KafkaException as error:
        log.error("agent.cannot_start", reason=f"[kafka] {error.args[0].str()}")
        return USAGE
    call_on_stop(agent.stop)
    try:
        agent.run()
    finally:
        agent.close()
    return 0
