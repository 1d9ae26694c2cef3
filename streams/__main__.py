"""`python -m streams`: run a stream worker."""

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

from schemas.kafka.connection import load_settings
from schemas.kafka.registry import RegistryError
from schemas.process.eventlog import setup_logging
from schemas.process.settings import ConfigError, read_table
from streams.config import BOUNDS, WorkerConfig, load_config
from streams.edge.errors import WorkerSetupError

ENVIRONMENT = 3
# Libraries say more than an operator wants to read.
LOUD: Final = ("faust", "mode", "aiokafka", "asyncio", "streams.faust_app")

HELP: Final = """\
Turn probe rounds into windows and anomalies.

Reads probe.round.v1, writes probe.window.v1 and anomaly.v1. Start as many as
there are partitions; each result is counted exactly once, whatever crashes.

Settings: flags, then environment (SKELETONHUNTER_WORKER_WINDOW_S=10), then the
[worker] table of the config file.

Example: python -m streams --bootstrap 127.0.0.1:9092 --window-s 10
"""


def parser() -> argparse.ArgumentParser:
    """Return the command line: one option for each field of the config."""
    root = argparse.ArgumentParser(
        prog="skeletonhunter worker",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--config", type=Path, metavar="FILE", help="TOML with [kafka] and [worker]")
    root.add_argument("--bootstrap", metavar="HOST:PORT", help="address of the Kafka broker")
    root.add_argument("--prefix", help="prefix of all topic and group names")
    root.add_argument("--log-json", action="store_true", help="log one JSON object per line")
    root.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    settings = root.add_argument_group("settings")
    for field in fields(WorkerConfig):
        option = "--" + field.name.replace("_", "-")
        limits = BOUNDS.get(field.name)
        bounds = f", {limits[0]:g} to {limits[1]:g}" if limits else ""
        settings.add_argument(
            option,
            metavar="TEXT" if field.type is str else "N",
            help=f"default {field.default or 'none'}{bounds}",
        )
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; return the exit code."""
    arguments = parser().parse_args(argv)
    setup_logging(as_json=arguments.log_json, level=arguments.log_level)
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        settings = load_settings(
            arguments.config, bootstrap=arguments.bootstrap, prefix=arguments.prefix
        )
        config = load_config(vars(arguments), read_table(arguments.config, "worker"))
        # Faust takes a second to import; `--help` and wrong settings need not wait.
        from streams.worker import run_worker  # noqa: PLC0415

        return run_worker(settings, config)
    except ConfigError as error:
        print(f"skeletonhunter worker: {error}", file=sys.stderr)
        return error.exit_code
    except (WorkerSetupError, RegistryError) as error:
        print(f"skeletonhunter worker: {error}", file=sys.stderr)
        return ENVIRONMENT


if __name__ == "__main__":
    sys.exit(main())
