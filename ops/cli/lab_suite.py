"""`lab suite`: every fault of a kind of lab against the verdict it must get."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli import options
from ops.cli.errors import FOUND
from ops.cli.lab_errors import own_lab

if TYPE_CHECKING:
    from ops.lab.suite.suite import SuiteResult


def suite(
    *,
    kind: Annotated[str, typer.Option(help="Kind of lab: loopback, netns or rxe")] = "loopback",
    runs: Annotated[int, typer.Option(min=1, help="How often each fault is put in")] = 1,
    bootstrap: Annotated[
        str | None, typer.Option(help="Use this Kafka [default: start Apache Kafka]")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Put every fault in, one after another, and hold each verdict against the truth.

    Brings broker, workers and a small lab up, and takes them down again; some
    two minutes, and six for each run. Exit code 1 if less than 95 % of the verdicts name the
    component, or hard faults take more than 3 s in the median.

    Example: skeletonhunter lab suite --kind netns
    """
    with own_lab(kind) as say:
        from ops.lab.suite.suite import run_suite

        result = run_suite(kind, runs=runs, bootstrap=bootstrap, say=say)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2))
    else:
        show(result)
    if not result.met:
        raise typer.Exit(FOUND)


def show(result: "SuiteResult") -> None:
    """Print a row for each injection, and the figures against their bars."""
    from rich.console import Console
    from rich.table import Table

    from ops.lab.kind import lab_kind
    from ops.lab.suite.suite import RIGHT_SHARE, verdict

    table = Table("fault", "verdict", "component", "kind", "seconds", title=f"{result.lab} lab")
    for run in result.runs:
        outcome = run.outcome
        table.add_row(
            run.case.name if outcome.right else f"{run.case.name} at {run.case.target}",
            verdict(outcome),
            "right" if outcome.right else "WRONG",
            "right" if outcome.kind_right else "wrong",
            "never" if outcome.open_delay_s is None else f"{outcome.open_delay_s:.1f}",
            style=None if outcome.right else "bold red",
        )
    for name in result.lacking:
        table.add_row(name, "no fault of this kind of lab", "", "", "", style="dim")
    console = Console(highlight=False)
    console.print(table)
    if result.cut_short is not None:
        console.print(f"cut short: {result.cut_short}", style="bold red", markup=False)
    median_s, bar_s = result.hard_median_s, lab_kind(result.lab).hard_bar_s
    told = "no bar" if bar_s is None else f"bar {bar_s:.0f} s"
    console.print(
        f"component right {result.right_share:.0%} (bar {RIGHT_SHARE:.0%}), "
        f"kind right {result.kind_share:.0%}, hard faults after "
        f"{'–' if median_s is None else f'{median_s:.1f} s'} in the median "
        f"({told}): {'met' if result.met else 'MISSED'}"
    )
    waited = ", ".join(f"{what} {s:.0f} s" for what, s in result.waited_s.items())
    console.print(f"waited for: {waited}", style="dim")
