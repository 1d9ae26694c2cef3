"""The demo's screen: a live table in a terminal, plain lines anywhere else."""

import time
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ops.demo.scoreboard import Scoreboard
from schemas.records import FaultEvent

REFRESH_HZ: Final = 4
# Where there is no terminal, the numbers come as a line now and then.
LINE_EVERY_S: Final = 5.0
MAX_EVIDENCE: Final = 6


class RichScreen:
    """Prints steps and verdicts, and keeps a live table of the numbers under them."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live: Live | None = None
        self._started = time.monotonic()
        self._last_line = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=REFRESH_HZ, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, text: str) -> None:
        """Say what happens now, with the seconds since the start."""
        self._console.print(
            f"{time.monotonic() - self._started:6.1f} s  {text}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    def update(self, board: Scoreboard, since_fault_s: float | None) -> None:
        """Draw the numbers."""
        if self._live is not None:
            self._live.update(_table(board, since_fault_s))
            return
        now = time.monotonic()
        if now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            self.step("    " + ", ".join(f"{name} {value}" for name, value in _rows(board)))

    def verdict(self, fault: FaultEvent, since_fault_s: float) -> None:
        """Show a transition of a fault with its evidence."""
        colour = "green" if fault.resolved_at is not None else "red"
        print_ = self._console.print
        print_(
            f"{time.monotonic() - self._started:6.1f} s  fault {fault.state.value}  "
            f"{fault.component_id}",
            style=f"bold {colour}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        facts = (
            ("component", f"{fault.component_kind} {fault.component_id} ({fault.layer.value})"),
            ("kind", f"{fault.fault_kind}, {fault.severity}"),
            ("confidence", f"{fault.confidence:.2f}{'' if fault.decided else ' (undecided)'}"),
            ("paths", f"{fault.bad_paths} bad, {fault.good_paths} good through it"),
            ("after", f"{since_fault_s:.1f} s"),
            ("summary", fault.summary),
            *(("evidence", text) for text in fault.evidence[:MAX_EVIDENCE]),
        )
        for name, text in facts:
            print_(f"            {name:<11}{text}", highlight=False, markup=False, soft_wrap=True)


def _rows(board: Scoreboard) -> list[tuple[str, str]]:
    return [
        ("probes/s", f"{board.probes_per_s:.0f}"),
        ("loss", f"{board.loss_ratio:.1%}"),
        ("active targets", str(board.targets_active)),
        ("agents", str(board.running_agents)),
        ("5-tuples traced", f"{board.traced_flows} of {board.wanted_flows}"),
        ("lists from the skeleton", str(board.runtime_lists)),
        ("open anomalies", str(board.open_anomalies)),
    ]


def _table(board: Scoreboard, since_fault_s: float | None) -> Table:
    table = Table(show_header=False, box=None, pad_edge=True)
    for name, value in _rows(board):
        table.add_row(name, value)
    if since_fault_s is not None:
        table.add_row("since the last act", f"{since_fault_s:.1f} s")
    return table
