"""`python -m streams`: run a stream worker."""

import logging
from collections.abc import Sequence
from typing import Final

from schemas.kafka.connection import KafkaSettings
from schemas.metrics.settings import run_exposed
from schemas.process.command import Command
from schemas.process.ending import end_with
from schemas.process.settings import settings_of
from streams.config import SECTION, WorkerConfig, build_config

# Libraries say more than an operator wants to read.
LOUD: Final = ("faust", "mode", "asyncio", "streams.faust_app")

COMMAND: Final = Command(
    prog="skeletonhunter worker",
    section=SECTION,
    description="""\
Turn probe rounds into windows and anomalies.

Reads probe.round.v1, writes probe.window.v1 and anomaly.v1. Start as many as
there are partitions; each result is counted exactly once, whatever crashes: in
a window of its agent's clock, or as late if that window is closed.
""",
    epilog="""\
Example: skeletonhunter worker --bootstrap 127.0.0.1:9092 --window-s 10

exit codes: 0 stopped, 1 failed, 2 wrong settings, 3 no broker, topics or registry, 70 stalled
""",
    settings=settings_of(WorkerConfig),
)


def _start(settings: KafkaSettings, config: WorkerConfig, listen: str) -> int:
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Faust takes a second to import; `--help` and wrong settings need not wait.
    from streams.worker import run_worker  # noqa: PLC0415

    return run_worker(settings, config, listen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; return the exit code."""
    return run_exposed(COMMAND, arguments, build_config, _start)


if __name__ == "__main__":
    end_with(main)
