"""Runs workers and a localizer on a replay, until they have read all of it."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from ops.log.positions import GroupPositions, worker_group
from ops.log.reading import LogReader, Place, Range
from ops.log.tail import Shown, find_topic, show
from ops.running.pipeline import MODULES, to_toml
from ops.running.processes import ProcessGroup
from schemas.enums import AnomalyState
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.leadership import role_group
from schemas.kafka.registry import codec_for
from schemas.topics import ANOMALY, FAULT_EVENT, PROBE_ROUND

WORKER, LOCALIZER = "worker", "localizer"
POLL_S: Final = 0.25
# Nothing moves for this long: something hangs. Joining a group takes up to 10 s,
# and the worker repeats that a partition is idle every 5 s.
STALL_S: Final = 60.0

Stop = Callable[[], bool]
Progress = Callable[["Stand"], None]


class StalledError(RuntimeError):
    """Workers or localizer make no progress; the message holds the ends of their logs."""


@dataclass(frozen=True, slots=True)
class Stand:
    """How far the processes are.

    `idle`: the worker has said of every partition that nothing more comes.
    `anomalies` is the sum of the partitions' ends, `anomalies_left` what of it
    the localizer has not taken note of.
    """

    rounds_left: int
    idle: bool
    anomalies: int
    anomalies_left: int


class ReplayRun:
    """Workers and a localizer in the block, with a configuration of their own.

    Parameters
    ----------
    settings
        Broker and prefix of the replay.
    cluster
        Cluster of the recording: records of another are refused.
    tables
        The `[worker]` and `[localizer]` tables to run with.
    """

    def __init__(
        self, settings: KafkaSettings, cluster: str, tables: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._settings = replace(settings, cluster=cluster)
        self._tables = {name: dict(tables.get(name, {})) for name in (WORKER, LOCALIZER)}
        # A replay's processes never share a membership with live ones.
        self._tables[WORKER].pop("instance_id", None)
        self._positions = GroupPositions(settings)
        self._codec = codec_for(settings)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replay-")))
            self._config = folder / "replay.toml"
            self._write_config()
            self._group = stack.enter_context(ProcessGroup(folder / "logs"))
            self._reader = stack.enter_context(LogReader(self._settings))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _write_config(self) -> None:
        s = self._settings
        kafka: dict[str, Any] = {
            "bootstrap.servers": s.bootstrap,
            "cluster": s.cluster,
            "topic.prefix": s.topic_prefix,
            **s.options,
        }
        registry = {
            "schema.registry.url": s.registry_url,
            "schema.registry.user": s.registry_user,
            "schema.registry.password": s.registry_password,
        }
        kafka |= {key: value for key, value in registry.items() if value is not None}
        # Passwords may be in it: nobody else may read it, from the first moment on.
        handle = os.open(self._config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(to_toml({"kafka": kafka, **self._tables}))

    def forget(self) -> None:
        """Forget positions of an earlier replay under this prefix, whose topics are gone."""
        for group in (self._worker_group, role_group(self._settings, LOCALIZER)):
            self._positions.forget(group)

    def start(self, workers: int) -> None:
        """Start so many workers, which share the partitions, and the localizer."""
        for number in range(workers):
            self._start(f"{WORKER}-{number}", WORKER)
        self._start(LOCALIZER, LOCALIZER)

    def _start(self, name: str, module: str) -> None:
        self._group.start(
            name,
            [sys.executable, "-m", MODULES[module], "--config", str(self._config), "--log-json"],
            env={"KAFKA_BOOTSTRAP": self._settings.bootstrap},
        )

    def wait_workers(self, stop: Stop, progress: Progress) -> bool:
        """Wait until the workers have committed all rounds and call every partition idle.

        Returns
        -------
        bool
            False if `stop` came first.

        Raises
        ------
        StalledError
            If nothing moves for a minute.
        ChildDiedError
            If a process ends.
        """
        return self._wait(lambda s: s.rounds_left == 0 and s.idle, stop, progress)

    def wait_localizer(self, stop: Stop, progress: Progress) -> bool:
        """Wait until the localizer has decided all it can; as `wait_workers`.

        It takes note of what it has read once a second, after it has decided. So it
        is done when it has taken note of everything, and then of one more of the
        worker's marks, which come for ever.
        """
        noted: int | None = None

        def done(stand: Stand) -> bool:
            nonlocal noted
            if stand.anomalies_left:
                return False
            if noted is None:
                noted = stand.anomalies
            return stand.anomalies > noted

        return self._wait(done, stop, progress)

    def _wait(self, done: Callable[[Stand], bool], stop: Stop, progress: Progress) -> bool:
        last: Stand | None = None
        moved_s = time.monotonic()
        while not stop():
            self._group.check()
            stand = self.stand()
            if done(stand):
                return True
            # The worker's marks alone are no progress.
            if last is None or replace(stand, anomalies=0) != replace(last, anomalies=0):
                moved_s = time.monotonic()
                progress(stand)
            elif time.monotonic() - moved_s > STALL_S:
                raise StalledError(self._tails())
            last = stand
            time.sleep(POLL_S)
        return False

    def stand(self) -> Stand:
        """Return how far the processes are."""
        rounds, anomalies = self._ranges(PROBE_ROUND.name), self._ranges(ANOMALY.name)
        return Stand(
            rounds_left=self._left(self._worker_group, rounds),
            idle=self._idle(anomalies),
            anomalies=sum(r.high for r in anomalies.values()),
            anomalies_left=self._left(role_group(self._settings, LOCALIZER), anomalies),
        )

    def _left(self, group: str, ranges: Mapping[Place, Range]) -> int:
        committed = self._positions.committed(group, ranges)
        return sum(
            max(0, r.high - (at if (at := committed.get(place)) is not None else r.low))
            for place, r in ranges.items()
        )

    def _idle(self, anomalies: Mapping[Place, Range]) -> bool:
        """Return whether the last record of every partition is the worker's IDLE."""
        if any(r.empty for r in anomalies.values()):
            return False
        starts = {place: r.high - 1 for place, r in anomalies.items()}
        ends = {place: r.high for place, r in anomalies.items()}
        return all(
            entry.value is not None
            and self._codec.decode(ANOMALY, entry.value).state is AnomalyState.IDLE
            for _, entry in list(self._reader.read_to(starts, ends))
        )

    def verdicts(self) -> list[Shown]:
        """Return everything in `fault.event.v1`, in its order."""
        ranges = self._ranges(FAULT_EVENT.name)
        found = self._reader.read_to(
            {place: r.low for place, r in ranges.items()},
            {place: r.high for place, r in ranges.items()},
        )
        topic = find_topic(FAULT_EVENT.name)
        return [show(topic, entry, self._codec) for _, entry in found]

    @property
    def _worker_group(self) -> str:
        return worker_group(self._settings, self._tables[WORKER])

    def _ranges(self, name: str) -> dict[Place, Range]:
        return self._reader.partitions([self._settings.topic(name)])

    def _tails(self) -> str:
        return "\n".join(f"{n}:\n{self._group.child(n).log_tail()}" for n in self._group.names())
