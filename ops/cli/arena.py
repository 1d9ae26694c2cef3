"""`arena list | run | score | export | report`: simulated incidents with known truth."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import options
from ops.cli.errors import FOUND, USAGE, CliError
from ops.cli.recording_output import Line

if TYPE_CHECKING:
    from arena.reporting.results import Result
    from arena.scenarios.scenario import Scenario
    from arena.scoring import Case, Score

app = typer.Typer(
    no_args_is_help=True,
    help="Simulated incidents with known truth: run them, score diagnosers, export recordings.",
)

Seeds = Annotated[
    int | None,
    typer.Option("--seeds", min=1, metavar="N", help="How often each is drawn anew"),
]
FirstSeed = Annotated[
    int | None,
    typer.Option("--first-seed", min=0, metavar="N", help="Where the seeds begin [the suite's]"),
]


@app.command(name="list")
def list_(*, as_json: options.Json = False) -> None:
    """List suites, kinds of fault and confounder, and diagnosers.

    Example: skeletonhunter arena list
    """
    from arena.baselines.catalogue import BASELINES
    from arena.compare import OURS
    from arena.faults.confounders import CONFOUNDERS
    from arena.faults.kinds import KINDS
    from arena.scenarios.suites import DEFAULT_SEEDS, FIRST_SEED, scenarios

    suites = [
        {
            "suite": name,
            "scenarios": sum(1 for _ in scenarios(name, 1)),
            "seeds": DEFAULT_SEEDS[name],
            "first_seed": FIRST_SEED[name],
        }
        for name in FIRST_SEED
    ]
    kinds = [
        {
            "kind": k.name,
            "at": k.places.value,
            "layer": k.layer.value,
            "hard": k.hard,
            "verdict": k.verdict,
        }
        for k in KINDS.values()
    ]
    if as_json:
        found = {
            "suites": suites,
            "faults": kinds,
            "confounders": list(CONFOUNDERS),
            "diagnosers": [OURS, *BASELINES],
        }
        typer.echo(json.dumps(found))
        return
    for suite in suites:
        typer.echo(
            f"{suite['suite']:<10} {suite['scenarios']:>3} scenarios a seed, "
            f"{suite['seeds']} seeds from {suite['first_seed']:,}"
        )
    typer.echo("\nfaults (at; what a verdict should call it):")
    for kind in kinds:
        how = "hard" if kind["hard"] else "gray"
        typer.echo(f"  {kind['kind']:<24} {kind['at']:<24} {how}  {kind['verdict']}")
    typer.echo(f"\nconfounders: {', '.join(CONFOUNDERS)}")
    typer.echo(f"diagnosers:  {', '.join([OURS, *BASELINES])}, module:Class, or a command line")


@app.command()
def run(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[SCENARIO.toml]...", help="Scenario files; none: a suite"),
    ] = None,
    *,
    suite: Annotated[
        str, typer.Option("--suite", metavar="NAME", help="See `arena list`")
    ] = "smoke",
    seeds: Seeds = None,
    first_seed: FirstSeed = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="DIAGNOSER",
            help="ours, a baseline, module:Class or a command; repeatable [default: ours]; "
            "all: every baseline",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the results go, JSON lines")
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help="Scenarios at a time")
    ] = 1,
    as_json: options.Json = False,
) -> None:
    """Run scenarios through diagnosers and score them.

    Ours is the live pipeline's own code, straight through; the same seed gives the same
    bytes. Ctrl-C ends it with what is done.

    Example: skeletonhunter arena run --suite dev --seeds 2 --workers 2 --out dev.jsonl
    """
    from arena.baselines.plugin import PluginError
    from arena.compare import EVERYONE, OURS, compare
    from arena.reporting.results import to_line

    chosen = list(against or [OURS])
    if "all" in chosen:
        chosen = [*EVERYONE, *(c for c in chosen if c not in ("all", *EVERYONE))]
    wanted = _scenarios(files or [], suite, seeds, first_seed)
    line, results = Line(), []
    try:
        file = None if out is None else out.open("w", encoding="utf-8")
    except OSError as error:
        raise CliError(f"--out {out}: {error.strerror}", USAGE) from error
    try:
        for number, found in enumerate(compare(wanted, chosen, workers=workers), 1):
            results += found
            if file is not None:
                file.writelines(to_line(r) + "\n" for r in found)
                file.flush()
            line.show(f"{number} of {len(wanted)} scenarios, {found[0].case.name}")
            if not as_json:
                line.end()
                for result in found:
                    typer.echo(_sentence(result))
    except PluginError as error:
        raise CliError(str(error)) from error
    except KeyboardInterrupt:
        typer.echo("stopped; what was done is scored", err=True)
    finally:
        line.end()
        if file is not None:
            file.close()
    _print_scores(results, as_json=as_json)
    if len(results) < len(wanted) * len(chosen):
        raise typer.Exit(FOUND)


@app.command()
def score(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="File of `arena run --out`")],
    *,
    as_json: options.Json = False,
) -> None:
    """Score results again: precision, recall, place, kind, delay, false pages, with intervals.

    Example: skeletonhunter arena score dev.jsonl
    """
    _print_scores(_read(results), as_json=as_json)


@app.command()
def export(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml", help="Scenario file")],
    out_dir: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="Folder to make")],
) -> None:
    """Write a scenario as a recording: for `diagnose`, and for `replay` to Kafka.

    With `replay --speed 1` it streams as a live cluster would.

    Example: skeletonhunter arena export incident.toml incident
    """
    from arena.scenarios.scenario import ScenarioError, load, stage
    from ops.recording.export import export as write
    from ops.recording.writer import NotEmptyError
    from schemas.process.signals import stop_flag

    line = Line()
    try:
        made = stage(load(scenario))
        with stop_flag() as stop:
            manifest = write(
                made.world,
                out_dir,
                stop,
                lambda s: line.show(f"{s} of {made.world.seconds} s"),
            )
    except (ScenarioError, NotEmptyError) as error:
        raise CliError(str(error), USAGE) from error
    except OSError as error:
        raise CliError(f"{out_dir}: {error.strerror}; what is in the files is whole") from error
    finally:
        line.end()
    typer.echo(f"{manifest.records:,} records in {out_dir}")
    for fault in made.truth:
        typer.echo(f"truth: {fault.kind} at {', '.join(sorted(fault.components))}")
    if not manifest.complete:
        raise typer.Exit(FOUND)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="File of `arena run --out`")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Page to write, .html")],
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="The same as a picture")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the page")] = "Arena",
) -> None:
    """Draw results on one page: scores, delays, precision and recall, kinds, worst cases.

    The diagnoser that comes first in the file is shown in detail.

    Example: skeletonhunter arena report dev.jsonl --out dev.html --png dev.png
    """
    from arena.reporting.page import write_report

    found = _read(results)
    if not found:
        raise CliError(f"{results} holds no results", USAGE)
    try:
        write_report(found, out, png, title=title)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}", USAGE) from error
    except ImportError as error:
        raise CliError(f"{error}; install `skeletonhunter[arena]`") from error
    typer.echo(f"wrote {out}" + ("" if png is None else f" and {png}"))


def _scenarios(
    files: list[Path], suite: str, seeds: int | None, first_seed: int | None
) -> "list[Scenario]":
    from arena.scenarios.scenario import ScenarioError, load
    from arena.scenarios.suites import FIRST_SEED, scenarios

    try:
        if files:
            return [load(file) for file in files]
        return list(scenarios(suite, seeds, first_seed))
    except ScenarioError as error:
        raise CliError(str(error), USAGE) from error
    except KeyError as error:
        raise CliError(f"--suite {suite!r}: one of {', '.join(FIRST_SEED)}", USAGE) from error


def _read(path: Path) -> "list[Result]":
    from arena.reporting.results import ResultsError, read_results

    try:
        return read_results(path)
    except ResultsError as error:
        raise CliError(str(error), USAGE) from error
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", USAGE) from error


def _sentence(result: "Result") -> str:
    """Return what came of one scenario, in a line."""
    from arena.scoring import match, place_of

    case = result.case
    found = match(case.faults, case.verdicts)
    parts = [
        f"{v.kind} after {(v.opened_ns - f.begin_ns) / 1e9:.1f} s"
        + ("" if place_of(f, v) == 0 else f" (at {v.candidates[0]}, not {min(f.components)})")
        for f, v in found.pairs
    ]
    parts += [f"MISSED {f.kind} at {min(f.components)}" for f in found.missed]
    parts += [f"FALSE {v.kind} at {v.candidates[0]}" for v in found.false]
    return f"{case.name}  {result.diagnoser}: {'; '.join(parts) or 'silent'}"


def _print_scores(results: "Iterable[Result]", *, as_json: bool) -> None:
    from arena.reporting.results import by_diagnoser
    from arena.scoring import scores

    found = {name: scores(cases) for name, cases in by_diagnoser(results).items()}
    delays = {name: _delays(cases) for name, cases in by_diagnoser(results).items()}
    if as_json:
        document: dict[str, Any] = {
            name: {
                "scores": {
                    key: {"value": s.value, "low": s.low, "high": s.high, "of": s.denominator}
                    for key, s in by_name.items()
                },
                "delay_s": delays[name],
            }
            for name, by_name in found.items()
        }
        typer.echo(json.dumps(document))
        return
    for name, by_name in found.items():
        typer.echo(f"\n{name}")
        for one in by_name.values():
            typer.echo(f"  {_row(one)}")
        for how, value in delays[name].items():
            if value is not None:
                typer.echo(f"  {'delay, ' + how:<16} {value:>9.1f} s median")


def _row(one: "Score") -> str:
    if one.value is None:
        return f"{one.name:<16}         – (nothing to divide by)"
    interval = "" if one.low is None or one.high is None else f"  [{one.low:.4f}, {one.high:.4f}]"
    return f"{one.name:<16} {one.value:>9.4f}{interval}  {one.numerator:g} of {one.denominator:g}"


def _delays(cases: "list[Case]") -> dict[str, float | None]:
    from statistics import median

    from arena.scoring import delays_ns

    found = {"hard": delays_ns(cases, hard=True), "gray": delays_ns(cases, hard=False)}
    return {how: median(times) / 1e9 if times else None for how, times in found.items()}


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="arena")
