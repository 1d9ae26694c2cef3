"""What each turn of a suite of faults gave, kept on disk as it comes.

Ten turns in an emulated lab take hours: what was measured outlives Ctrl-C, a lab that does not
become calm again, and a machine that is needed for something else meanwhile.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ops.lab.suite.suite import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the figures need of one injection; a fault without verdict has its timeout as delay."""

    turn: int
    case: str
    target: str
    hard: bool
    delay_s: float
    right: bool
    kind_right: bool
    verdicts: list[list[str]]


class Turns:
    """The turns of one kind of lab: `PATH-LAB.jsonl`, a line for each fault and each turn's end."""

    def __init__(self, folder: Path, lab: str) -> None:
        self.path = folder / f"labs-{lab}-runs.jsonl"

    def begin(self, *, resume: bool) -> int:
        """Return the number of the turn to go on with.

        Without `resume` what was kept is dropped, with it only a turn that did not end.
        """
        kept: list[str] = []
        ended = 0
        if resume and self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            for number, line in enumerate(lines, start=1):
                if "ended" in json.loads(line):
                    kept, ended = lines[:number], json.loads(line)["ended"] + 1
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(kept), encoding="utf-8")
        return ended

    def add(self, turn: int, run: Run) -> None:
        """Keep one injection."""
        outcome = run.outcome
        late_s = run.case.timeout_s if outcome.open_delay_s is None else outcome.open_delay_s
        self._write(
            asdict(
                Kept(
                    turn=turn,
                    case=run.case.name,
                    target=run.case.target,
                    hard=run.case.hard,
                    delay_s=late_s,
                    right=outcome.right,
                    kind_right=outcome.kind_right,
                    verdicts=[list(verdict) for verdict in outcome.verdicts],
                )
            )
        )

    def end(self, turn: int, cut_short: str | None) -> None:
        """Note that a turn is over, and why some of its faults were not put in."""
        self._write({"ended": turn, "cut_short": cut_short})

    def runs(self) -> Iterator[Kept]:
        """Give what was kept, in its order."""
        for line in self.path.read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            if "ended" not in fields:
                yield Kept(**fields)

    def _write(self, fields: dict[str, object]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")
