"""`job diagnose` beside `torchfrtrace`, PyTorch's own analyzer, on the same dumps of real jobs.

The dumps are those of the repository, with one fault each; `python -m tests.training --kept` lets
both look at them. The analyzer reads NCCL's dumps and ends at gloo's: it is also given copies in
NCCL's form, to which the members of groups were added that gloo does not record.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ops.bench.collectives.needed import lacks_torch
from ops.bench.rig.report import Figure, Say, figure
from ops.lab.frameworks import ROOT, job_python

COMMAND: Final = ("-m", "tests.training", "--kept", "--json")
OURS: Final = "ours"
PEERS: Final = {
    "theirs": "torchfrtrace, the same dumps",
    "theirs_in_form_of_nccl": "torchfrtrace, in NCCL's form",
}
TIMEOUT_S: Final = 1_800.0


@dataclass(frozen=True, slots=True)
class Named:
    """Culprits that one of them named over all jobs, and ranks that did nothing wrong."""

    culprits: int
    innocent: int


def count(jobs: Sequence[dict[str, Any]], who: str) -> Named:
    """Add up whom one of them named."""
    return Named(
        sum(len(set(job["culprits"]) & set(job[who])) for job in jobs),
        sum(len(set(job[who]) - set(job["culprits"])) for job in jobs),
    )


def figures(jobs: Sequence[dict[str, Any]]) -> list[Figure]:
    """Return the rows: ours must name more culprits than any of theirs, and fewer others."""
    all_culprits = sum(len(job["culprits"]) for job in jobs)
    ours = count(jobs, OURS)
    theirs = {name: count(jobs, key) for key, name in PEERS.items()}
    # An analyzer that ends at the dumps names nobody, rightly or wrongly.
    beside = theirs[PEERS["theirs_in_form_of_nccl"]]
    most = max(named.culprits for named in theirs.values())
    right = sum(job["right"] for job in jobs)

    def row(name: str, value: int, unit: str, bar: int | None, sense: Any = "<=") -> Figure:
        return figure(name, [float(value)], unit, None if bar is None else float(bar), sense)

    of_all = f"of {all_culprits} culprits"
    rows = [
        row("job diagnose, kept dumps: named", ours.culprits, of_all, most + 1, ">="),
        row("… innocent ranks named", ours.innocent, "", max(0, beside.innocent - 1)),
        row("… class and ranks right", right, f"of {len(jobs)} jobs", None),
    ]
    for name, named in theirs.items():
        rows += [
            row(f"{name}: named", named.culprits, of_all, None),
            row("… innocent ranks named", named.innocent, "", None),
        ]
    return rows


def measure(runs: int, say: Say) -> list[Figure]:
    """Let both look at the kept dumps, once, if there is PyTorch; `runs` does not change that.

    Raises
    ------
    RuntimeError
        If the command ends without a verdict.
    """
    del runs
    if lacks_torch(say):
        return []
    done = subprocess.run(
        [sys.executable, *COMMAND, "--python", str(job_python(None))],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    # 1: a verdict is wrong, which a row says.
    if done.returncode > 1 or not lines:
        raise RuntimeError(f"python {' '.join(COMMAND)} ended: {done.stderr[-1_000:]}")
    jobs = [json.loads(line) for line in lines]
    for job in jobs:
        say(f"{job['job']}: {job['culprits']}, {'right' if job['right'] else 'WRONG'}")
    return figures(jobs)
