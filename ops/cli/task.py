"""`task submit | end | list`: training jobs, whose endpoints are to be probed."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import options
from ops.cli.errors import ENVIRONMENT, USAGE, CliError
from schemas.kafka.connection import load_settings
from schemas.process.files import read_file
from schemas.units import US_PER_S

if TYPE_CHECKING:
    from ops.jobs.task_topic import TaskTopic
    from schemas.kafka.connection import KafkaSettings
    from schemas.records import Task


def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Task file, .toml or .json")],
    *,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Submit a training job: its preload ping lists are made at once.

    The file is TOML, or JSON with the same keys: `task_id`, if you like
    `gpus_per_host`, and for each container a table `[[containers]]` with
    `container_id`, `host_id` (where it runs), `agent_id` (who probes for it) and
    `rails` (how many RNICs it has, or a list of them).

    A job of the same id is replaced.

    Example: skeletonhunter task submit job1.toml
    """
    from ops.jobs.task_file import TaskFileError, parse_task_file

    settings = _settings(config, bootstrap, prefix)
    try:
        content = read_file(file)
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}", USAGE) from error
    try:
        task = parse_task_file(file.name, content, cluster=settings.cluster, submitted_at=_now_us())
    except TaskFileError as error:
        raise CliError(str(error), USAGE) from error
    _topic(config, bootstrap, prefix).submit(task)
    if as_json:
        typer.echo(json.dumps(_row(task), indent=2))
    else:
        typer.echo(f"{task.task_id}: {len(task.endpoints)} endpoints submitted")


def end(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="Training job")],
    *,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """End a training job: its targets leave the ping lists.

    Example: skeletonhunter task end job1
    """
    from ops.jobs.task_topic import UnknownTaskError

    try:
        task, was_running = _topic(config, bootstrap, prefix).end(task_id, _now_us())
    except UnknownTaskError as error:
        raise CliError(str(error), USAGE) from error
    if as_json:
        typer.echo(json.dumps(_row(task), indent=2))
    else:
        before = "" if was_running else " already"
        typer.echo(f"{task.task_id}: ended{before}, {_time(task.ended_at)}")


def list_tasks(
    *,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """List all training jobs.

    Example: skeletonhunter task list --json
    """
    topic = _topic(config, bootstrap, prefix)
    rows = [_row(task) for task in topic.tasks().values()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        for row in rows:
            state = "running" if row["ended_at"] is None else f"ended {row['ended_at']}"
            typer.echo(
                f"{row['task_id']}: {row['endpoints']} endpoints in {row['containers']} "
                f"containers, submitted {row['submitted_at']}, {state}"
            )
        if not rows:
            typer.echo("no task was submitted")
    if topic.undecodable:
        raise CliError(f"{topic.undecodable} records could not be decoded", ENVIRONMENT)


def _topic(config: Path | None, bootstrap: str | None, prefix: str | None) -> "TaskTopic":
    from ops.jobs.task_topic import TaskTopic

    return TaskTopic(_settings(config, bootstrap, prefix))


def _settings(config: Path | None, bootstrap: str | None, prefix: str | None) -> "KafkaSettings":
    return replace(load_settings(config, bootstrap=bootstrap, prefix=prefix), role="scheduler")


def _now_us() -> int:
    return time.time_ns() // 1_000


def _time(at_us: int | None) -> str | None:
    if at_us is None:
        return None
    return datetime.fromtimestamp(at_us / US_PER_S, UTC).isoformat(timespec="seconds")


def _row(task: "Task") -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "cluster": task.cluster,
        "submitted_at": _time(task.submitted_at),
        "ended_at": _time(task.ended_at),
        "gpus_per_host": task.gpus_per_host,
        "containers": len({e.container_id for e in task.endpoints}),
        "endpoints": len(task.endpoints),
    }


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Training jobs, whose endpoints are probed.", no_args_is_help=True)
    group.command()(submit)
    group.command()(end)
    group.command("list")(list_tasks)
    app.add_typer(group, name="task")
