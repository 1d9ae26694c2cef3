"""How fast the hang watcher's process takes in records of a large job, beside a real broker.

The topic is filled before, then the watcher reads it from its beginning. It reads all partitions,
for one analysis sees all ranks; of two processes one leads, the other reads the same and follows.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from ops.bench.collectives.large_job import MANY, Load, Message, messages
from ops.bench.rig.process_cost import cpu_s
from ops.bench.rig.publisher import Publisher
from ops.bench.rig.report import Figure, Say, figure, scratch_folder
from ops.bench.rig.waiting import wait_until
from ops.broker.embedded import EmbeddedKafka
from ops.running.pipeline import HANGS, MODULES, to_toml
from ops.running.processes import Child, ProcessGroup
from ops.topics.admin import apply_topics
from ops.topics.plan import Options
from schemas.codec import Codec
from schemas.kafka.connection import settings_from_table
from schemas.topics import COLLECTIVE_OP

BAR_MB_S: Final = 50.0
RANKS: Final = 10_240
WINDOW_S: Final = 10
CORES: Final = 2
MB: Final = 1e6
START_TIMEOUT_S: Final = 120.0
# At a hundredth of the bar.
READ_TIMEOUT_S: Final = 900.0
# Until the first decision, which is the analysis of a large job.
TOLD_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What some watchers took at once, each of them all records.

    Attributes
    ----------
    seconds
        From `hangs.reading` to `hangs.ready` of the slowest; the client begins to fetch some
        tenths of a second earlier.
    watcher_s, broker_s
        CPU seconds of all watchers, and of the broker, in that time.
    """

    seconds: float
    watcher_s: float
    broker_s: float


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Let this process, and what it starts in the block, use so many processors at most."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def seconds_between(events: Sequence[dict[str, Any]], first: str, last: str) -> float:
    """Return the time between two events of a log.

    Raises
    ------
    ValueError
        If one of them is not there.
    """
    at = {event["event"]: datetime.fromisoformat(event["at"]) for event in reversed(events)}
    if first not in at or last not in at:
        raise ValueError(f"no {first} or no {last} in the log")
    return (at[last] - at[first]).total_seconds()


class Rig:
    """A broker, and watchers on topics of their own each time."""

    def __init__(self, folder: Path, broker: EmbeddedKafka, group: ProcessGroup) -> None:
        self._folder = folder
        self._broker = broker
        self._group = group
        self._number = 0

    def run(self, sent: Sequence[Message], watchers: int, culprit: int) -> Intake:
        """Fill the topic, then let so many watchers read it.

        Raises
        ------
        TimeoutError
            If that takes too long, or the hang at the end is not told.
        RuntimeError
            If another rank is named than the culprit.
        """
        self._number += 1
        config = self._fill(sent)
        children = [self._start(f"{HANGS}-{self._number}-{n}", config) for n in range(watchers)]
        self._wait(children, "hangs.reading", START_TIMEOUT_S)
        watcher_s, broker_s = self._cpu_s(children), cpu_s(self._broker.pid or 0)
        self._wait(children, "hangs.ready", READ_TIMEOUT_S)
        watcher_s = self._cpu_s(children) - watcher_s
        broker_s = cpu_s(self._broker.pid or 0) - broker_s
        wait_until(
            lambda: any(child.events("hang.open") for child in children), TOLD_TIMEOUT_S,
            "no hang is told", check=self._group.check,
        )  # fmt: skip
        told = [event["ranks"] for child in children for event in child.events("hang.open")]
        seconds = max(
            seconds_between(child.events(), "hangs.reading", "hangs.ready") for child in children
        )
        for child in children:
            self._group.stop(child.name)
        if told != [[culprit]]:
            raise RuntimeError(f"rank {culprit} stalls, told: {told}")
        return Intake(seconds=seconds, watcher_s=watcher_s, broker_s=broker_s)

    def _fill(self, sent: Sequence[Message]) -> Path:
        table = {"cluster": "bench", "topic.prefix": f"records{self._number}."}
        settings = settings_from_table(self._broker.bootstrap, table)
        apply_topics(settings, Options())
        # Ten thousand ranks have a thousand collectors: a batch of Kafka's holds one message.
        publisher = Publisher(settings, **{"batch.num.messages": 1})
        for message in sent:
            publisher.publish(COLLECTIVE_OP.name, message.key, message.value, message.at_us // 1000)
        publisher.finish()
        path = self._folder / f"records{self._number}.toml"
        kafka = {"bootstrap.servers": self._broker.bootstrap, **table}
        path.write_text(to_toml({"kafka": kafka}), encoding="utf-8")
        return path

    def _start(self, name: str, config: Path) -> Child:
        command = [sys.executable, "-m", MODULES[HANGS], "--config", str(config), "--log-json"]
        return self._group.start(name, command)

    def _wait(self, children: Sequence[Child], event: str, timeout_s: float) -> None:
        wait_until(
            lambda: all(child.events(event) for child in children), timeout_s,
            f"no {event} in the log of each watcher", check=self._group.check, poll_s=POLL_S,
        )  # fmt: skip

    def _cpu_s(self, children: Sequence[Child]) -> float:
        return sum(cpu_s(child.pid) for child in children)


def measure(runs: int, say: Say, *, ranks: int = RANKS, window_s: int = WINDOW_S) -> list[Figure]:
    """Let one watcher read all records, and two at once."""
    lasts_us = Load(ranks, MANY, window_s).lasts_us
    load = Load(ranks, MANY, window_s, begin_us=time.time_ns() // 1000 - lasts_us)
    culprit = ranks // 3
    say(f"making the records of {ranks:,} ranks in {window_s} s")
    sent = messages(load, culprit, Codec())
    n_bytes = sum(len(message.value) for message in sent)
    say(f"{len(sent):,} messages of {n_bytes / MB:.0f} MB, uncompressed")
    rows = []
    with (
        cores(CORES),
        scratch_folder() as folder,
        EmbeddedKafka(announce=False) as broker,
        ProcessGroup(folder / "logs") as group,
    ):
        rig = Rig(folder, broker, group)
        for watchers in (1, 2):
            found = []
            for number in range(runs):
                found.append(rig.run(sent, watchers, culprit))
                say(f"{watchers} watchers, {number + 1}/{runs}: {found[-1]}")
            rows += figures(load, n_bytes, watchers, found)
    return rows


def figures(load: Load, n_bytes: int, watchers: int, found: Sequence[Intake]) -> list[Figure]:
    """Return the rows of some runs; each watcher read so many bytes in each."""
    operations = load.ranks * load.rate_hz * load.window_s
    who = "a watcher" if watchers == 1 else "a watcher and its standby"
    what = f"records of {load.ranks:,} ranks × {load.rate_hz} operations a second, {who}"
    mb = n_bytes / MB
    bar = BAR_MB_S if watchers == 1 else None
    return [
        figure(f"{what}: read", [mb / one.seconds for one in found], "MB/s", bar, ">="),
        figure("… operations", [operations / one.seconds for one in found], "a second"),
        figure(
            "… CPU of each watcher", [100 * one.watcher_s / watchers / mb for one in found],
            "s for 100 MB",
        ),
        figure("… CPU of the broker", [100 * one.broker_s / mb for one in found], "s for 100 MB"),
    ]  # fmt: skip
