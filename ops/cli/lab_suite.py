"""How `lab suite` shows its result."""

from rich.console import Console
from rich.table import Table

from ops.bench.suite import RIGHT_SHARE, SuiteResult, verdict
from ops.lab.kind import lab_kind


def show(result: SuiteResult) -> None:
    """Print a row for each injection, and the figures against their bars."""
    table = Table("fault", "verdict", "component", "kind", "seconds", title=f"{result.lab} lab")
    for run in result.runs:
        outcome = run.outcome
        table.add_row(
            run.case.name,
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
    median_s, bar_s = result.hard_median_s, lab_kind(result.lab).hard_bar_s
    told = "no bar" if bar_s is None else f"bar {bar_s:.0f} s"
    console.print(
        f"component right {result.right_share:.0%} (bar {RIGHT_SHARE:.0%}), "
        f"kind right {result.kind_share:.0%}, hard faults after "
        f"{'–' if median_s is None else f'{median_s:.1f} s'} in the median "
        f"({told}): {'met' if result.met else 'MISSED'}"
    )
