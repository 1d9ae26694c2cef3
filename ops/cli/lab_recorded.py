"""`lab record-suite` and `lab score`: labelled recordings of real faults, made and judged."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import options
from ops.cli.errors import DAMAGED, USAGE, CliError
from ops.cli.lab_errors import own_lab

if TYPE_CHECKING:
    from ops.recording.labelled import Judged


def record_suite(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the recordings")],
    *,
    kind: Annotated[str, typer.Option(help="Kind of lab: loopback, netns or rxe")] = "netns",
    only: Annotated[
        str | None,
        typer.Option(help="Groups, with commas: hard, gray, queues, confounders [default: all]"),
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(help="Use this Kafka [default: start Apache Kafka]")
    ] = None,
) -> None:
    """Put labelled faults in a lab, one after another, and record what its agents report.

    Each group of faults becomes `OUT/KIND-GROUP.tar.xz`, with its truth in
    `OUT/KIND-GROUP.truth.json`; 80 minutes for all of them. Nothing decides meanwhile:
    `lab score OUT` does, as often as you like.

    Example: skeletonhunter lab record-suite faults --only gray
    """
    from ops.lab.suite.record import record_suite as record
    from ops.lab.suite.recorded import RECORDED

    groups = list(RECORDED) if only is None else [g.strip() for g in only.split(",")]
    unknown = [group for group in groups if group not in RECORDED]
    if unknown:
        raise CliError(f"--only {unknown[0]!r}: some of {', '.join(RECORDED)}", USAGE)
    recorded = {group: RECORDED[group] for group in groups}
    with own_lab(kind) as say:
        try:
            record(kind, out, bootstrap=bootstrap, recorded=recorded, say=say)
        except FileExistsError as error:
            raise CliError(str(error), USAGE) from error


def score(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with recordings and their truths")
    ],
    *,
    config: options.Config = None,
    as_json: options.Json = False,
) -> None:
    """Diagnose labelled recordings: what was found, missed, and named without a reason.

    Takes each `NAME.truth.json` with the recording `NAME.tar.xz` or `NAME/` beside it,
    decides with the [worker] and [localizer] tables of the config file, and scores as the
    arena does. Verdicts that page nobody are false of none.

    Example: skeletonhunter lab score tests/data/labelled
    """
    from arena.scoring import delays_ns, scores
    from localizer.config import build_config as localizer_config
    from ops.recording.labelled import LabelledError, judge_folder
    from schemas.process.settings import read_table
    from schemas.units import SECOND_NS
    from streams.config import build_config as worker_config

    detection = worker_config({}, read_table(config, "worker")).detection()
    localizer = localizer_config({}, read_table(config, "localizer"))
    found: list[Judged] = []
    try:
        for one in judge_folder(folder, detection, localizer, lambda _: None):
            found.append(one)
            if not as_json:
                _show(one)
    except LabelledError as error:
        raise CliError(str(error), DAMAGED) from error
    cases = [one.case for one in found]
    ratios = scores(cases)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "recordings": [_as_dict(one) for one in found],
                    "scores": {name: asdict(ratio) for name, ratio in ratios.items()},
                    "delays_s": [ns / SECOND_NS for ns in delays_ns(cases)],
                }
            )
        )
        return
    _totals(ratios, [ns / SECOND_NS for ns in delays_ns(cases)])


def _show(one: "Judged") -> None:
    """Print a line for each fault, each false verdict and each fault that was not put in."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "fault", "at", "component", "verdict", "place", "kind", "seconds",
        title=f"{one.labels.recording}, {one.labels.duration_s / 60:.0f} minutes",
    )  # fmt: skip
    for row in _rows(one):
        good = row["outcome"] == "found" and row["place"] == 1 and row["kind_right"]
        table.add_row(
            str(row["fault"] or "–"),
            f"{row['at_s']:.0f} s",
            str(row["component"] or "–"),
            str(row["verdict"] or row["outcome"]),
            "–" if row["place"] is None else str(row["place"]),
            {True: "right", False: "wrong", None: "–"}[row["kind_right"]],
            "–" if row["delay_s"] is None else f"{row['delay_s']:.1f}",
            style=None if good else "bold red",
        )
    console = Console(highlight=False)
    console.print(table)
    for label in one.labels.confounders:
        where, what = ", ".join(label.components), label.name or label.kind
        to = "the end" if label.to_s is None else f"{label.to_s:.0f} s"
        console.print(f"  no fault: {what} at {where}, {label.from_s:.0f} s to {to}", markup=False)
    for left_out in one.labels.left_out:
        console.print(f"  left out: {left_out}", markup=False)


def _rows(one: "Judged") -> Sequence[dict[str, Any]]:
    """Return faults and false verdicts as rows, in the order of time."""
    from arena.scoring import place_of
    from schemas.units import SECOND_NS

    start_ns = one.labels.start_ns
    rows: list[dict[str, Any]] = []
    for fault, verdict in one.matching.pairs:
        place = place_of(fault, verdict)
        rows.append(
            {
                "outcome": "found",
                "fault": fault.fault_id,
                "true_kind": fault.kind,
                "at_s": (fault.begin_ns - start_ns) / SECOND_NS,
                "component": min(fault.components),
                "verdict": f"{verdict.candidates[0]}: {verdict.kind}",
                "place": None if place is None else place + 1,
                "kind_right": verdict.kind == fault.kind or verdict.kind in fault.also_kinds,
                "delay_s": (verdict.opened_ns - fault.begin_ns) / SECOND_NS,
            }
        )
    nothing = {"verdict": None, "place": None, "kind_right": None, "delay_s": None}
    for fault in one.matching.missed:
        at_s = (fault.begin_ns - start_ns) / SECOND_NS
        row = {
            "fault": fault.fault_id,
            "true_kind": fault.kind,
            "at_s": at_s,
            "component": min(fault.components),
        }
        rows.append(nothing | row | {"outcome": "MISSED"})
    for verdict in one.matching.false:
        at_s = (verdict.opened_ns - start_ns) / SECOND_NS
        said = f"FALSE {verdict.candidates[0]}: {verdict.kind}"
        row = {"fault": None, "true_kind": None, "at_s": at_s, "component": None, "verdict": said}
        rows.append(nothing | row | {"outcome": "false"})
    return sorted(rows, key=lambda row: float(row["at_s"]))


def _as_dict(one: "Judged") -> dict[str, Any]:
    return {
        "recording": one.labels.recording,
        "duration_s": one.labels.duration_s,
        "rows": list(_rows(one)),
        "confounders": [asdict(label) for label in one.labels.confounders],
        "left_out": list(one.labels.left_out),
    }


def _totals(ratios: dict[str, Any], delays_s: list[float]) -> None:
    import statistics

    for name in ("recall_hard", "recall_gray", "precision", "top1", "kind"):
        ratio = ratios[name]
        value = "–" if ratio.value is None else f"{ratio.value:.3f}"
        typer.echo(f"{name:>12}  {value}  ({ratio.numerator:.0f} of {ratio.denominator:.0f})")
    typer.echo(f" false pages  {ratios['false_pages'].numerator:.0f}")
    if delays_s:
        typer.echo(f"delay median  {statistics.median(delays_s):.1f} s")
