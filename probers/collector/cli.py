"""The command line of the collector."""

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from probers.clock import SystemClock
from probers.collectives.core import as_documents
from probers.collector.build_plugin import BuildError, build_plugin
from probers.collector.config import SECTION, CollectConfig
from probers.collector.look import Looker
from probers.collector.service import Service
from probers.publish import kafka_client
from probers.publish.codec import make_codec
from probers.publish.publisher import Publisher
from schemas.ids import check_id
from schemas.kafka.connection import KafkaSettings
from schemas.process.command import Command, Flags, Table
from schemas.process.eventlog import EventLog
from schemas.process.settings import ConfigError, build_config, settings_of
from schemas.process.signals import call_on_stop
from schemas.topics import JOB_COLLECTOR

USAGE: Final = 2
ENVIRONMENT: Final = 3

DESCRIPTION: Final = """\
Collect what the ranks of training jobs on this host do, beside the agent.

Every two seconds it looks at each rank: its process (state, CPU time), what PyTorch's
Flight Recorder or our plugin for NCCL wrote of its collectives, and its connections as the
kernel and NCCL count them.
What is new goes to Kafka: collective.op.v1, collective.comm.v1, collective.flow.v1. It never
waits for a rank: one that is stopped is told of like the others (docs/guide/collectives.md).
"""
EPILOG: Final = """\
A process is a rank if its environment says so: RANK and WORLD_SIZE, as torchrun sets them.
Whoever starts the job adds

  SKELETONHUNTER_TASK_ID=job1                  the training job, as in task.v1; or --task-id
  SKELETONHUNTER_ENDPOINT_IDS=job1-w0/r0       endpoints of the rank's container
  TORCH_FR_DUMP_TEMP_FILE=/dev/shm/fr/rank_    where dumps are; or --dumps
  TORCH_FR_BUFFER_SIZE=500                     operations that the recorder keeps

PyTorch writes dumps only when a collective of NCCL times out. To have them written all the
time, also of gloo, the training script imports one file without dependencies, after
torch.distributed was set up:

  import probers.collector.torch_dump as torch_dump; torch_dump.start()

NCCL tells of itself what it does through a plugin, which needs no change of the script:

  skeletonhunter collect --build-plugin /opt/skeletonhunter/nccl
  NCCL_PROFILER_PLUGIN=/opt/skeletonhunter/nccl/libnccl-profiler-skeletonhunter.so

It also follows the log of NCCL's Inspector (NCCL_INSPECTOR_ENABLE=1) and asks NCCL's RAS on the
loopback (--ras-s 0: not). Each rank's operations come from the best source that it has: dump,
plugin, Inspector, RAS.

It needs root, or CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (environments and files of other users'
processes) and CAP_SYS_ADMIN (connections and RAS within containers). Without them it tells what
it can see, and why the rest is missing.

  skeletonhunter collect --once --json           look without Kafka
  skeletonhunter collect --bootstrap broker:9092
  skeletonhunter collect --config /etc/skeletonhunter/skeletonhunter.toml

exit codes: 0 stopped, or looked once; 2 wrong settings; 3 no procfs, no schema registry or no
Kafka client; 5 looked once and found no rank
"""
NO_RANKS: Final = 5
# Of records that nobody publishes.
CLUSTER: Final = "default"

COMMAND: Final = Command(
    prog="skeletonhunter collect",
    section=SECTION,
    description=DESCRIPTION,
    epilog=EPILOG,
    settings=settings_of(CollectConfig),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for."""

    config: CollectConfig
    host_id: str
    once: bool
    as_json: bool
    plugin_folder: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a collector until SIGTERM or SIGINT; return the exit code."""
    parser = COMMAND.parser()
    parser.add_argument("--once", action="store_true", help="look once, print, and exit")
    parser.add_argument(
        "--json", action="store_true", help="with --once: print the records as JSON"
    )
    parser.add_argument(
        "--build-plugin", type=Path, metavar="FOLDER",
        help="compile NCCL's profiler plugin into a folder, print its path, and exit",
    )  # fmt: skip
    return COMMAND.run(arguments, _build, _start, parser, offline=_without_kafka)


def _build(flags: Flags, table: Table) -> Request:
    config = build_config(CollectConfig, SECTION, flags=flags, table=table)
    host_id = config.host_id or socket.gethostname() or "host"
    try:
        check_id("host_id", host_id)
        for name in ("task_id", "only_task"):
            if value := getattr(config, name):
                check_id(name, value)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if flags["json"] and not flags["once"]:
        raise ConfigError("--json is for --once: without it records go to Kafka")
    return Request(config, host_id, bool(flags["once"]), bool(flags["json"]), flags["build_plugin"])


def _looker(request: Request, cluster: str) -> Looker | None:
    log = EventLog(SECTION)
    try:
        return Looker(request.config, cluster, request.host_id, log)
    except (OSError, ValueError) as error:
        log.error("collect.cannot_start", reason=str(error))
        return None


def _without_kafka(request: Request) -> int | None:
    """Do what needs no broker; None: what is asked for does."""
    if request.plugin_folder is not None:
        try:
            print(build_plugin(request.plugin_folder))
        except BuildError as error:
            EventLog(SECTION).error("collect.no_plugin", reason=str(error))
            return ENVIRONMENT
        return 0
    return _look_once(request) if request.once else None


def _look_once(request: Request) -> int:
    looker = _looker(request, CLUSTER)
    if looker is None:
        return ENVIRONMENT
    messages = looker.look(SystemClock().now(), patient=True)
    looker.close()
    if request.as_json:
        print(json.dumps(as_documents(messages), indent=1))
    else:
        for key, (_, process) in looker.scan.ranks.items():
            print(f"{key[0]} rank {key[1]}: process {process.pid} {process.state.lower()}")
        for message in messages:
            print(f"  {message.topic.name} {_line(message.record)}")
        if not looker.scan.ranks:
            print("no rank of a known job is on this host")
    return 0 if looker.scan.ranks else NO_RANKS


def _line(record: object) -> str:
    """Return a record in a few words."""
    for field in ("operations", "sockets", "ranks"):
        held = getattr(record, field, None)
        if held is not None:
            name = getattr(record, "rank_id", None) or getattr(record, "communicator_id", "")
            reason = getattr(record, "missing_reason", None)
            return f"{name}: {len(held)} {field}" + (f"; {reason}" if reason else "")
    return ""


def _start(settings: KafkaSettings, request: Request) -> int:
    log = EventLog(SECTION)
    looker = _looker(request, settings.cluster)
    if looker is None:
        return ENVIRONMENT
    try:
        client = kafka_client.load()
        publisher = Publisher(
            settings, make_codec(settings, JOB_COLLECTOR), SystemClock(),
            client_id=f"collect-{request.host_id}",
            queue_bytes=request.config.queue_kbytes * 1024, log=log,
        )  # fmt: skip
    except (RuntimeError, ImportError, OSError) as error:
        log.error("collect.cannot_start", reason=str(error))
        return ENVIRONMENT
    except client.KafkaException as error:
        log.error("collect.cannot_start", reason=f"[kafka] {error.args[0].str()}")
        return USAGE
    service = Service(request.config, looker, publisher, log)
    call_on_stop(service.stop)
    log.info("collect.starting", host_id=request.host_id, pid=os.getpid())
    try:
        service.run()
    finally:
        service.close()
    return 0
