"""`job diagnose | show`: why a training job hangs, by dumps of its ranks or live."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import options
from ops.cli.errors import DAMAGED, FOUND, INCOMPLETE, USAGE, CliError
from ops.cli.job_show import show

if TYPE_CHECKING:
    from ops.jobs.dumps import Dumps


def diagnose(
    dumps: Annotated[
        Path,
        typer.Argument(metavar="DUMPDIR", help="Folder of the ranks' dumps, and folders in it"),
    ],
    *,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="PATTERN", help="Read these files of it, such as 'run7/*'"),
    ] = None,
    world_size: Annotated[
        int | None,
        typer.Option("--world-size", metavar="N", min=1, max=2**17, help="Ranks of the job"),
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option("--groups", metavar="FILE", help='JSON: {"group name": [rank, ...], ...}'),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page with all groups as well"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Say who waits for whom in a job that hangs, since when, and where that begins.

    DUMPDIR holds what PyTorch's Flight Recorder wrote, a file for each rank: of NCCL or
    gloo, pickle or JSON, since PyTorch 2.4, under any names. A pickle is read without
    running what it holds. To get dumps, start the job with TORCH_FR_BUFFER_SIZE=2000
    (before 2.9 TORCH_NCCL_TRACE_BUFFER_SIZE) and TORCH_NCCL_DUMP_ON_TIMEOUT=1.

    A finding is one of: never_launched, a rank is behind and waits for nothing itself;
    desynchronised, ranks do different things at one place; missing_dump, a rank without
    a dump; not_finished, all launched it and it does not end (network, a stopped process
    and a GPU look alike here: it says what tells them apart); usual_wait, none of these
    yet. How sure: sure, likely, undecided, and what speaks against it. Where nothing
    hangs, a slow rank (gloo only): one for which the others wait again and again.

    Exit code 1: something hangs, or a rank is slow. 2: no dumps, none with
    an operation, or two of one rank.
    4: a dump is damaged; the others were used. 5: ranks are missing, and nothing else
    was found.

    Example: skeletonhunter job diagnose /var/log/fr_dumps --world-size 64
    """
    from localizer.collectives.attempts import of_earlier_attempts
    from localizer.collectives.diagnosis import diagnose as judge
    from ops.jobs.dumps import DumpsError, read_dumps, shown
    from ops.jobs.hang_page import as_page
    from ops.jobs.hang_report import as_document, as_text

    members = None if groups is None else _read_groups(groups)
    try:
        found = read_dumps(dumps, only)
    except DumpsError as error:
        raise CliError(str(error), USAGE) from error
    early = of_earlier_attempts(found.snapshots)
    for snapshot in found.snapshots:
        if snapshot.rank in early.left_out:
            found.left_out[snapshot.source] = (
                "ten minutes or more before all others, and none of their operations: an earlier "
                "attempt"
            )
        elif snapshot.rank in early.doubtful:
            found.warnings.append(
                f"{snapshot.source}: its last launch was ten minutes or more before those of the "
                "others: an earlier attempt, a wrong clock, or a rank that stopped before"
            )
    said = judge(
        [s for s in found.snapshots if s.rank not in early.left_out],
        world_size=world_size, members=members, untimely=(*early.left_out, *early.doubtful),
    )  # fmt: skip
    if as_json:
        document = as_document(said) | {"left_out": found.left_out, "damaged": found.damaged}
        typer.echo(json.dumps(document))
    else:
        for line in as_text(said):
            typer.echo(line)
    found.warnings += _unused(found, members or {}, world_size)
    _tell(found)
    if html is not None:
        # Last: what cannot be written must not lose the text.
        _write(html, as_page(said, f"Training job: {shown(str(dumps))}"))
    if found.damaged:
        raise typer.Exit(DAMAGED)
    if not said.recorded:
        raise typer.Exit(USAGE)
    if said.hangs or said.slow_rank is not None:
        raise typer.Exit(FOUND)
    if said.without_dump:
        raise typer.Exit(INCOMPLETE)


def _unused(
    found: "Dumps", members: Mapping[str, Sequence[int]], world_size: int | None
) -> Iterator[str]:
    """Return what the command line says that the dumps contradict."""
    from ops.jobs.dumps import shown

    names = {view.communicator for s in found.snapshots for view in s.communicators}
    if unknown := sorted(set(members) - names):
        have = ", ".join(sorted(names)[:8])
        yield f"--groups: no dump has {', '.join(map(shown, unknown[:8]))}; groups are {have}"
    largest = max((s.rank for s in found.snapshots), default=0)
    if world_size is not None and largest >= world_size:
        yield f"--world-size {world_size}: there is a dump of rank {largest}"


def _tell(found: "Dumps") -> None:
    """Say on standard error which files were not used, and what to know of the others."""
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    for name, why in found.left_out.items():
        typer.echo(f"left out: {name}: {why}", err=True)
    for name, why in found.damaged.items():
        typer.echo(f"damaged: {name}: {why}", err=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"--html {path}: {error.strerror}", USAGE) from error


def _read_groups(path: Path) -> dict[str, list[int]]:
    from schemas.process.files import parse_json, read_file

    try:
        value: Any = parse_json(read_file(path))
    except (OSError, ValueError) as error:
        raise CliError(f"--groups {path}: {error}", USAGE) from error
    whole = isinstance(value, dict) and all(
        isinstance(ranks, list) and all(type(r) is int and 0 <= r < 2**20 for r in ranks)
        for ranks in value.values()
    )
    if not whole:
        raise CliError(f"--groups {path}: not of the form {{name: [rank, ...]}}", USAGE)
    return dict(value)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="What training jobs recorded of themselves.", no_args_is_help=True)
    group.callback()(lambda: None)
    group.command()(diagnose)
    group.command()(show)
    app.add_typer(group, name="job")
