"""`skeleton infer | run | show`: the traffic skeletons of training jobs."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import options
from ops.cli.errors import FOUND, USAGE, CliError
from ops.cli.processes import PASS_ON, run_room
from schemas.kafka.connection import load_settings
from schemas.process.files import parse_json, read_file

if TYPE_CHECKING:
    from schemas.records import Skeleton


def infer(
    counters: Annotated[
        Path, typer.Argument(metavar="COUNTERS", help="Counters, .csv or .parquet")
    ],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the JSON goes")],
    meta: Annotated[
        Path | None, typer.Option("--meta", metavar="META", help="JSON of what is known besides")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Infer skeletons from a file of counters, by the code that the job runs.

    COUNTERS is a long table: time_ns, host, rail, tx_bytes, rx_bytes; the counters
    are cumulative, may wrap and reset, and rows may be missing. META may hold
    link_gbps, gpus_per_host, counter.bits, pod_index {host: index} and tasks
    [{task, gpus, rnics: [[host, rail], ...]}]; other keys are not used. In both,
    a host is a number or a text.

    FILE gets ping_list, the pairs to probe; tasks with their degrees, groups,
    stages, pipelines and confidence; left_out, RNICs in no task and why; warnings.
    A job without a sure skeleton gets pairs of other likely layouts as well, one
    without any its basic list. Exit code 1: no skeleton is sure.

    Example: skeletonhunter skeleton infer counters.parquet --meta meta.json --out skeleton.json
    """
    from skeleton_job.layout.skeleton import DEFAULT_MIN_CONFIDENCE
    from skeleton_job.offline.meta import Meta, MetaError, parse_meta
    from skeleton_job.offline.table import TableError, infer_table, read_counters

    try:
        known = Meta() if meta is None else parse_meta(parse_json(read_file(meta)))
        _progress(f"reading {counters}")
        table = read_counters(counters)
        _progress(f"{table.height:,} readings; inferring")
        found = infer_table(table, known)
        text = json.dumps(found, indent=None, separators=(",", ":"))
        out.write_text(text + "\n", encoding="utf-8")
    except (TableError, MetaError) as error:
        raise CliError(str(error), USAGE) from error
    except (OSError, ValueError) as error:
        raise CliError(f"{meta or out}: {error}", USAGE) from error
    for warning in found["warnings"]:
        typer.echo(f"warning: {warning}", err=True)
    if as_json:
        typer.echo(text)
    else:
        for task in found["tasks"]:
            typer.echo(_sentence(task))
        typer.echo(f"{len(found['ping_list'])} pairs to probe, in {out}")
        if not found["tasks"]:
            typer.echo("no RNICs show the iterations of a training job")
        for left in found["left_out"]:
            host, rail = left["rnics"][0]
            typer.echo(
                f"left out: {len(left['rnics'])} RNICs, such as {host}/r{rail}: {left['reason']}"
            )
    if not any(t["dp"] and t["confidence"] >= DEFAULT_MIN_CONFIDENCE for t in found["tasks"]):
        raise typer.Exit(FOUND)


def show(
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="Training job")],
    *,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Print the latest inferred skeleton of a job.

    Exit code 1: none was published, or it could not be inferred.

    Example: skeletonhunter skeleton show job1 --json
    """
    from ops.jobs.skeleton_topic import latest_skeleton
    from schemas.codec import to_datum

    settings = load_settings(config, bootstrap=bootstrap, prefix=prefix)
    found = latest_skeleton(settings, task_id)
    if found is None:
        raise CliError(f"no skeleton of {task_id!r} is published: does `skeleton run` run?", FOUND)
    if as_json:
        typer.echo(json.dumps(to_datum(found), indent=2))
    else:
        _print(found)
    if found.dp is None:
        raise typer.Exit(FOUND)


def _print(found: "Skeleton") -> None:
    from rich.console import Console
    from rich.table import Table

    typer.echo(
        _sentence(
            {
                "task": found.task_id,
                "dp": found.dp,
                "pp": found.pp,
                "tp": found.tp,
                "confidence": found.confidence,
                "reason": found.reason,
                "period_s": None if found.period_ns is None else round(found.period_ns / 1e9, 3),
            }
        )
    )
    if found.dp is None:
        return
    peers: dict[str, list[str]] = {}
    for pair in found.pairs:
        peers.setdefault(pair.a, []).append(pair.b)
        peers.setdefault(pair.b, []).append(pair.a)
    table = Table("endpoint", "stage", "group", "exchanges data with")
    for member in found.members:
        table.add_row(
            member.endpoint_id,
            "" if member.stage is None else str(member.stage),
            "" if member.group is None else str(member.group),
            ", ".join(sorted(peers.get(member.endpoint_id, []))),
        )
    Console().print(table)
    typer.echo(f"version {found.version}, {len(found.pairs)} pairs")


def _sentence(task: dict[str, Any]) -> str:
    shape = "no skeleton"
    if task["dp"] is not None:
        shape = f"DP {task['dp']} × PP {task['pp']} × TP {task['tp']}, {task['period_s']} s a turn"
    why = f" ({task['reason']})" if task["reason"] else ""
    return f"{task['task']}: {shape}, confidence {task['confidence']:.2f}{why}"


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"… {text}", err=True)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Traffic skeletons of training jobs.", no_args_is_help=True)
    group.command()(infer)
    group.command()(show)

    @group.command("run", context_settings=PASS_ON)
    def run(context: typer.Context) -> None:
        """Run the skeleton job: skeletons and ping lists of all jobs.

        Example: skeletonhunter skeleton run --bootstrap 127.0.0.1:9092
        """
        run_room("skeleton_job", context.args)

    app.add_typer(group, name="skeleton")
