"""`import-csv`: the published probe CSV to rounds."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from ops.cli import options
from ops.cli.errors import DAMAGED, STOPPED, USAGE, CliError
from schemas.process.files import open_regular
from schemas.version import VERSION

if TYPE_CHECKING:
    from ops.importing.csv import BadRow, Columns
    from ops.importing.run import Report, RoundSink

# Bad rows printed as they are met; the summary counts all.
PRINTED_BAD_ROWS: Final = 20


class FlowBy(StrEnum):
    """What makes a flow of a pair."""

    PAIR = "pair"
    SRC_PORT = "src_port"


def import_csv(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV file with a header; - is stdin")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write a recording instead of to Kafka"),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OUR=THEIRS", help="A column of another name; repeatable"),
    ] = None,
    interval_ms: Annotated[
        int, typer.Option("--interval-ms", min=1, help="Length of the rounds that rows are put in")
    ] = 1000,
    flow_by: Annotated[
        FlowBy,
        typer.Option("--flow-by", help="pair: one flow per pair; src_port: one per source port"),
    ] = FlowBy.PAIR,
    probes_per_row: Annotated[
        int,
        typer.Option("--probes-per-row", min=1, max=1000, help="Probes that a row sums up"),
    ] = 1,
    allow_bad: Annotated[
        int, typer.Option("--allow-bad", min=0, help="Bad rows that are no reason for exit code 4")
    ] = 0,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Cluster that the rounds name [default: the config's]"),
    ] = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Turn a CSV of probes, as SkeletonHunter's authors publish it, into rounds.

    Rows are put together by source and second. To probe.round.v1, or with --out
    into a recording that `replay` takes. Bad rows are named by line, column, value
    and rule, counted and skipped; exit code 4 if there were more than --allow-bad.
    Traceroute rows are no probes and are only counted. docs/guide/recordings.md lists
    the columns.

    Example: skeletonhunter import-csv samples.csv --out imported --map rtt_us=rtt
    """
    from ops.importing.csv import HeaderError, parse
    from ops.importing.rounds import RoundBuilder
    from ops.importing.run import import_rows
    from schemas.process.settings import read_table
    from schemas.process.signals import stop_flag

    named = cluster or str(read_table(config, "kafka").get("cluster", "default"))
    builder = RoundBuilder(
        cluster=named,
        interval_ns=interval_ms * 10**6,
        flow_by="pair" if flow_by is FlowBy.PAIR else "src_port",
        version=VERSION,
    )
    with _opened(file) as text, stop_flag() as stop:
        try:
            columns, rows = parse(text, _mapping(mapping or []), probes_per_row)
        except HeaderError as error:
            raise CliError(f"{file}: {error}", USAGE) from error
        sink = _sink(out, named, config, bootstrap, prefix)
        try:
            report = import_rows(rows, builder, sink, stop, _BadRowPrinter())
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise CliError(f"{out or file}: {error.strerror}") from error
    _print(report, columns, as_json=as_json)
    if report.stopped:
        raise typer.Exit(STOPPED)
    if report.bad > allow_bad:
        raise typer.Exit(DAMAGED)


def _mapping(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise CliError(f"--map {pair!r}: OUR=THEIRS, for example rtt_us=my_latency", USAGE)
        found[ours.strip()] = theirs.strip()
    return found


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    if str(path) == "-":
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape", newline="")  # type: ignore[union-attr]
        yield sys.stdin
        return
    try:
        raw = open_regular(path)
        file = io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", USAGE) from error
    with file:
        yield file


def _sink(
    out: Path | None, cluster: str, config: Path | None, bootstrap: str | None, prefix: str | None
) -> "RoundSink":
    from ops.importing.run import KafkaSink, RecordingSink
    from ops.log.reading import UnknownTopicError
    from ops.recording.writer import NotEmptyError
    from schemas.kafka.connection import load_settings

    try:
        if out is not None:
            return RecordingSink(out, cluster, VERSION)
        settings = load_settings(config, bootstrap=bootstrap, prefix=prefix)
        return KafkaSink(replace(settings, role=""))
    except NotEmptyError as error:
        raise CliError(str(error), USAGE) from error
    except UnknownTopicError as error:
        raise CliError(f"{error}; run `skeletonhunter topics apply`") from error


class _BadRowPrinter:
    def __init__(self) -> None:
        self._left = PRINTED_BAD_ROWS

    def __call__(self, bad: "BadRow") -> None:
        self._left -= 1
        if self._left >= 0:
            typer.echo(str(bad), err=True)
        elif self._left == -1:
            typer.echo("… further bad rows are only counted", err=True)


def _print(report: "Report", columns: "Columns", *, as_json: bool) -> None:
    from ops.log.timespan import iso_us

    if as_json:
        line = {**asdict(report), "ignored_columns": columns.unknown}
        typer.echo(json.dumps(line, ensure_ascii=True))
        return
    span = ""
    if report.first_at is not None and report.last_at is not None:
        span = f", {iso_us(report.first_at)} to {iso_us(report.last_at)}"
    typer.echo(
        f"{report.rows:,} rows to {report.rounds:,} rounds with {report.results:,} results{span}"
    )
    if report.traceroutes:
        typer.echo(f"{report.traceroutes:,} traceroute rows left out")
    if columns.unknown:
        typer.echo(f"columns not used: {', '.join(map(ascii, columns.unknown))}")
    if report.disordered:
        typer.echo(
            f"{report.disordered:,} rows are more than 10 s older than rows before them; "
            "a worker takes such for late: sort the file by time"
        )
    if report.bad:
        typer.echo(f"{report.bad:,} BAD rows skipped")
    if report.stopped:
        typer.echo("stopped before the end")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import-csv")(import_csv)
