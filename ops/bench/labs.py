"""`make bench-labs`: the suite of faults in every kind of lab that this machine can have."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from ops.bench.cases import SUITE
from ops.bench.report import Figure, figure
from ops.bench.suite import RIGHT_SHARE, run_suite
from ops.lab.kind import LAB_KINDS

COMMAND: Final = "make bench-labs"
RUNS: Final = 10

Say = Callable[[str], None]


def suite(lab: str, runs: int, say: Say) -> list[Figure]:
    """Run the suite in one kind of lab; a machine that cannot have it gives no figures."""
    lacking = LAB_KINDS[lab].missing()
    if lacking is not None:
        say(f"no {lab} lab here: {lacking}")
        return []
    result = run_suite(lab, runs=runs, bootstrap=None, say=say)
    rights = [float(run.outcome.right) for run in result.runs]
    kinds = [float(run.outcome.kind_right) for run in result.runs]
    planned = runs * sum(case.in_lab(lab) for case in SUITE)
    put_in = [float(len(rights))]
    rows = [
        # Fewer, where the lab did not become calm again after one of them.
        figure(f"{lab} lab: faults put in", put_in, "", bar=planned, sense=">=", command=COMMAND),
        _share(f"{lab} lab, {len(rights)} faults: right component", rights),
        _share(f"{lab} lab, {len(kinds)} faults: right kind", kinds),
    ]
    bar_s = LAB_KINDS[lab].hard_bar_s
    if bar_s is not None:
        name = f"{lab} lab: hard fault → opened, median"
        delays_s = result.hard_delays_s
        rows.append(figure(name, delays_s, "s", bar=bar_s, sense="<=", command=COMMAND))
    return rows


def _share(name: str, right: list[float]) -> Figure:
    row = figure(name, right, "of runs", bar=RIGHT_SHARE, sense=">=", command=COMMAND)
    return replace(row, value=sum(right) / len(right) if right else None)


PARTS: Final[Mapping[str, Callable[[int, Say], list[Figure]]]] = {
    name: partial(suite, name) for name in LAB_KINDS
}
DEFAULT_RUNS: Final[Mapping[str, int]] = {}
