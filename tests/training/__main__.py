"""Real jobs, their verdicts, and PyTorch's own analyzer beside them.

    python -m tests.training --python .venv-training/bin/python          # runs jobs
    python -m tests.training --python .venv-training/bin/python --kept   # the dumps of tests/data

`--json`: a line for each job, and no table. Exit code 1: a verdict is wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.lab.training import ENVIRONMENT
from tests import ROOT
from tests.collective_dumps import CASES, unpack
from tests.training.judged import Analyzed, Judged, analyze, in_form_of_nccl, judge


@dataclass
class Total:
    """Culprits that were found, and innocent ranks that were named, over all jobs."""

    culprits: int = 0
    found: int = 0
    innocent: int = 0

    def count(self, culprits: Sequence[int], named: Sequence[int]) -> None:
        """Add a job."""
        self.culprits += len(culprits)
        self.found += len(set(culprits) & set(named))
        self.innocent += len(set(named) - set(culprits))

    def __str__(self) -> str:
        return f"{self.found} of {self.culprits} culprits, {self.innocent} innocent"


JOB = "tests.training.job"


def jobs(given: argparse.Namespace, work: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Run jobs, and yield name, dumps and truth of each."""
    command = [given.python, "-m", JOB, str(work), "--ranks", str(given.ranks)]
    command += ["--form", given.form, "--culprit", str(given.culprit)]
    command += [] if given.causes is None else ["--causes", given.causes]
    subprocess.run(
        command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    for folder in sorted(path for path in work.iterdir() if path.is_dir()):
        truth = json.loads((folder / "truth.json").read_bytes())
        (folder / "truth.json").unlink()
        yield folder.name, folder, truth


def kept(work: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Unpack the dumps that are kept, and yield name, dumps and truth of each."""
    for name in CASES:
        case = unpack(name, work / name)
        yield name, case.folder, case.truth


@dataclass(frozen=True)
class Row:
    """A job: what was wrong, and what each of the three said."""

    job: str
    culprits: tuple[int, ...]
    judged: Judged
    peer: Analyzed
    beside: Analyzed

    @property
    def named(self) -> tuple[tuple[int, ...], ...]:
        """Whom each of them names."""
        return self.judged.named, self.peer.named, self.beside.named

    def as_table(self) -> str:
        """Return it as a row of the table."""
        said = ", ".join(map(str, self.judged.named))
        said = f"{self.judged.said}: {said}" if said else self.judged.said
        right = "yes" if self.judged.is_right else "**no**"
        who = ", ".join(map(str, self.culprits)) or "none"
        return f"| {self.job} | {who} | {said} | {right} | {self.peer} | {self.beside} |"

    def as_json(self) -> str:
        """Return it as `ops.bench.collectives.peers` reads it."""
        ours, theirs, in_form_of_nccl = self.named
        return json.dumps(
            {
                "job": self.job, "culprits": self.culprits, "said": self.judged.said,
                "right": self.judged.is_right, "ours": ours, "theirs": theirs,
                "theirs_in_form_of_nccl": in_form_of_nccl,
            }
        )  # fmt: skip


def judge_all(
    found: Iterator[tuple[str, Path, dict[str, Any]]], python: str, work: Path
) -> Iterator[Row]:
    """Let all three look at the dumps of each job."""
    for name, dumps, truth in found:
        peer = analyze(python, dumps, work / "peer" / name)
        if any(path.read_bytes().startswith(b"{") for path in dumps.iterdir()):
            beside = Analyzed((), "reads no JSON")
        else:
            like = in_form_of_nccl(dumps, truth, work / "like" / name)
            beside = analyze(python, like, work / "beside" / name)
        yield Row(name, tuple(truth["culprits"]), judge(dumps, truth), peer, beside)


def main() -> None:
    """Print a table; each row is a job."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="of an environment with PyTorch")
    parser.add_argument("--kept", action="store_true", help="judge the dumps of tests/data")
    parser.add_argument("--causes", help="comma-separated [default: all]")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--form", choices=("pickle", "json"), default="pickle")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each job")
    given = parser.parse_args()
    totals = [Total(), Total(), Total()]
    wrong = 0
    if not given.json:
        print("| job | culprit | `job diagnose` | right | `torchfrtrace` | in NCCL's form |")
        print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        found = kept(work / "jobs") if given.kept else jobs(given, work / "jobs")
        for row in judge_all(found, given.python, work):
            wrong += not row.judged.is_right
            for total, named in zip(totals, row.named, strict=True):
                total.count(row.culprits, named)
            print(row.as_json() if given.json else row.as_table(), flush=True)
    ours, theirs, beside_total = totals
    if not given.json:
        print(f"| **all** | | {ours} | {wrong} wrong | {theirs} | {beside_total} |")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
