"""`make bench-labs`: the suite of faults in every kind of lab that this machine can have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ops.bench.labs.turns import Kept, Turns
from ops.bench.rig.report import BUILD_DIR, Figure, figure
from ops.lab.kind import LAB_KINDS
from ops.lab.suite.cases import SUITE
from ops.lab.suite.suite import RIGHT_SHARE, run_suite

COMMAND: Final = "make bench-labs"
RUNS: Final = 10
# `--resume` is theirs: two hours and more in the emulated lab.
RESUMES: Final = True

Say = Callable[[str], None]


def suite(lab: str, runs: int, say: Say, *, resume: bool) -> list[Figure]:
    """Run the suite in one kind of lab; a machine that cannot have it gives no figures.

    Where a lab does not become calm again, the rest of the turn is left out and the next turn
    has a new one.
    """
    lacking = LAB_KINDS[lab].missing()
    if lacking is not None:
        say(f"no {lab} lab here: {lacking}")
        return []
    turns = Turns(BUILD_DIR, lab)
    turn = turns.begin(resume=resume)
    while turn < runs:
        result = run_suite(
            lab, runs=runs, first=turn, bootstrap=None, say=say, found=turns.add, ended=turns.end
        )
        turn = result.next_turn
    return figures(lab, runs, list(turns.runs()))


def figures(lab: str, runs: int, kept: Sequence[Kept]) -> list[Figure]:
    """Return the figures of what was kept of so many turns."""
    planned = runs * sum(case.in_lab(lab) for case in SUITE)
    put_in = [float(len(kept))]
    rows = [
        # Fewer, where the lab did not become calm again after one of them.
        figure(f"{lab} lab: faults put in", put_in, "", bar=planned, sense=">=", command=COMMAND),
        _share(f"{lab} lab: right component", [float(run.right) for run in kept]),
        _share(f"{lab} lab: right kind", [float(run.kind_right) for run in kept]),
    ]
    bar_s = LAB_KINDS[lab].hard_bar_s
    if bar_s is not None:
        name = f"{lab} lab: hard fault → opened, median"
        delays_s = [run.delay_s for run in kept if run.hard]
        rows.append(figure(name, delays_s, "s", bar=bar_s, sense="<=", command=COMMAND))
    return rows


def _share(name: str, right: list[float]) -> Figure:
    row = figure(name, right, "of runs", bar=RIGHT_SHARE, sense=">=", command=COMMAND)
    return replace(row, value=sum(right) / len(right) if right else None)


PARTS: Final[Mapping[str, Callable[..., list[Figure]]]] = {
    name: partial(suite, name) for name in LAB_KINDS
}
DEFAULT_RUNS: Final[Mapping[str, int]] = {}
