"""What a diagnosis of a real job must say, and what PyTorch's own analyzer says of it."""

import ast
import pickle
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from localizer.collectives.diagnosis import Diagnosis, HangClass, diagnose
from ops.jobs.dumps import read_dumps

# Ranks do different things: with gloo one of them may be ended by that.
DIFFERENT: Final = ("size", "order", "skipped", "type", "dtype", "splits")
CLASSES: Final = {
    "stalled": HangClass.NEVER_LAUNCHED,
    "stopped": HangClass.MISSING_DUMP,
    "exited": HangClass.MISSING_DUMP,
    **dict.fromkeys(DIFFERENT, HangClass.DESYNCHRONISED),
}
ANALYZER: Final = "torch.distributed.flight_recorder.fr_trace"
_LAST_NUMBER: Final = re.compile(r"\d+$")


@dataclass(frozen=True)
class Judged:
    """A verdict beside the truth."""

    said: str
    named: tuple[int, ...]
    is_right: bool


def judge(folder: Path, truth: dict[str, Any]) -> Judged:
    """Diagnose a job's dumps and hold the verdict against the truth.

    A culprit that is gone without a dump cannot be seen to do something else: it is to be missed.
    """
    found = diagnose(read_dumps(folder).snapshots)
    named = _named(found)
    culprits = tuple(truth["culprits"])
    if truth["cause"] == "slow":
        slow = found.slow_rank
        said = "nothing" if slow is None else "slow_rank"
        named = () if slow is None else (slow.rank,)
        return Judged(said, named, not found.hangs and named == culprits)
    expected = CLASSES.get(truth["cause"])
    if truth["cause"] in DIFFERENT and set(culprits) & set(found.without_dump):
        expected = HangClass.MISSING_DUMP
    classes = [f.hang_class for f in found.findings if f.hang_class is not HangClass.USUAL_WAIT]
    said = " and ".join(classes) or "nothing"
    right = classes == ([] if expected is None else [expected])
    return Judged(said, named, right and named == culprits and found.slow_rank is None)


def _named(found: Diagnosis) -> tuple[int, ...]:
    hangs = [f for f in found.findings if f.hang_class is not HangClass.USUAL_WAIT]
    return tuple(sorted({rank for finding in hangs for rank in finding.ranks}))


@dataclass(frozen=True)
class Analyzed:
    """Whom PyTorch's analyzer names, or why it does not come to that."""

    named: tuple[int, ...]
    failure: str | None = None

    def __str__(self) -> str:
        if self.failure is not None:
            return self.failure
        return f"names {', '.join(map(str, self.named))}" if self.named else "names nobody"


def analyze(python: str, folder: Path, work: Path) -> Analyzed:
    """Run PyTorch's analyzer over copies under the names that it takes.

    Where it asks for the dumps of all ranks, it is asked again to do without.
    """
    work.mkdir(parents=True)
    for path in folder.iterdir():
        if number := _LAST_NUMBER.search(path.name):
            (work / f"trace_{number[0]}").write_bytes(path.read_bytes())
    named: set[int] = set()
    text, code = _run_analyzer(python, work)
    if missing := re.search(r"Missing dump files from ranks (\{[\d, ]+\})", text):
        named |= ast.literal_eval(missing[1])
        text, code = _run_analyzer(python, work, "--allow-incomplete-ranks")
    if code:
        error = text.strip().splitlines()[-1].partition(":")[0].rpartition(".")[2]
        return Analyzed((), f"ends with {error}")
    named |= {int(rank) for rank in re.findall(r"Culprit rank (\d+)", text)}
    for ranks in re.findall(r"missing ranks: (\{[\d, ]+\})", text):
        named |= ast.literal_eval(ranks)
    return Analyzed(tuple(sorted(named)))


def _run_analyzer(python: str, work: Path, *more: str) -> tuple[str, int]:
    done = subprocess.run(
        [python, "-m", ANALYZER, str(work), "--prefix", "trace_", *more],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr, done.returncode


def in_form_of_nccl(folder: Path, truth: dict[str, Any], work: Path) -> Path:
    """Write gloo's dumps as NCCL's would be, with the members of groups, which gloo lacks."""
    work.mkdir(parents=True)
    for path in folder.iterdir():
        content = path.read_bytes()
        if not content.startswith(b"\x80"):
            raise ValueError(f"{path.name} is no pickle")
        # These are dumps of our own job.
        document = pickle.loads(content)  # noqa: S301
        number = _LAST_NUMBER.search(path.name)
        assert number
        groups = {"0": ("default_pg", list(range(truth["ranks"])))}
        for entry in document["entries"]:
            name, kind = entry["process_group"]
            for label, ranks in truth["groups"].items():
                if label.startswith(kind) and int(number[0]) in ranks:
                    groups[name] = (kind, ranks)
            entry["profiling_name"] = entry["profiling_name"].replace("gloo:", "nccl:")
            entry["state"] = "completed" if entry["retired"] else "started"
            if entry["retired"]:
                entry["time_discovered_completed_ns"] = entry["time_created_ns"] + 1
        document["pg_config"] = {
            name: {"name": name, "desc": kind, "ranks": str(ranks)}
            for name, (kind, ranks) in groups.items()
        }
        (work / path.name).write_bytes(pickle.dumps(document, protocol=2))
    return work
