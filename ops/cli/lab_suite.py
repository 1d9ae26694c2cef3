"""How `lab suite` shows its result."""

from rich.console import Console
from rich.table import Table

from ops.bench.suite import HARD_MEDIAN_S, RIGHT_SHARE, SuiteResult, verdict


def show(result: SuiteResult) -> None:
    """Print a row for each injection, and the figures against their bars."""
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
    median_s = result.hard_median_s
    console.print(
        f"component right {result.right_share:.0%} (bar {RIGHT_SHARE:.0%}), "
        f"kind right {result.kind_share:.0%}, hard faults after "
        f"{'–' if median_s is None else f'{median_s:.1f} s'} in the median "
        f"(bar {HARD_MEDIAN_S:.0f} s): {'met' if result.met else 'MISSED'}"
    )
    waited = ", ".join(f"{what} {s:.0f} s" for what, s in result.waited_s.items())
    console.print(f"waited for: {waited}", style="dim")
