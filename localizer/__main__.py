"""The localizer's process: `python -m localizer`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from localizer.config import SECTION, LocalizerConfig, build_config
from localizer.edge.service import Service
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
    prog="skeletonhunter localizer",
    section=SECTION,
    description="""\
Turn anomalies into fault verdicts: which component, which kind, how sure.

Bad 5-tuples are held against the good ones, the paths that agents traced, the
overlay's flow tables and the agents' heartbeats. Verdicts go to fault.event.v1
(every transition, with CloudEvents headers) and fault.state.v1 (the latest).
Run two processes for a cluster, of one consumer group: one leads, the other stands
by with all that it knows, and takes over within ten seconds when the first is gone.
""",
    epilog="""\
example:
  skeletonhunter localizer --bootstrap 127.0.0.1:9092 --log-json

exit codes: 0 stopped, 2 wrong settings, 3 no broker, topics or registry, or taken over
""",
    settings=settings_of(LocalizerConfig),
)


def _start(settings: KafkaSettings, config: LocalizerConfig, listen: str) -> int:
    memory.use_one_arena()
    memory.allocate_by_page()
    service = Service(settings, codec_for(settings), config)
    call_on_stop(service.stop)
    log = EventLog(SECTION)
    log.info("localizer.started", cluster=settings.cluster, **asdict(config))
    with exposed(listen, SECTION, service.exposed.families, service.health, log):
        service.run()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service until SIGTERM or SIGINT; return the exit code."""
    return run_exposed(COMMAND, arguments, build_config, _start)


if __name__ == "__main__":
    end_with(main)
