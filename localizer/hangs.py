"""The hang watcher's process: `python -m localizer.hangs`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from localizer.config import HANGS_SECTION, HangsConfig, build_hangs_config
from localizer.edge.hang_service import HangService
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.metrics.exposition import exposed
from schemas.metrics.settings import run_exposed
from schemas.process import memory
from schemas.process.command import Command
from schemas.process.ending import end_with
from schemas.process.eventlog import EventLog
from schemas.process.settings import settings_of
from schemas.process.signals import call_on_stop

COMMAND: Final = Command(
    prog="skeletonhunter hangs",
    section=HANGS_SECTION,
    description="""\
Say which training jobs hang, since when, and why.

Reads what collectors tell of the jobs' ranks: their collectives, processes and sockets. Writes
collective.hang.v1, which the localizer joins with faults of the network. Run two processes for a
cluster: one leads, the other stands by.
""",
    epilog="""\
example:
  skeletonhunter hangs --bootstrap 127.0.0.1:9092 --log-json

exit codes: 0 stopped, 2 wrong settings, 3 no broker, topics or registry, or taken over
""",
    settings=settings_of(HangsConfig),
)


def _start(settings: KafkaSettings, config: HangsConfig, listen: str) -> int:
    memory.use_one_arena()
    service = HangService(settings, codec_for(settings), config)
    call_on_stop(service.stop)
    log = EventLog(HANGS_SECTION)
    log.info("hangs.started", cluster=settings.cluster, **asdict(config))
    with exposed(listen, HANGS_SECTION, service.counts.families, service.health, log):
        service.run()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service until SIGTERM or SIGINT; return the exit code."""
    return run_exposed(COMMAND, arguments, build_hangs_config, _start)


if __name__ == "__main__":
    end_with(main)
