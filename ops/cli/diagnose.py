"""`diagnose`: verdicts over a recording on a laptop, without a broker."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import options
from ops.cli.errors import DAMAGED, FOUND, INCOMPLETE, STOPPED, USAGE, CliError
from ops.cli.recording import event_time
from ops.cli.recording_output import Line, open_recording, print_damage

if TYPE_CHECKING:
    from ops.recording.diagnosis import Diagnosis


def diagnose(
    recording: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a recording")],
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where the verdicts go, one JSON a line"),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="Event time to begin at")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="WHEN", help="Event time to stop before")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Cluster to judge [default: the one that was recorded]"),
    ] = None,
    config: options.Config = None,
    as_json: options.Json = False,
) -> None:
    """Judge a recording by the cores of worker and localizer: incident review without a broker.

    Anomalies and verdicts that stand in the recording are not read: all is decided
    anew, with the [worker] and [localizer] tables of the config file. Each verdict is
    its last state with its candidates and evidence, and under `history` every
    transition before. Exit code 1: there is a verdict. 4: a file is damaged. 5: records
    are missing without which faults stay unseen; a sentence says which.

    Example: skeletonhunter diagnose incident-42 --out verdicts.jsonl
    """
    from localizer.config import build_config as localizer_config
    from ops.recording.container import DamageError
    from ops.recording.detection_process import LostProcessError
    from ops.recording.diagnosis import BESIDE_ROUNDS
    from ops.recording.diagnosis import diagnose as run
    from schemas.process.settings import read_table
    from schemas.process.signals import stop_flag
    from streams.config import build_config as worker_config

    detection = worker_config({}, read_table(config, "worker")).detection()
    localizer = localizer_config({}, read_table(config, "localizer"))
    source = open_recording(recording, BESIDE_ROUNDS)
    line = Line()
    with source, stop_flag() as stop:
        try:
            found = run(
                source,
                detection,
                localizer.core(cluster or source.manifest.cluster),
                stop,
                lambda d: line.show(_progress(d)),
                from_ms=event_time(from_, "--from"),
                to_ms=event_time(to, "--to"),
                processes=2,
            )
        except DamageError as error:
            raise CliError(str(error), DAMAGED) from error
        except LostProcessError as error:
            raise CliError(str(error)) from error
        finally:
            line.end()
    if found.damage is not None:
        print_damage(found.damage)
    verdicts = found.verdicts()
    if out is not None:
        _write(out, verdicts)
    _print(found, verdicts, out, as_json=as_json)
    for lack in found.lacks:
        typer.echo(f"skeletonhunter: {lack}", err=True)
    if source.damages or found.damage is not None:
        raise typer.Exit(DAMAGED)
    if found.stopped:
        raise typer.Exit(STOPPED)
    if found.lacks:
        raise typer.Exit(INCOMPLETE)
    if verdicts:
        raise typer.Exit(FOUND)


def _write(out: Path, verdicts: list[dict[str, Any]]) -> None:
    try:
        out.write_text("".join(json.dumps(v) + "\n" for v in verdicts), encoding="utf-8")
    except OSError as error:
        raise CliError(f"--out {out}: {error.strerror}", USAGE) from error


def _progress(found: "Diagnosis") -> str:
    from ops.log.timespan import iso_ms

    at = "" if found.event_ms is None else f", event time {iso_ms(found.event_ms)}"
    return f"{found.results:,} results{at}"


def _print(
    found: "Diagnosis", verdicts: list[dict[str, Any]], out: Path | None, *, as_json: bool
) -> None:
    from ops.log.timespan import iso_ms

    if as_json:
        line = {
            "records": dict(found.records),
            "refused": dict(found.refused),
            "results": found.results,
            "lacks": found.lacks,
            "stopped": found.stopped,
            "verdicts": verdicts,
        }
        typer.echo(json.dumps(line))
        return
    for name, number in sorted(found.records.items()):
        typer.echo(f"{number:>10,}  {name}")
    for reason, number in sorted(found.refused.items()):
        typer.echo(f"{number:>10,}  left out: {reason}")
    end = " (stopped before the end)" if found.stopped else ""
    where = "" if out is None else f", in {out}"
    typer.echo(f"{len(verdicts):>10,}  verdicts over {found.results:,} results{end}{where}")
    for v in verdicts:
        opened = iso_ms(v["opened_at"] // 1000)
        until = f" until {iso_ms(v['event_at'] // 1000)}" if v["resolved"] else ", still open"
        what = f"{v['component_id']}: {v['fault_kind']}, {v['severity']}"
        sure = "" if v["decided"] else "undecided, "
        typer.echo(f"{opened}{until}  {what} ({sure}confidence {v['confidence']:.2f})")
        for fact in v["evidence"]:
            typer.echo(f"            {fact}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(diagnose)
