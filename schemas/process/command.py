"""The command line that every process has, and how it ends.

Exit codes: 0 stopped, 2 wrong settings, 3 something around the process is missing.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from schemas.kafka.access import settings_fault
from schemas.kafka.connection import KafkaSettings, load_settings
from schemas.process.errors import CannotRunError
from schemas.process.eventlog import setup_logging
from schemas.process.settings import CONFIG_ENV, ConfigError, Setting, read_table

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")

ConfigT = TypeVar("ConfigT")
Flags = Mapping[str, Any]
Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The command line of a process: the options that all have, and one for each setting.

    Attributes
    ----------
    prog
        The command as a user types it.
    section
        The process's table in the config file, and its role for `skeletonhunter acl`.
    """

    prog: str
    section: str
    description: str
    epilog: str
    settings: tuple[Setting, ...]

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser with all options."""
        parser = argparse.ArgumentParser(
            prog=self.prog,
            description=self.description,
            epilog=(
                "settings come from flags, then the environment "
                f"(SKELETONHUNTER_{self.section.upper()}_<NAME>),\nthen the [{self.section}] and "
                f"[kafka] tables of --config\n\n{self.epilog}"
            ),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument(
            "--config", type=Path, metavar="FILE", help=f"TOML file, else {CONFIG_ENV}"
        )
        parser.add_argument("--bootstrap", metavar="HOST:PORT", help="Kafka broker")
        parser.add_argument("--prefix", help="prefix of all topic names")
        parser.add_argument("--log-json", action="store_true", help="one JSON object per log line")
        parser.add_argument("--log-level", choices=LEVELS, help="default INFO")
        settings = parser.add_argument_group("settings")
        for setting in self.settings:
            settings.add_argument(setting.flag, metavar=_metavar(setting), help=_help(setting))
        return parser

    def run(
        self,
        arguments: Sequence[str] | None,
        build: Callable[[Flags, Table], ConfigT],
        start: Callable[[KafkaSettings, ConfigT], int],
        parser: argparse.ArgumentParser | None = None,
        *,
        offline: Callable[[ConfigT], int | None] | None = None,
    ) -> int:
        """Parse, set up logs, and return what `start` returns, or the exit code of its error.

        Parameters
        ----------
        build
            Checks the process's own settings, given the flags by name and its table; comes before
            the search for a broker, so that wrong settings are named where there is none.
        start
            Gets the Kafka settings and what `build` returned. A ConfigError or CannotRunError that
            either raises is printed as one sentence.
        parser
            The parser, where the process has more options than `parser()` knows.
        offline
            Does what needs no Kafka, and returns an exit code; None: Kafka is needed.
        """
        given = (parser or self.parser()).parse_args(arguments)
        try:
            table = read_table(given.config, self.section)
            setup_logging(
                as_json=given.log_json or bool(table.get("log_json")),
                level=self._level(given.log_level, table),
            )
            config = build(vars(given), table)
            if offline is not None and (code := offline(config)) is not None:
                return code
            settings = load_settings(given.config, bootstrap=given.bootstrap, prefix=given.prefix)
            return start(replace(settings, role=self.section), config)
        except (ConfigError, CannotRunError) as error:
            print(f"{self.prog}: {error}", file=sys.stderr)
            return error.exit_code
        except Exception as error:
            if (fault := settings_fault(error)) is None:
                raise
            print(f"{self.prog}: {fault}", file=sys.stderr)
            return ConfigError.exit_code

    def _level(self, flag: str | None, table: Table) -> str:
        level = str(flag or table.get("log_level") or "INFO").upper()
        if level not in LEVELS:
            raise ConfigError(f"[{self.section}] log_level={level!r}: one of {', '.join(LEVELS)}")
        return level


def _metavar(setting: Setting) -> str:
    return "TEXT" if setting.kind is str else "N"


def _help(setting: Setting) -> str:
    if setting.kind is str:
        return setting.doc
    return f"{setting.doc} ({setting.low:g} to {setting.high:g}, default {setting.default:g})"
