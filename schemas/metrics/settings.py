"""Where a process exposes its metrics: the `[metrics]` table, common to all processes."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from schemas.kafka.connection import KafkaSettings
from schemas.process.command import Command, Flags, Table
from schemas.process.settings import (
    ConfigError,
    build_config,
    read_table,
    setting,
    settings_of,
)

SECTION: Final = "metrics"
LOOPBACK: Final = "127.0.0.1"
MAX_PORT: Final = 65_535
OPTION: Final = "--metrics-listen"
DESTINATION: Final = "metrics_listen"

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Settings as an operator writes them."""

    listen: str = setting(
        "",
        "HOST:PORT where the process exposes its metrics, a port alone is on loopback, port 0 "
        "any that is free; empty: nowhere. Processes of one host need a port each",
    )


def parse_listen(text: str) -> tuple[str, int] | None:
    """Return host and port; None for "".

    Raises
    ------
    ConfigError
        If it is neither HOST:PORT nor a port.

    Examples
    --------
    >>> parse_listen("9464")
    ('127.0.0.1', 9464)
    >>> parse_listen("[::]:9464")
    ('::', 9464)
    """
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or int(port) > MAX_PORT:
        raise ConfigError(f"[{SECTION}] listen={text!r}: HOST:PORT, or a port from 0 to {MAX_PORT}")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


def add_option(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the option to the parser of a process that exposes metrics; return the parser."""
    (one,) = settings_of(MetricsConfig)
    parser.add_argument(
        OPTION, metavar="HOST:PORT", dest=DESTINATION,
        help=f"{one.doc} ({one.variable(SECTION)}, [{SECTION}] {one.name})",
    )  # fmt: skip
    return parser


def read_listen(flags: Mapping[str, Any]) -> str:
    """Return `[metrics] listen` from flags, environment and the TOML file; "": expose nothing.

    Raises
    ------
    ConfigError
        If it is no address, or the table has other keys.
    """
    config = build_config(
        MetricsConfig,
        SECTION,
        flags={"listen": flags[DESTINATION]},
        table=read_table(flags["config"], SECTION),
    )
    parse_listen(config.listen)
    return config.listen


def run_exposed(
    command: Command,
    arguments: Sequence[str] | None,
    build: Callable[[Flags, Table], ConfigT],
    start: Callable[[KafkaSettings, ConfigT, str], int],
    parser: argparse.ArgumentParser | None = None,
) -> int:
    """Run the command line of a process that exposes metrics.

    As `Command.run`, but the process has the option, and `start` also gets where to expose them.
    """
    return command.run(
        arguments,
        lambda flags, table: (build(flags, table), read_listen(flags)),
        lambda settings, built: start(settings, *built),
        add_option(parser or command.parser()),
    )
