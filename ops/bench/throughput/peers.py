"""The workers compared with Faust by message, Quix Streams and Faust's own consumer."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Figure, Say
from ops.bench.throughput.peer_windows import TOPIC, WINDOWS
from ops.bench.throughput.report import MEGA, WORKERS, costs, describe, row
from ops.bench.throughput.rig import FilledTopics, Rig, Run
from ops.running.processes import Child
from schemas.kafka.connection import KafkaSettings
from schemas.topics import PROBE_ROUND

PYTHON_ENV: Final = "SKELETONHUNTER_BENCH_PYTHON"
# What `make bench-throughput` prepares.
QUIX_PYTHON: Final = Path(".venv-bench") / "bin" / "python"
PARTITIONS: Final = 4
# Ours: two seconds of what the bar asks for. Theirs: what ten seconds of the quickest would take.
OURS: Final = LoadShape(agents=400, bodies=12)
OURS_INTERVALS: Final = 400
THEIRS: Final = LoadShape(agents=60, bodies=8)
THEIRS_INTERVALS: Final = 85
MOST_S: Final = 15.0
# 20 results, 1 KB: the source's cost is by message.
SOURCE: Final = LoadShape(agents=1_000, rnics=2, bodies=8)
SOURCE_INTERVALS: Final = 400

# Starts a process of a group, given its number and the group's name.
Starter = Callable[[int, str], Child]


def quix_python() -> Path | None:
    """Return the interpreter that has Quix Streams; None: there is none here."""
    path = Path(os.environ.get(PYTHON_ENV, QUIX_PYTHON))
    if not path.exists():
        return None
    asked = subprocess.run(
        [path, "-c", "import quixstreams, fastavro"], capture_output=True, check=False
    )
    return path.absolute() if asked.returncode == 0 else None


def _where(settings: KafkaSettings) -> tuple[str, ...]:
    return "--bootstrap", settings.bootstrap, "--prefix", settings.topic_prefix


def faust(rig: Rig, settings: KafkaSettings, *more: str) -> Starter:
    """Return what starts Faust on probes, or with `--rounds` on rounds."""
    return lambda _number, group: rig.begin(
        "ops.bench.throughput.peer_faust", *_where(settings), "--group", group, *more
    )


def quix_streams(rig: Rig, settings: KafkaSettings, python: Path) -> Starter:
    """Return what starts Quix Streams on probes, each process with a state of its own."""
    return lambda number, group: rig.begin(
        "ops.bench.throughput.peer_quix", *_where(settings), "--group", group,
        "--state", str(rig.folder / f"{group}-{number}"), python=str(python),
    )  # fmt: skip


def batch_source(rig: Rig, settings: KafkaSettings) -> Starter:
    """Return what starts the batch source on rounds."""
    return lambda _number, group: rig.begin(
        "ops.bench.throughput.children", "source", *_where(settings), "--group", group
    )


def fill_probes(rig: Rig, settings: KafkaSettings, shape: LoadShape, intervals: int) -> int:
    """Make the peers' topics and fill them; return the number of probes."""
    rig.make_topics(settings, (TOPIC, WINDOWS), PARTITIONS)
    said = rig.child(
        "ops.bench.throughput.children", "fill-probes", *_where(settings), "--shape", shape.text(),
        "--intervals", str(intervals),
    )  # fmt: skip
    return int(said["messages"])


def run_programs(
    rig: Rig,
    settings: KafkaSettings,
    topic: str,
    start: Starter,
    *,
    most_s: float,
    processes: int = WORKERS,
) -> Run:
    """Let programs of a new group take a topic; `start` gets a number and the group."""
    group = rig.new_group()
    place = rig.positions(settings, topic, group)
    children = [start(number, group) for number in range(processes)]
    try:
        return rig.follow(place, children, most_s=most_s)
    finally:
        for child in children:
            rig.group.kill(child.name)


def peers(
    rig: Rig,
    runs: int,
    say: Say,
    *,
    ours: tuple[LoadShape, int] = (OURS, OURS_INTERVALS),
    theirs: tuple[LoadShape, int] = (THEIRS, THEIRS_INTERVALS),
    most_s: float = MOST_S,
) -> list[Figure]:
    """Interleaved: our workers, Faust with a message for each probe, Quix Streams' windows."""
    quix = quix_python()
    if quix is None:
        say(f"peers: no Quix Streams at {QUIX_PYTHON} (or ${PYTHON_ENV}): its figure is skipped")
    found: dict[str, list[Run]] = {"ours": [], "Faust": [], "Quix Streams": []}
    filled = rig.fill("peers.", *ours)
    settings = filled.settings
    probes = fill_probes(rig, settings, *theirs)
    say(f"{probes:,} probes, a message each, beside {filled.messages:,} rounds")
    for _ in range(runs):
        found["ours"].append(rig.run_workers(filled, WORKERS, most_s=most_s))
        found["Faust"].append(
            run_programs(rig, settings, TOPIC, faust(rig, settings), most_s=most_s)
        )
        if quix is not None:
            found["Quix Streams"].append(
                run_programs(rig, settings, TOPIC, quix_streams(rig, settings, quix), most_s=most_s)
            )
        for name, of in found.items():
            if of:
                say(describe(name, of[-1]))
    rows = []
    for name, bar in (("Faust", 100.0), ("Quix Streams", 20.0)):
        if found[name]:
            pairs = zip(found["ours"], found[name], strict=True)
            ratios = [mine.rate_hz / other.rate_hz for mine, other in pairs]
            rates = [run.rate_hz / MEGA for run in found[name]]
            rows += [
                row(f"workers against {name}, a message for each probe", ratios, "×", bar),
                row(f"{name}, a message for each probe, windows only", rates, "M/s"),
                *costs(name, found[name]),
            ]
    return rows


def source(
    rig: Rig,
    runs: int,
    say: Say,
    *,
    shape: LoadShape = SOURCE,
    intervals: int = SOURCE_INTERVALS,
    most_s: float = MOST_S,
) -> list[Figure]:
    """Interleaved: the batch source in its Faust app, and an agent on Faust's own consumer."""
    batch: list[Run] = []
    own: list[Run] = []
    filled: FilledTopics = rig.fill("source.", shape, intervals)
    settings = filled.settings
    starters = batch_source(rig, settings), faust(rig, settings, "--rounds")
    for _ in range(runs):
        for found, starter in zip((batch, own), starters, strict=True):
            found.append(run_programs(rig, settings, PROBE_ROUND.name, starter, most_s=most_s))
        say(f"batch source {batch[-1].rate_hz:,.0f} messages/s, "
            f"Faust's own consumer {own[-1].rate_hz:,.0f}")  # fmt: skip
    size = filled.bytes / filled.messages
    ratios = [a.rate_hz / b.rate_hz for a, b in zip(batch, own, strict=True)]
    return [
        row(f"batch source, messages of {size:.0f} bytes", [r.rate_hz / 1e3 for r in batch],
            "thousand messages/s"),
        row("Faust's own consumer, the same", [r.rate_hz / 1e3 for r in own],
            "thousand messages/s"),
        row("batch source against Faust's own consumer", ratios, "×"),
        *costs("batch source", batch, "messages"),
        *costs("Faust's own consumer", own, "messages"),
    ]  # fmt: skip
