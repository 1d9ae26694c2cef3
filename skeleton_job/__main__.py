"""The skeleton job's process: `python -m skeleton_job`."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from schemas.kafka.connection import load_settings
from schemas.kafka.registry import RegistryError, codec_for
from schemas.process.eventlog import EventLog, setup_logging
from schemas.process.settings import CONFIG_ENV, ConfigError, read_table
from schemas.units import SECOND_NS
from schemas.version import VERSION
from skeleton_job.config import BOUNDS, ENV_PREFIX, build_config
from skeleton_job.core import SkeletonCore
from skeleton_job.edge.outbox import FatalProducerError
from skeleton_job.edge.service import PROCESS, Service, ServiceError

ENVIRONMENT: Final = 3

DESCRIPTION: Final = """\
Infer the traffic skeletons of training jobs from their RNICs' counters, and keep
the ping lists of all agents.

A new job (task.v1) gets its basic list at once: the full mesh less cross-rail
pairs. Counters (rnic.counters.v1) then say which pairs really talk; when that
is sure, they replace the basic list. Run one process for a cluster.
"""
EPILOG: Final = f"""\
settings come from flags, then the environment ({ENV_PREFIX}<NAME>), then the
[skeleton] and [kafka] tables of --config:

  [skeleton]
  interval_s = 30          # between two inferences of a job
  window_s = 300           # counters looked at: ten iterations or more
  min_confidence = 0.5     # below it the basic list stays
  flows = 4                # 5-tuples per target; basic_flows, explore_flows too
  explore_peers = 1        # sample of other same-rail pairs, two peers for each
  explore_rotate_s = 300
  max_basic_peers = 1023   # as many of them as fit into a list of 64 KB
  workers = 2              # inferences at a time

example:
  skeletonhunter skeleton run --bootstrap 127.0.0.1:9092 --interval-s 10 --window-s 40

exit codes: 0 stopped, 2 wrong settings, 3 no broker, topics or schema registry
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser with all options."""
    made = argparse.ArgumentParser(
        prog="skeletonhunter skeleton run",
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
        config = build_config(vars(given), read_table(given.config, PROCESS))
        codec = codec_for(settings)
    except ConfigError as error:
        return _fail(str(error), error.exit_code)
    core = SkeletonCore(
        settings.cluster,
        config.lists(),
        config.inference(),
        producer_version=VERSION,
    )
    look_back_ns = round((config.window_s + config.interval_s) * SECOND_NS)
    service = Service(settings, core, codec, look_back_ns, workers=config.workers)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    EventLog(PROCESS).info("skeleton.started", cluster=settings.cluster, **vars_of(config))
    try:
        service.run()
    except (ServiceError, RegistryError, FatalProducerError) as error:
        return _fail(str(error), ENVIRONMENT)
    return 0


def vars_of(config: object) -> dict[str, object]:
    """Return the settings for the log."""
    return {name: getattr(config, name) for name in BOUNDS}


def _fail(message: str, code: int) -> int:
    print(f"skeletonhunter skeleton run: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
