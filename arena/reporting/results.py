"""Results on disk: JSON lines, one for each diagnoser and scenario.

Truth and verdicts stand in a line as they are in `arena.faults.truth`, times in ns of event time.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from arena.faults.truth import TrueFault, Verdict
from arena.scoring import Case
from schemas.enums import Layer

VERSION: Final = 1


class ResultsError(ValueError):
    """A file of results that cannot be read; the message names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one diagnoser made of one scenario; `seed` is the scenario's."""

    diagnoser: str
    seed: int
    case: Case


def write_results(path: Path, results: Iterable[Result]) -> int:
    """Write results, each as soon as it comes; return how many."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for result in results:
            file.write(to_line(result) + "\n")
            file.flush()
            count += 1
    return count


def read_results(path: Path) -> list[Result]:
    """Read results.

    Raises
    ------
    ResultsError
        If a line is none.
    """
    return list(_read(path))


def _read(path: Path) -> Iterator[Result]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield from_line(line)
            except (ValueError, KeyError, TypeError) as error:
                raise ResultsError(f"{path}, line {number}: no result ({error!r})") from error


def by_diagnoser(results: Iterable[Result]) -> dict[str, list[Case]]:
    """Return the cases of each diagnoser, in the order in which they come."""
    found: dict[str, list[Case]] = {}
    for result in results:
        found.setdefault(result.diagnoser, []).append(result.case)
    return found


def to_line(result: Result) -> str:
    """Return a result as JSON: the same result, the same bytes."""
    case = result.case
    return json.dumps(
        {
            "version": VERSION,
            "diagnoser": result.diagnoser,
            "scenario": case.name,
            "seed": result.seed,
            "duration_ns": case.duration_ns,
            "probes": case.probes,
            "faults": [_fault(f) for f in case.faults],
            "verdicts": [asdict(v) for v in case.verdicts],
        },
        ensure_ascii=False,
    )


def from_line(line: str) -> Result:
    """Return the result that a line holds."""
    row: dict[str, Any] = json.loads(line)
    if row["version"] != VERSION:
        raise ValueError(f"version {row['version']!r}, known: {VERSION}")
    case = Case(
        name=row["scenario"],
        faults=tuple(
            TrueFault(**f | {
                "layer": Layer(f["layer"]), "components": frozenset(f["components"]),
                "also_kinds": frozenset(f["also_kinds"]),
            })
            for f in row["faults"]
        ),
        verdicts=tuple(
            Verdict(**v | {"layer": Layer(v["layer"]), "candidates": tuple(v["candidates"])})
            for v in row["verdicts"]
        ),
        duration_ns=row["duration_ns"],
        probes=row["probes"],
    )  # fmt: skip
    return Result(diagnoser=row["diagnoser"], seed=row["seed"], case=case)


def _fault(fault: TrueFault) -> dict[str, Any]:
    return asdict(fault) | {
        "components": sorted(fault.components),
        "also_kinds": sorted(fault.also_kinds),
    }
