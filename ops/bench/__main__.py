"""Measure a benchmark by name: a table, JSON, a page under docs/; exit 1 if a bar is missed."""

import argparse
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ops.bench import labs
from ops.bench.accuracy import accuracy
from ops.bench.agent import agent, soak
from ops.bench.collectives import arena, collectives
from ops.bench.operator import operator
from ops.bench.pipeline import pipeline
from ops.bench.resilience import resilience
from ops.bench.rig.report import (
    Figure,
    kept_rows,
    merged,
    print_table,
    render_page,
    write_json,
)
from ops.bench.rig.yardstick import yardstick_s
from ops.bench.scale import scale
from ops.bench.throughput import throughput
from schemas.process.signals import interruptible

BENCHES: Final = {
    "pipeline": pipeline,
    "accuracy": accuracy,
    "labs": labs,
    "collectives": collectives,
    "scale": scale,
    "agent": agent,
    "soak": soak,
    "throughput": throughput,
    "resilience": resilience,
    "operator": operator,
}
# The soak's table stands beside the agent's others.
PAGES: Final = {name: Path("docs/figures") / f"{name}.md" for name in BENCHES} | {
    "soak": Path("docs/figures") / "agent.md",
    "throughput": Path("docs/figures") / "performance.md",
    "scale": Path("docs/figures") / "scaling.md",
}


def machine() -> str:
    """Return what the figures were measured on, without naming the machine."""
    system = f"{platform.system()} {platform.machine()}"
    return (
        f"{os.cpu_count()} cores, {system}, Python {platform.python_version()}, "
        f"yardstick {yardstick_s():.2f} s of CPU (`ops/bench/rig/yardstick.py`)"
    )


def progress(text: str) -> None:
    """Print a line of progress at once."""
    print(text, file=sys.stderr, flush=True)


def _parts() -> str:
    return "; ".join(f"{name}: {', '.join(bench.PARTS)}" for name, bench in BENCHES.items())


def _further(
    parser: argparse.ArgumentParser, options: argparse.Namespace, causes: tuple[str, ...]
) -> Callable[[str], dict[str, Any]]:
    """Check the options that some benches have alone; return what each part is given of them."""
    bench = BENCHES[options.name]
    timed, some = hasattr(bench, "LASTS_S"), hasattr(bench, "SOME")
    if options.seconds is not None and not (timed and options.seconds > 0):
        parser.error("--seconds: a number above 0, for agent and soak only")
    if options.resume and not hasattr(bench, "RESUMES"):
        parser.error("--resume: for labs only")
    if (causes or options.keep or options.hours is not None) and not some:
        parser.error("--causes, --keep, --hours: for collectives only")
    if options.hours is not None and options.hours <= 0:
        parser.error("--hours: a number above 0")
    if unknown := set(causes) - set(getattr(bench, "SOME", ())):
        parser.error(f"--causes {', '.join(sorted(unknown))}: there are {', '.join(bench.SOME)}")

    def of(part: str) -> dict[str, Any]:
        if timed:
            return {"seconds": options.seconds or bench.LASTS_S}
        if hasattr(bench, "RESUMES"):
            return {"resume": options.resume}
        if some and part == arena.NAME:
            return {"hours": options.hours or arena.HOURS}
        return {"causes": causes, "keep": options.keep} if some and part in bench.SOME_OF else {}

    return of


def main() -> int:
    """Run the benchmark named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench", description=__doc__)
    parser.add_argument("name", choices=sorted(PAGES))
    parser.add_argument(
        "--only",
        metavar="PART",
        action="append",
        help="measure this part only, or these, with commas between them (may be given again); "
        f"figures of other parts are kept from earlier runs. {_parts()}",
    )
    parser.add_argument("--runs", type=int, help="runs of each part that has several")
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"agent: how long the broker is away ({agent.LASTS_S:.0f}); "
        f"soak: how long it lasts ({soak.LASTS_S:.0f})",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="labs: go on after the last whole turn of an earlier run that was broken off",
    )
    parser.add_argument(
        "--causes",
        help="collectives: of these only, with commas between them; the page is left as it is. "
        f"{', '.join(collectives.SOME)}",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER",
        help="collectives: record all topics of the live part there, with what was put in when",
    )  # fmt: skip
    parser.add_argument(
        "--hours",
        type=float,
        help=f"collectives: how long the arena's healthy jobs go on together, simulated "
        f"({arena.HOURS:g})",
    )
    options = parser.parse_args()
    bench = BENCHES[options.name]
    causes = tuple(name.strip() for name in (options.causes or "").split(",") if name)
    further = _further(parser, options, causes)
    only = [part.strip() for given in options.only or () for part in given.split(",")]
    for part in only:
        if part not in bench.PARTS:
            parser.error(f"--only {part}: {_parts()}")
    page = PAGES[options.name]
    figures: list[Figure] = []
    rows: list[Figure] = []
    with interruptible():
        for part in only or bench.PARTS:
            progress(f"== {part}")
            runs = options.runs or bench.DEFAULT_RUNS.get(part, bench.RUNS)
            measured = bench.PARTS[part](runs, progress, **further(part))
            figures += [replace(row, command=bench.COMMAND) for row in measured]
            # After each part: what was measured is kept, whatever happens to the next.
            rows = merged(figures, kept_rows(options.name, page, bench.COMMAND))
            if not causes:
                write_json(options.name, rows)
    notes = getattr(bench, "NOTES", ())
    print_table(options.name, figures if causes else rows, notes)
    if causes:
        return 0 if all(row.met for row in figures) else 1
    # Where nothing could be measured the page tells of no run today.
    if figures:
        render_page(page, rows, bench.COMMAND, machine(), notes)
        if hasattr(bench, "draw"):
            bench.draw(rows)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
