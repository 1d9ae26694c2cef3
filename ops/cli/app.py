"""The umbrella command: assembles the groups and turns errors into sentences."""

import importlib
import sys
from typing import Annotated, Final

import typer

from ops.cli.errors import ENVIRONMENT, STOPPED, USAGE, CliError
from schemas.kafka.access import settings_fault
from schemas.kafka.registry import RegistryError
from schemas.process.settings import ConfigError
from schemas.version import VERSION

# Modules with a `register(app)`, in the order in which `--help` lists them.
GROUPS: Final = (
    "demo",
    "broker",
    "topics",
    "acl",
    "schemas",
    "task",
    "processes",
    "skeleton",
    "lab",
    "tail",
    "recording",
    "export",
    "diagnose",
    "job",
    "silence",
    "incident",
    "arena",
    "import_csv",
    "doctor",
    "web",
)

HELP: Final = """\
Find and localize network faults under large-model training.

Start with `skeletonhunter demo`: it brings up a broker, a lab and all workers,
breaks a link and shows the verdict. To use a cluster of your own: `broker run`
(or --bootstrap), `topics apply`, then `agent`, `worker`, `skeleton run` and
`localizer`; `doctor` says what is missing.

Exit codes: 0 good, 1 a fault or a failed check was found, 2 usage, 3 environment,
4 an input is damaged, 5 an input lacks what an answer needs, 130 stopped by Ctrl-C.
"""


def build() -> typer.Typer:
    """Return the command with all groups."""
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=True,
    )
    app.callback()(_options)
    for name in GROUPS:
        importlib.import_module(f"ops.cli.{name}").register(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skeletonhunter {VERSION}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit"
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; errors end as one sentence on standard error."""
    try:
        build()()
    except CliError as error:
        _fail(str(error), error.exit_code)
    except ConfigError as error:
        _fail(str(error), error.exit_code)
    except (RegistryError, ConnectionError) as error:
        _fail(str(error), ENVIRONMENT)
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    except Exception as error:
        if (fault := settings_fault(error)) is None:
            raise
        _fail(fault, USAGE)


def _fail(message: str, exit_code: int) -> None:
    print(f"skeletonhunter: {message}", file=sys.stderr)
    sys.exit(exit_code)
