"""`job show TASK`: where each rank of a running job stands, and what hangs."""

import json
from typing import Annotated

import typer

from ops.cli import options
from ops.cli.errors import DAMAGED, FOUND, CliError


def show(
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="Training job")],
    *,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Say what hangs in a running job, and how far each rank came in each communicator.

    Reads what collectors wrote in the last 90 seconds and the hang watcher's verdict. A row
    for each rank: what its process does, and by communicator the number of its last
    operation, and for how long it waits there. A culprit is marked by `!`.

    Exit code 1: the job hangs. 4: records could not be used; the others were.

    Example: skeletonhunter job show job1 --json
    """
    from ops.jobs.job_table import as_document, as_text
    from ops.jobs.job_topics import JobTopicsError, read_job
    from ops.log.reading import now_ms
    from schemas.kafka.connection import load_settings

    settings = load_settings(config, bootstrap=bootstrap, prefix=prefix)
    at_ms = now_ms()
    try:
        found = read_job(settings, task_id, at_ms)
    except JobTopicsError as error:
        raise CliError(str(error)) from error
    document = as_document(found, at_ms)
    if as_json:
        typer.echo(json.dumps(document))
    else:
        for line in as_text(found, at_ms):
            typer.echo(line)
    if found.undecodable:
        typer.echo(f"warning: {found.undecodable} records could not be used", err=True)
        raise typer.Exit(DAMAGED)
    if document["hangs"]:
        raise typer.Exit(FOUND)
