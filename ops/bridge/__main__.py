"""The bridge's process: `python -m ops.bridge`."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from ops.bridge.config import SECTION, BridgeConfig, BridgeSettings, build_config
from ops.bridge.exposed import Exposed
from ops.bridge.service import PROCESS, Service
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.metrics.exposition import exposed
from schemas.metrics.settings import run_exposed
from schemas.process.command import Command, Flags, Table
from schemas.process.ending import end_with
from schemas.process.errors import CannotRunError
from schemas.process.eventlog import EventLog
from schemas.process.health import Health
from schemas.process.settings import settings_of
from schemas.process.signals import call_on_stop

COMMAND: Final = Command(
    prog="skeletonhunter bridge",
    section=SECTION,
    description="""\
Bring faults to Alertmanager, PagerDuty and webhooks: each paged once, and
resolved once.

Reads fault.event.v1, silence.v1 and incident.note.v1. What a target has taken is
remembered in Kafka, so a restart loses and doubles nothing. Run two processes for a
cluster, of one consumer group: one leads, the other stands by and takes over within
ten seconds. docs/guide/paging.md explains targets, silences, storms and flapping.
""",
    epilog="""\
targets are tables of the config file; secrets come from files or variables:

  [[bridge.target]]
  type = "alertmanager"          # or "pagerduty", "webhook"
  url = "http://alertmanager:9093"

example:
  skeletonhunter bridge --config /etc/skeletonhunter/skeletonhunter.toml --dry-run

exit codes: 0 stopped, 2 wrong settings, 3 no broker, topics or registry
""",
    settings=settings_of(BridgeSettings),
)


class _Built(NamedTuple):
    config: BridgeConfig
    dry_run: bool


def parser() -> argparse.ArgumentParser:
    """Return the parser with all options."""
    found = COMMAND.parser()
    found.add_argument(
        "--dry-run", action="store_true", help="print what would be sent, send nothing, and end"
    )
    return found


def _build(flags: Flags, table: Table) -> _Built:
    return _Built(build_config(flags, table), bool(flags["dry_run"]))


def _start(settings: KafkaSettings, built: _Built, listen: str) -> int:
    if not built.config.targets:
        raise CannotRunError(
            "no [[bridge.target]] in the config file: nobody would be told; see --help"
        )
    service = Service(settings, codec_for(settings), built.config)
    call_on_stop(service.stop)
    if built.dry_run:
        posts = service.preview()
        for post in posts:
            print(json.dumps(post))
        if not posts:
            print("nothing would be sent: no fault pages anybody now", file=sys.stderr)
        return 0
    log = EventLog(PROCESS)
    log.info(
        "bridge.started",
        cluster=settings.cluster,
        targets=[f"{target.name} ({target.kind})" for target in built.config.targets],
    )
    health = Health(lambda: service.lag.polled_s, service.waits_for)
    with exposed(listen, PROCESS, Exposed(service).families, health, log):
        service.run()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bridge until SIGTERM or SIGINT; return the exit code."""
    return run_exposed(COMMAND, arguments, _build, _start, parser())


if __name__ == "__main__":
    end_with(main)
