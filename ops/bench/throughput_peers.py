"""The workers beside other ways: Faust by message, Quix Streams, Faust's own consumer."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ops.bench.load import LoadShape
from ops.bench.peer_windows import TOPIC, WINDOWS
from ops.bench.report import Figure
from ops.bench.throughput_figures import MEGA, WORKERS, Say, costs, rig, row, told
from ops.bench.throughput_rig import Filled, Rig, Run
from ops.bench.throughput_watching import Positions
from ops.processes import Child
from ops.topic_admin import api
from schemas.connection import KafkaSettings
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
SETTLE_S: Final = 30.0


def quix_python() -> Path | None:
    """Return the interpreter that has Quix Streams; None: there is none here."""
    path = Path(os.environ.get(PYTHON_ENV, QUIX_PYTHON))
    if not path.exists():
        return None
    asked = subprocess.run(
        [path, "-c", "import quixstreams, fastavro"], capture_output=True, check=False
    )
    return path.absolute() if asked.returncode == 0 else None


def make_topics(settings: KafkaSettings) -> None:
    """Make the peers' own topics."""
    client = api.AdminClient(settings.librdkafka())
    new = [api.NewTopic(settings.topic(name), PARTITIONS, 1) for name in (TOPIC, WINDOWS)]
    for future in client.create_topics(new, request_timeout=SETTLE_S).values():
        future.result()


def run_programs(
    made: Rig,
    settings: KafkaSettings,
    topic: str,
    start: Callable[[int, str], Child],
    *,
    most_s: float,
) -> Run:
    """Let programs of a new group take a topic; `start` gets a number and the group."""
    group = made.new_group()
    ends = made.ends(settings, topic)
    children = [start(number, group) for number in range(WORKERS)]
    place = Positions(settings, settings.topic(topic), group, ends)
    try:
        return made.follow(place, children, most_s=most_s)
    finally:
        for child in children:
            made.group.kill(child.name)


def peers(
    runs: int,
    say: Say,
    ours: tuple[LoadShape, int] = (OURS, OURS_INTERVALS),
    theirs: tuple[LoadShape, int] = (THEIRS, THEIRS_INTERVALS),
    most_s: float = MOST_S,
) -> list[Figure]:
    """Interleaved: our workers, Faust with a message for each probe, Quix Streams' windows."""
    quix = quix_python()
    if quix is None:
        say(f"peers: no Quix Streams at {QUIX_PYTHON} (or ${PYTHON_ENV}): its figure is skipped")
    found: dict[str, list[Run]] = {"ours": [], "Faust": [], "Quix Streams": []}
    with rig() as made:
        filled = made.fill("peers.", *ours)
        settings = filled.settings
        make_topics(settings)
        said = made.child(
            "ops.bench.throughput_probes", "--bootstrap", settings.bootstrap,
            "--prefix", settings.topic_prefix, "--shape", theirs[0].text(),
            "--intervals", str(theirs[1]),
        )  # fmt: skip
        say(f"{said['messages']:,} probes, a message each, beside {filled.messages:,} rounds")
        where = ("--bootstrap", settings.bootstrap, "--prefix", settings.topic_prefix)

        def faust(_number: int, group: str) -> Child:
            return made.begin("ops.bench.peer_faust", *where, "--group", group)

        def quix_streams(number: int, group: str) -> Child:
            state = made.folder / f"{group}-{number}"
            return made.begin(
                "ops.bench.peer_quix", *where, "--group", group, "--state", str(state),
                python=str(quix),
            )  # fmt: skip

        for _ in range(runs):
            found["ours"].append(made.run_workers(filled, WORKERS, most_s=most_s))
            found["Faust"].append(run_programs(made, settings, TOPIC, faust, most_s=most_s))
            if quix is not None:
                found["Quix Streams"].append(
                    run_programs(made, settings, TOPIC, quix_streams, most_s=most_s)
                )
            for name, of in found.items():
                if of:
                    say(told(name, of[-1]))
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
    runs: int,
    say: Say,
    shape: LoadShape = SOURCE,
    intervals: int = SOURCE_INTERVALS,
    most_s: float = MOST_S,
) -> list[Figure]:
    """Interleaved: the batch source in its Faust app, and an agent on Faust's own consumer."""
    batch: list[Run] = []
    own: list[Run] = []
    with rig() as made:
        filled: Filled = made.fill("source.", shape, intervals)
        settings = filled.settings
        where = ("--bootstrap", settings.bootstrap, "--prefix", settings.topic_prefix)

        def batched(_number: int, group: str) -> Child:
            return made.begin("ops.bench.throughput_source", *where, "--group", group)

        def faust(_number: int, group: str) -> Child:
            return made.begin("ops.bench.peer_faust", *where, "--group", group, "--rounds")

        for _ in range(runs):
            name = PROBE_ROUND.name
            batch.append(run_programs(made, settings, name, batched, most_s=most_s))
            own.append(run_programs(made, settings, name, faust, most_s=most_s))
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
    ]  # fmt: skip
