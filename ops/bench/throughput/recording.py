"""A long recording with a fault in it, written quickly: the arena's cluster as `record` keeps it.

What `ops.recording.export` writes takes the codec half a millisecond a round. Here the results of a
healthy round are encoded a few times for each agent and drawn from then on, as in
`ops.bench.rig.load`; rounds in which something is lost are those of the arena, and so is
all that other topics say.
"""

import io
import random
import zlib
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import fastavro

from arena.agents import AgentRound
from arena.cluster import JobPlan
from arena.fabric import FabricShape
from arena.run import PARTITIONS
from arena.scenario import Happening, Scenario, stage
from arena.timeline import timeline
from ops.log.entry import Entry
from ops.recording.container import BLOCK_CUT_BYTES, SYNC_BYTES, ContainerWriter
from ops.recording.diagnosis import INPUTS
from ops.recording.manifest import Manifest, TopicSummary
from ops.recording.shape import shape_of
from ops.recording.writer import RecordingWriter, count, prepare_folder
from schemas.codec import Codec
from schemas.topics import BY_NAME, PROBE_ROUND
from schemas.units import MS_NS

US_PER_MS: Final = 1_000
BODIES: Final = 12
# Behind the results stand four fields that are empty, each one byte.
TAIL_BYTES: Final = 4
# 144 agents × 80 results × 86,400 s: a day of a billion results.
DAY: Final = FabricShape(hosts=144, rails=8, segment_hosts=16, spines=8, tiers=3)
TARGETS: Final = 10
FAULT: Final = Happening(kind="switch_port_down", begin_s=45, end_s=75)


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

    def add(self, made: AgentRound) -> None:
        """Add a round."""
        partition = made.host % PARTITIONS
        at_ms = made.started_at // US_PER_MS
        entry = Entry(
            partition=partition, offset=self._offsets[partition], timestamp_ms=at_ms,
            key=made.header["agent_id"].encode(), value=b"",
        )  # fmt: skip
        self._offsets[partition] += 1
        count(self.summary, entry, undecodable=False)
        self.results += len(made.flow)
        empty = self._encoded(entry, {**made.header, "results": []})
        head, tail = empty[: -TAIL_BYTES - 1], empty[-TAIL_BYTES:]
        self._blocks[partition].append(head + self._body(made, entry, head) + tail)
        if sum(map(len, self._blocks[partition])) >= BLOCK_CUT_BYTES:
            self._cut(partition)

    def close(self) -> None:
        """End the file."""
        for partition in list(self._blocks):
            self._cut(partition)
        self._file.close()

    def _body(self, made: AgentRound, entry: Entry, head: bytes) -> bytes:
        bodies = self._bodies[made.host]
        healthy = bool(made.ok.all())
        if healthy and len(bodies) >= BODIES:
            return self._random.choice(bodies)
        whole = self._encoded(entry, made.datum())
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
            writer.keep(BY_NAME[rec.topic], entry)
        for made in part.rounds:
            rounds.add(made)
    rounds.close()
    writer.close(complete=True)
    return rounds.results
