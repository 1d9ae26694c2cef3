"""How `record` and `replay` show what they do."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ops.cli.errors import DAMAGED, USAGE, CliError

if TYPE_CHECKING:
    from collections.abc import Collection

    from ops.log.tail import Shown
    from ops.recording.container import DamageError
    from ops.recording.manifest import Manifest
    from ops.recording.replayer import Report
    from ops.recording.source import Source
    from ops.recording.verdicts import Stand
    from schemas.topics import Topic


class Line:
    """One line of progress on a terminal, drawn over and over; nothing elsewhere."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._drawn = False

    def show(self, text: str) -> None:
        """Draw the line anew."""
        if self._on:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._drawn = True

    def end(self) -> None:
        """Leave the line as it is."""
        if self._drawn:
            sys.stderr.write("\n")
            self._drawn = False


def counted(manifest: "Manifest") -> str:
    """Return how far a recording is."""
    from ops.log.timespan import iso_ms

    last = [t.last_ms for t in manifest.topics.values() if t.last_ms is not None]
    at = f", event time {iso_ms(max(last))}" if last else ""
    return f"{manifest.records:,} records{at}"


def replayed(report: "Report") -> str:
    """Return how far a replay is."""
    from ops.log.timespan import iso_ms

    at = "" if report.event_ms is None else f", event time {iso_ms(report.event_ms)}"
    return f"{report.total:,} records{at}"


def processed(stand: "Stand") -> str:
    """Return how far worker and localizer are."""
    return f"{stand.rounds_left:,} rounds and {stand.anomalies_left:,} anomalies left"


def print_manifest(folder: Path, manifest: "Manifest", *, as_json: bool) -> None:
    """Print what was recorded."""
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), **asdict(manifest)}))
        return
    for name, topic in manifest.topics.items():
        extra = [
            f"{count:,} {what}"
            for what, count in (
                ("of them state before --from", topic.state),
                ("tombstones", topic.tombstones),
                ("undecodable, kept as bytes", topic.undecodable),
                ("EXPIRED before they could be read", topic.expired),
            )
            if count
        ]
        typer.echo(f"{topic.records:>10,}  {name}  {', '.join(extra)}".rstrip())
    typer.echo(f"{manifest.records:>10,}  records in {folder}")


def open_recording(folder: Path, only: "Collection[Topic] | None" = None) -> "Source":
    """Open a recording, or some topics of it; print which of its files are broken, and where.

    Raises
    ------
    CliError
        If there is none, or its manifest cannot be read.
    """
    from ops.recording.container import DamageError
    from ops.recording.source import Source
    from schemas.topics import TOPICS

    try:
        source = Source(folder, TOPICS if only is None else only)
    except FileNotFoundError as error:
        raise CliError(f"{folder} holds no recording (no manifest.json)", USAGE) from error
    except DamageError as error:
        raise CliError(str(error), DAMAGED) from error
    for damage in source.damages:
        print_damage(damage)
    return source


def print_damage(damage: "DamageError") -> None:
    """Print where a file of a recording is broken."""
    typer.echo(f"skeletonhunter: {damage}; what stands before it is used", err=True)


def print_report(
    report: "Report",
    source: "Source",
    run_id: str,
    verdicts: "list[Shown] | None",
    *,
    as_json: bool,
) -> None:
    """Print what was replayed and, if a run was asked for, its verdicts."""
    from ops.log.tail import as_json as json_line
    from ops.log.tail import as_line

    if as_json:
        line: dict[str, object] = {
            "run_id": run_id,
            "records": report.records,
            "stopped": report.stopped,
            "damages": [
                {"file": d.path.name, "position": d.position, "reason": d.reason}
                for d in source.damages
            ],
        }
        if verdicts is not None:
            line["verdicts"] = [json.loads(json_line(shown)) for shown in verdicts]
        typer.echo(json.dumps(line))
        return
    for name, number in report.records.items():
        typer.echo(f"{number:>10,}  {name}")
    end = " (stopped before the end)" if report.stopped else ""
    typer.echo(f"{report.total:>10,}  records replayed, run_id {run_id}{end}")
    if verdicts is not None:
        typer.echo(f"{len(verdicts):>10,}  verdicts")
        for shown in verdicts:
            typer.echo(as_line(shown))
