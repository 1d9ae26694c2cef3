"""Prints what the inference reached on each layout."""

import pytest

from tests.unit.skeleton_job.inference import TABLE


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one row for each layout that a test measured."""
    if not TABLE:
        return
    terminalreporter.section("traffic skeletons on generated jobs")
    terminalreporter.line(
        f"{'layout':<78} {'degrees':>7} {'stages':>6} {'recall':>6} {'length':>6} {'conf':>5}"
    )
    for row in TABLE:
        terminalreporter.line(
            f"{row.layout!s:<78} {'ok' if row.degrees else 'WRONG':>7} "
            f"{'ok' if row.stages else 'no':>6} {row.recall:>6.3f} {row.ratio:>6.2f} "
            f"{row.found.confidence:>5.2f}"
        )
