"""How long a recorded day takes to its verdicts, extrapolated from two shorter recordings.

The recordings are written quickly: `ops.recording.export` takes half a millisecond of the codec
for each round. Here the results of a healthy round are encoded a few times for each agent, and
each further healthy round repeats one of those, as in `ops.bench.rig.load`. Rounds with a loss and
the records of all other topics are those of the arena.
"""

import io
import random
import resource
import subprocess
import sys
import time
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import fastavro

from arena.run import PARTITIONS
from arena.scenarios.scenario import Scenario, ScenarioEvent, stage
from arena.simulation.agents import AgentRound
from arena.simulation.timeline import timeline
from arena.world.cluster import JobPlan
from arena.world.fabric import FabricShape
from ops.bench.rig.report import Figure, Say
from ops.bench.throughput.report import MEGA, row
from ops.bench.throughput.rig import Rig
from ops.log.entry import Entry
from ops.recording.container import BLOCK_CUT_BYTES, SYNC_BYTES, ContainerWriter
from ops.recording.diagnosis import INPUTS
from ops.recording.manifest import Manifest, TopicSummary
from ops.recording.shape import shape_of
from ops.recording.writer import RecordingWriter, count, prepare_folder
from schemas.codec import Codec
from schemas.topics import BY_NAME, PROBE_ROUND
from schemas.units import MS_NS

BODIES: Final = 12
# Behind the results stand four fields that are empty, each one byte.
TAIL_BYTES: Final = 4
# 144 agents × 80 results × 86,400 s: a day of a billion results.
DAY: Final = FabricShape(hosts=144, rails=8, segment_hosts=16, spines=8, tiers=3)
TARGETS: Final = 10
FAULT: Final = ScenarioEvent(kind="switch_port_down", begin_s=45, end_s=75)


def scenario(seconds: int, fabric: FabricShape = DAY) -> Scenario:
    """Return so much of such a day; a port of a switch is down for half a minute of it."""
    jobs = (JobPlan(task_id="job-a", first_host=0, hosts=fabric.hosts),)
    return Scenario(
        name="day", seed=20262, seconds=seconds, fabric=fabric, jobs=jobs, targets=TARGETS,
        flows=1, faults=(FAULT,),
    )  # fmt: skip


class RoundFile:
    """The rounds' file in the making; each block holds rounds of one partition."""

    def __init__(self, folder: Path) -> None:
        self._shape = shape_of(PROBE_ROUND)
        self.summary = TopicSummary(file=f"{PROBE_ROUND.name}.avro", partitions=PARTITIONS)
        path = folder / self.summary.file
        ContainerWriter(path, self._shape.written).close()
        # A file without blocks is its header, which ends with the marker.
        self._sync = path.read_bytes()[-SYNC_BYTES:]
        self._file = path.open("ab")
        self._offsets: Counter[int] = Counter()
        self._blocks: defaultdict[int, list[bytes]] = defaultdict(list)
        self._bodies: defaultdict[int, list[bytes]] = defaultdict(list)
        self._random = random.Random(1)  # noqa: S311 - a load needs no secrecy
        self.results = 0

    def add_round(self, agent_round: AgentRound) -> None:
        """Write a round."""
        partition = agent_round.host % PARTITIONS
        entry = Entry(
            partition=partition, offset=self._offsets[partition],
            timestamp_ms=agent_round.arrival_ms,
            key=agent_round.header["agent_id"].encode(), value=b"",
        )  # fmt: skip
        self._offsets[partition] += 1
        count(self.summary, entry, undecodable=False)
        self.results += len(agent_round.flow)
        empty = self._encoded(entry, {**agent_round.header, "results": []})
        head, tail = empty[: -TAIL_BYTES - 1], empty[-TAIL_BYTES:]
        self._blocks[partition].append(head + self._body(agent_round, entry, head) + tail)
        if sum(map(len, self._blocks[partition])) >= BLOCK_CUT_BYTES:
            self._cut(partition)

    def close(self) -> None:
        """End the file."""
        for partition in list(self._blocks):
            self._cut(partition)
        self._file.close()

    def _body(self, agent_round: AgentRound, entry: Entry, head: bytes) -> bytes:
        bodies = self._bodies[agent_round.host]
        healthy = bool(agent_round.ok.all())
        if healthy and len(bodies) >= BODIES:
            return self._random.choice(bodies)
        whole = self._encoded(entry, agent_round.datum())
        if not whole.startswith(head):
            raise RuntimeError("the results are no longer the last field of a round")
        body = whole[len(head) : -TAIL_BYTES]
        if healthy:
            bodies.append(body)
        return body

    def _encoded(self, entry: Entry, value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        datum: dict[str, Any] = {
            "partition": entry.partition, "offset": entry.offset,
            "timestamp_ms": entry.timestamp_ms, "key": (entry.key or b"").decode(),
            "value": (self._shape.value_name, value), "headers": [], "key_bytes": None,
            "value_bytes": None, "decode_error": None,
        }  # fmt: skip
        fastavro.schemaless_writer(out, self._shape.plain, datum)
        return out.getvalue()

    def _cut(self, partition: int) -> None:
        block = self._blocks.pop(partition, [])
        if not block:
            return
        deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        payload = deflate.compress(b"".join(block)) + deflate.flush()
        head = io.BytesIO()
        for number in (len(block), len(payload)):
            fastavro.schemaless_writer(head, "long", number)
        self._file.write(head.getvalue() + payload + self._sync)


def record(folder: Path, wanted: Scenario) -> int:
    """Write the recording of a scenario into a new folder; return the number of results."""
    prepare_folder(folder)
    world, codec = stage(wanted).world, Codec()
    manifest = Manifest(
        cluster=world.name, recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        from_ms=None, to_ms=None,
    )  # fmt: skip
    writer, rounds = RecordingWriter(folder, manifest, codec), RoundFile(folder)
    for topic in INPUTS:
        if topic is not PROBE_ROUND:
            writer.add_topic(topic, PARTITIONS)
    manifest.topics[PROBE_ROUND.name] = rounds.summary
    offsets: Counter[tuple[str, int]] = Counter()
    for part in timeline(world):
        for rec in part.records:
            partition = zlib.crc32(rec.key.encode()) % PARTITIONS
            value = None
            if rec.record is not None:
                value = codec.encode(BY_NAME[rec.topic], rec.record)
            entry = Entry(
                partition=partition, offset=offsets[rec.topic, partition],
                timestamp_ms=rec.at_ns // MS_NS, key=rec.key.encode(), value=value,
            )  # fmt: skip
            offsets[rec.topic, partition] += 1
            writer.write_entry(BY_NAME[rec.topic], entry)
        for agent_round in part.rounds:
            rounds.add_round(agent_round)
    rounds.close()
    writer.close(complete=True)
    return rounds.results


BILLION: Final = 1e9
# Seconds that are replayed: two lengths separate what grows with the day from what does not.
SHORT_S: Final = 600
LONG_S: Final = 1_800
TIMEOUT_S: Final = 1_200.0
# `replay` and `diagnose` end so when there is a verdict, as there must be.
FOUND: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A command's wall time and the CPU time of it and its children."""

    seconds: float
    cpu_s: float


def timed(bootstrap: str, *arguments: str) -> Timing:
    """Run a command of `skeletonhunter` that must find a fault; raises RuntimeError if it fails."""
    command = [str(Path(sys.executable).with_name("skeletonhunter")), *arguments]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [*command, *(["--bootstrap", bootstrap] if bootstrap else [])], capture_output=True,
        text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != FOUND:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timing(seconds=seconds, cpu_s=cpu_s)


def extrapolated_s(short: tuple[int, float], long: tuple[int, float], results: float) -> float:
    """Return the seconds that so many results take, on the line through two that were measured.

    Parameters
    ----------
    short, long
        Results and seconds.

    >>> extrapolated_s((100, 11.0), (1_100, 21.0), 10_100)
    111.0
    """
    # The clock may have been kinder to the long one: then nothing is known of what is fixed.
    if long[1] <= short[1]:
        return long[1] / long[0] * results
    slope = (long[1] - short[1]) / (long[0] - short[0])
    return long[1] + slope * (results - long[0])


def replay(
    rig: Rig,
    runs: int,
    say: Say,
    seconds: tuple[int, int] = (SHORT_S, LONG_S),
    fabric: FabricShape = DAY,
) -> list[Figure]:
    """Replay two recordings through worker and localizer; diagnose them without a broker, too."""
    samples: dict[str, list[float]] = {"replay": [], "diagnose": []}
    per_million: dict[str, list[float]] = {"replay": [], "diagnose": []}
    recordings = []
    for lasts_s in seconds:
        folder = rig.folder / f"recording-{lasts_s}"
        recordings.append((folder, record(folder, scenario(lasts_s, fabric))))
        say(f"recorded: {recordings[-1][1]:,} results of {lasts_s} s")
    for turn in range(runs):
        times: dict[str, list[tuple[int, float]]] = {"replay": [], "diagnose": []}
        for folder, results in recordings:
            out = rig.folder / f"{folder.name}-{turn}.jsonl"
            prefix = f"{folder.name}-{turn}."
            commands = {
                "replay": timed(
                    rig.kafka.bootstrap, "replay", str(folder), "--prefix", prefix,
                    "--speed", "max", "--run", "--delete-after",
                ),
                "diagnose": timed("", "diagnose", str(folder), "--out", str(out)),
            }  # fmt: skip
            for name, timing in commands.items():
                times[name].append((results, timing.seconds))
                per_million[name].append(timing.cpu_s / results * MEGA)
                say(f"{name} of {results:,} results: {timing.seconds:.1f} s, "
                    f"CPU {timing.cpu_s:.1f} s")  # fmt: skip
        for name, (short, long) in times.items():
            samples[name].append(extrapolated_s(short, long, BILLION) / 60)
    sizes = " and ".join(f"{results / MEGA:.1f} M" for _, results in recordings)
    day = f"of a day of a billion results to verdicts, extrapolated from {sizes}"
    return [
        row(f"replay {day}", samples["replay"], "min", 10.0, "<="),
        row(f"diagnose {day}", samples["diagnose"], "min", 10.0, "<="),
        *(
            row(f"{name}: CPU of all processes but the broker, each million results", found, "s",
                sense="<=")
            for name, found in per_million.items()
        ),
    ]  # fmt: skip
