"""The rig of the throughput benchmark: a broker, topics full of rounds, real workers.

Workers are observed from outside: by committed offsets, by their logs, by their processes.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import Consumer, TopicPartition

from ops.bench.rig import process_cost
from ops.bench.rig.load import CLUSTER, LoadShape
from ops.bench.rig.waiting import wait_until
from ops.broker.embedded import EmbeddedKafka
from ops.log.positions import GroupPositions
from ops.running.pipeline import to_toml
from ops.running.processes import Child, ProcessGroup
from ops.topics.admin import api, apply_topics
from ops.topics.plan import Options
from schemas.kafka.connection import KafkaSettings, settings_from_table
from schemas.kafka.options import QUIET, reader_options
from schemas.topics import ANOMALY, PROBE_ROUND, PROBE_WINDOW

POLL_S: Final = 0.02


class Positions:
    """What a group has committed of a topic; `ends` are those of its partitions."""

    def __init__(
        self, positions: GroupPositions, group: str, topic: str, ends: Mapping[int, int]
    ) -> None:
        self._positions = positions
        self._group = group
        self._places = [(topic, partition) for partition in ends]
        self.end = sum(ends.values())

    def done(self) -> int | None:
        """Return the sum of the committed offsets; None while there is none at all."""
        found = self._positions.committed(self._group, self._places).values()
        known = [offset for offset in found if offset is not None]
        return sum(known) if known else None

    def wait(
        self, condition: Callable[[int | None], bool], group: ProcessGroup, timeout_s: float
    ) -> float:
        """Return the monotonic time at which a sum of offsets satisfies; raises TimeoutError."""
        return wait_until(
            lambda: condition(self.done()), timeout_s, f"{self._group} has not come so far",
            check=group.check, poll_s=POLL_S,
        )  # fmt: skip


def wait_ready(
    workers: Collection[Child], timeout_s: float, *, check: Callable[[], None] = lambda: None
) -> None:
    """Wait until workers say that they are ready; raises TimeoutError."""
    wait_until(
        lambda: all(child.events("worker.ready") for child in workers), timeout_s,
        "the workers are not ready", check=check,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledTopics:
    """Topics full of rounds; with `keep_times` these arrived when they say."""

    settings: KafkaSettings
    shape: LoadShape
    start_us: int
    intervals: int
    keep_times: bool
    messages: int
    results: int
    bytes: int
    seconds: float

    @property
    def per_message(self) -> float:
        """Results of a message on average."""
        return self.results / self.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of a core, and the largest resident memory of one process, bytes."""

    cpu_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What processes of one kind have taken, and what it cost; not `whole`: they were cut off."""

    results: float
    seconds: float
    workers: Cost
    broker_cpu_s: float
    whole: bool = True
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def rate_hz(self) -> float:
        """Results a second."""
        return self.results / self.seconds


# Workers that start together are given their partitions together: each begins to consume with
# what it keeps, and no hand-over falls into what is measured.
JOIN_MS: Final = 4_000
# Bare loops begin together: an interpreter and its imports take seconds on a busy machine.
LEAD_S: Final = 6.0
TIMEOUT_S: Final = 30.0
START_TIMEOUT_S: Final = 120.0
# A child says nothing until its end.
CHILD_TIMEOUT_S: Final = 900.0

Ends = dict[int, int]


class Rig:
    """A broker of its own; children end with the block.

    Parameters
    ----------
    join_ms
        How long a new group waits for its other members.
    lead_s
        How long before they begin bare loops are started.
    """

    def __init__(self, folder: Path, *, join_ms: int = JOIN_MS, lead_s: float = LEAD_S) -> None:
        self.folder = folder
        self._join_ms = join_ms
        self._lead_s = lead_s
        self._stack = ExitStack()
        self._number = 0
        self.last_group = ""

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            delay = {"group.initial.rebalance.delay.ms": str(self._join_ms)}
            self.kafka = stack.enter_context(EmbeddedKafka(announce=False, settings=delay))
            self.group = stack.enter_context(ProcessGroup(self.folder / "logs"))
            # One client of each kind as long as the broker is there: they go before it does.
            settings = settings_from_table(self.kafka.bootstrap, {})
            self._reader = Consumer(reader_options(settings, fixed=QUIET))
            stack.callback(self._reader.close)
            self._admin = api.AdminClient({**settings.librdkafka(), **QUIET})
            self._positions = GroupPositions(settings)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def settings(self, prefix: str, *, keep_times: bool = False) -> KafkaSettings:
        """Make the topics of a prefix; with `keep_times` rounds arrive when they say."""
        table = {"cluster": CLUSTER, "topic.prefix": prefix}
        settings = settings_from_table(self.kafka.bootstrap, table)
        apply_topics(settings, Options(keep_all=keep_times))
        return settings

    def child(self, module: str, *arguments: str, python: str = sys.executable) -> Any:
        """Run a program of this bench to its end; return what it prints, as JSON."""
        return self.result(self.begin(module, *arguments, python=python))

    def begin(self, module: str, *arguments: str, python: str = sys.executable) -> Child:
        """Start a program of this bench."""
        self._number += 1
        name = f"{module.rpartition('.')[2]}-{self._number}"
        return self.group.start(name, [python, "-m", module, *arguments])

    def result(self, child: Child) -> Any:
        """Wait for a program's end; return the last line that it printed, as JSON.

        Raises
        ------
        RuntimeError
            If it fails.
        """
        try:
            code = child.process.wait(CHILD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = None
        self.group.stop(child.name)
        if code != 0:
            raise RuntimeError(f"{child.name} ended with {code}:\n{child.log_tail()}")
        return child.events()[-1]

    def fill(
        self,
        prefix: str,
        shape: LoadShape,
        intervals: int,
        *,
        first: int = 0,
        start_us: int | None = None,
        compression: str = "lz4",
        alone: bool = False,
        keep_times: bool = False,
    ) -> FilledTopics:
        """Fill the rounds of a prefix; they end about now, so that none is too old to be kept.

        They come faster than agents send them. With `keep_times` they arrive at the agents' pace,
        as in a recording; without, when the broker takes them.
        """
        settings = self.settings(prefix, keep_times=keep_times)
        if start_us is None:
            span_us = intervals * shape.interval_ns // 1000
            start_us = int(time.time() * 1e6) - span_us
        found = self.child(
            "ops.bench.throughput.children", "fill", "--bootstrap", self.kafka.bootstrap,
            "--prefix", prefix, "--shape", shape.text(), "--intervals", str(intervals),
            "--first", str(first), "--start-us", str(start_us), "--compression", compression,
            *(["--alone"] if alone else []),
        )  # fmt: skip
        del found["cpu_s"]
        return FilledTopics(
            settings=settings,
            shape=shape,
            start_us=start_us,
            intervals=intervals,
            keep_times=keep_times,
            **found,
        )

    def ends(self, settings: KafkaSettings, topic: str) -> Ends:
        """Return where the topic's partitions end."""
        name = settings.topic(topic)
        found = self._reader.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
        return {
            p: self._reader.get_watermark_offsets(TopicPartition(name, p), timeout=TIMEOUT_S)[1]
            for p in sorted(found)
        }

    def positions(self, settings: KafkaSettings, topic: str, group: str) -> Positions:
        """Return how far a group is from the ends that a topic has now."""
        ends = self.ends(settings, topic)
        name = settings.topic(topic)
        return Positions(self._positions, settings.topic(group), name, ends)

    def make_topics(self, settings: KafkaSettings, names: Sequence[str], partitions: int) -> None:
        """Make topics that are not of the contract."""
        new = [api.NewTopic(settings.topic(name), partitions, 1) for name in names]
        for future in self._admin.create_topics(new, request_timeout=TIMEOUT_S).values():
            future.result()

    def clear_outputs(self, settings: KafkaSettings) -> None:
        """Empty windows and anomalies: a worker of a new group must find nothing of an old one."""
        for topic in (PROBE_WINDOW.name, ANOMALY.name):
            name = settings.topic(topic)
            places = [TopicPartition(name, p, e) for p, e in self.ends(settings, topic).items()]
            for future in self._admin.delete_records(places).values():
                future.result()

    def start_worker(self, name: str, settings: KafkaSettings, *options: str) -> Child:
        """Start a stream worker as an operator would."""
        config = self.folder / f"{name}.toml"
        kafka = {
            "bootstrap.servers": settings.bootstrap,
            "cluster": settings.cluster,
            "topic.prefix": settings.topic_prefix,
        }
        config.write_text(to_toml({"kafka": kafka}), encoding="utf-8")
        return self.group.start(
            name,
            [sys.executable, "-m", "streams", "--config", str(config), "--log-json", *options],
            env={"KAFKA_BOOTSTRAP": settings.bootstrap},
        )

    def run_workers(self, filled: FilledTopics, workers: int, *, most_s: float) -> Run:
        """Let workers of a new group take all rounds; cut off after `most_s`, as far as they are.

        The time runs from the group's first commit, with which a worker begins, until what is
        committed is the end of every partition.

        Raises
        ------
        RuntimeError
            If they do not begin, or have not counted every result once at the end.
        """
        settings, group = filled.settings, self.new_group()
        self.clear_outputs(settings)
        place = self.positions(settings, PROBE_ROUND.name, group)
        names = [f"{group}-worker-{n}" for n in range(workers)]
        children = [self.start_worker(name, settings, "--group", group) for name in names]
        taken = self.follow(place, children, most_s=most_s)
        counts = self._stop_workers(names, children, kill=not taken.whole)
        if taken.whole and counts["results"] + counts["duplicate"] != filled.results:
            raise RuntimeError(f"{filled.results} results were published, counted: {counts}")
        return replace(taken, results=taken.results * filled.per_message, counts=counts)

    def new_group(self) -> str:
        """Return a name that no group has had."""
        self._number += 1
        self.last_group = f"bench-{self._number}"
        return self.last_group

    def follow(self, place: Positions, children: Sequence[Child], *, most_s: float) -> Run:
        """Watch a new group take what there is; its `results` are messages here.

        The time runs from its first commit until all is committed, or what was by `most_s`.
        """
        begun = place.wait(lambda done: done is not None, self.group, START_TIMEOUT_S)
        first = place.done() or 0
        cpu_s, broker_s = self._cpu_s(children), self._broker_s()
        done, moved_s, deadline = first, begun, begun + most_s
        while done < place.end and (now := time.monotonic()) < deadline:
            self.group.check()
            found = place.done() or 0
            if found > done:
                done, moved_s = found, time.monotonic()
            else:
                time.sleep(min(POLL_S, max(0.0, deadline - now)))
        return Run(
            results=done - first,
            seconds=max(moved_s - begun, POLL_S),
            workers=Cost(
                cpu_s=self._cpu_s(children) - cpu_s,
                rss_bytes=max(process_cost.memory(c.pid).peak_bytes for c in children),
            ),
            broker_cpu_s=self._broker_s() - broker_s,
            whole=done == place.end,
        )

    def run_bare(self, filled: FilledTopics, loops: int, *, most_s: float) -> Run:
        """Let bare loops consume and decode the same, each its share of the partitions."""
        partitions = sorted(self.ends(filled.settings, PROBE_ROUND.name))
        broker_s = self._broker_s()
        go_s = time.time() + self._lead_s
        children = [
            self.begin(
                "ops.bench.throughput.children", "bare", "--bootstrap", self.kafka.bootstrap,
                "--prefix", filled.settings.topic_prefix, "--go-s", str(go_s),
                "--most-s", str(most_s), "--partitions", *map(str, partitions[n::loops]),
            )
            for n in range(loops)
        ]  # fmt: skip
        found = [self.result(child) for child in children]
        return Run(
            results=sum(f["results"] for f in found),
            seconds=max(f["end_s"] for f in found) - min(f["begin_s"] for f in found),
            workers=Cost(
                cpu_s=sum(f["cpu_s"] for f in found), rss_bytes=max(f["rss_bytes"] for f in found)
            ),
            broker_cpu_s=self._broker_s() - broker_s,
        )

    def _stop_workers(
        self, names: Sequence[str], children: Sequence[Child], *, kill: bool
    ) -> dict[str, int]:
        """End the workers; return the sum of what they counted, as they say at their end."""
        # Together: one that is left alone takes over the other's partitions, and hears no signal
        # before it has rebuilt them.
        with ThreadPoolExecutor(len(names)) as ending:
            codes = list(ending.map(self.group.kill if kill else self.group.stop, names))
        totals: dict[str, int] = {}
        for child, code in zip(children, codes, strict=True):
            told = child.events("worker.stopped", *(["worker.metrics"] if kill else []))
            if not (told or kill):
                raise RuntimeError(
                    f"{child.name} ended with {code} and did not say at its end what it counted:\n"
                    f"{child.log_tail()}"
                )
            for key, value in (told[-1] if told else {}).items():
                if isinstance(value, int):
                    totals[key] = totals.get(key, 0) + value
        return totals

    def _cpu_s(self, children: Sequence[Child]) -> float:
        return sum(process_cost.cpu_s(child.pid) for child in children)

    def _broker_s(self) -> float:
        return 0.0 if self.kafka.pid is None else process_cost.cpu_s(self.kafka.pid)
