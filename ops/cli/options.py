"""Options that many subcommands share, each spelled and explained once."""

from pathlib import Path
from typing import Annotated

import typer

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Kafka to use [default: $KAFKA_BOOTSTRAP, the config file, a running `broker run`]",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="TOML file with a [kafka] table: TLS, SASL [default: $SKELETONHUNTER_CONFIG]",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option("--prefix", metavar="TEXT", help="Put before every topic name"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]
Author = Annotated[
    str | None, typer.Option("--author", metavar="NAME", help="Who [default: user@host]")
]
