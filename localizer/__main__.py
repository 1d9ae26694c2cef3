"""The localizer's process: `python -m localizer`."""

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from localizer.config import BOUNDS, ENV_PREFIX, LocalizerConfig, build_config
from localizer.edge.outbox import PROCESS, FatalProducerError
from localizer.edge.reader import ReaderError
from localizer.edge.service import Service, StalledError
from schemas.kafka.connection import load_settings
from schemas.kafka.registry import RegistryError, codec_for
from schemas.process.eventlog import EventLog, setup_logging
from schemas.process.settings import CONFIG_ENV, ConfigError, read_table

ENVIRONMENT: Final = 3

DESCRIPTION: Final = """\
Turn anomalies into fault verdicts: which component, which kind, how sure.

Bad 5-tuples are held against the good ones, the paths that agents traced, the
overlay's flow tables and the agents' heartbeats. Verdicts go to fault.event.v1
(every transition, with CloudEvents headers) and fault.state.v1 (the latest).
Run one process for a cluster; a second one takes over from the first.
"""
EPILOG: Final = f"""\
settings come from flags, then the environment ({ENV_PREFIX}<NAME>), then the
[localizer] and [kafka] tables of --config:

  [localizer]
  confidence = 0.9     # belief from which a verdict is decided
  min_flows = 3        # bad 5-tuples that a fault needs at once
  resolve_s = 3        # without evidence for so long: resolved
  flap_s = 60          # back within this time: the same fault
  lookback_s = 600     # read again at a start
  stall_s = 30         # nothing read for so long though there is something: end

example:
  skeletonhunter localizer --bootstrap 127.0.0.1:9092 --log-json

exit codes: 0 stopped, 2 wrong settings, 3 no broker, topics or registry, or taken over
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser with all options."""
    made = argparse.ArgumentParser(
        prog="skeletonhunter localizer",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--config", type=Path, metavar="FILE", help=f"TOML file, else {CONFIG_ENV}")
    made.add_argument("--bootstrap", metavar="HOST:PORT", help="Kafka broker")
    made.add_argument("--prefix", help="prefix of all topic names")
    made.add_argument("--log-json", action="store_true", help="one JSON object per log line")
    made.add_argument("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO")
    for name, (low, high) in BOUNDS.items():
        made.add_argument(
            f"--{name.replace('_', '-')}", metavar="N", help=f"{low:g} to {high:g}, see below"
        )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service until SIGTERM or SIGINT; return the exit code."""
    given = parser().parse_args(arguments)
    setup_logging(as_json=given.log_json, level=given.log_level)
    try:
        settings = load_settings(given.config, bootstrap=given.bootstrap, prefix=given.prefix)
        config: LocalizerConfig = build_config(vars(given), read_table(given.config, PROCESS))
        codec = codec_for(settings)
    except ConfigError as error:
        return _fail(str(error), error.exit_code)
    service = Service(settings, codec, config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    EventLog(PROCESS).info("localizer.started", cluster=settings.cluster, **asdict(config))
    try:
        service.run()
    except (ReaderError, FatalProducerError, StalledError, RegistryError) as error:
        return _fail(str(error), ENVIRONMENT)
    return 0


def _fail(message: str, code: int) -> int:
    print(f"skeletonhunter localizer: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
