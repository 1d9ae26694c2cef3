"""A whole pipeline on this machine: broker, topics, worker, skeleton job, localizer."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from ops.broker.embedded import EmbeddedKafka
from ops.running.processes import Child, ProcessGroup
from ops.topics.admin import apply_topics
from ops.topics.plan import Options
from schemas.kafka.connection import KafkaSettings, settings_from_table

WORKER: Final = "worker"
SKELETON: Final = "skeleton"
LOCALIZER: Final = "localizer"
HANGS: Final = "hangs"
MODULES: Final = {
    WORKER: "streams", SKELETON: "skeleton_job", LOCALIZER: "localizer", HANGS: "localizer.hangs",
}  # fmt: skip
# A Faust worker joins its group within some 6 s of an idle machine; this is for a busy one.
READY_TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.05

Table = Mapping[str, str | int | float | bool]
# Windows fit for a demonstration: a fault that needs windows shows within seconds, not minutes.
# Everything else is as in production.
LAB_TABLES: Final[Mapping[str, Table]] = {
    "worker": {"window_s": 10, "allowed_lateness_s": 2, "loss_clear_probes": 15},
    "skeleton": {"interval_s": 5, "window_s": 30},
    "localizer": {},
}


class NotReadyError(RuntimeError):
    """A process of the pipeline was not ready in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """What to start, and how.

    `bootstrap` None: an embedded Apache Kafka is started. `tables` are the
    processes' TOML tables. `agents` sizes the topics that agents read, as `topics apply` does.
    """

    folder: Path
    bootstrap: str | None = None
    cluster: str = "lab"
    prefix: str = ""
    processes: tuple[str, ...] = (WORKER, SKELETON, LOCALIZER)
    agents: int | None = None
    tables: Mapping[str, Table] = field(default_factory=lambda: LAB_TABLES)


def to_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return flat tables of strings, numbers and booleans as TOML."""
    lines: list[str] = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        # JSON's strings, numbers and booleans are TOML's.
        lines.extend(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items())
        lines.append("")
    return "\n".join(lines)


class Pipeline:
    """Starts everything in the block, stops everything after it."""

    def __init__(self, config: PipelineConfig) -> None:
        self.config = config
        self.kafka: EmbeddedKafka | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.config.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as starting:
            bootstrap = self.config.bootstrap
            if bootstrap is None:
                self.kafka = starting.enter_context(EmbeddedKafka(announce=False))
                bootstrap = self.kafka.bootstrap
            kafka_table = {"cluster": self.config.cluster, "topic.prefix": self.config.prefix}
            self.settings: KafkaSettings = settings_from_table(bootstrap, kafka_table)
            apply_topics(self.settings, Options(agents=self.config.agents))
            self.config_path = self.config.folder / "skeletonhunter.toml"
            self.config_path.write_text(
                to_toml(
                    {
                        "kafka": {"bootstrap.servers": bootstrap, **kafka_table},
                        **self.config.tables,
                    }
                ),
                encoding="utf-8",
            )
            self.group = starting.enter_context(ProcessGroup(self.config.folder / "logs"))
            for name in self.config.processes:
                self.start(name)
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, name: str, module: str | None = None) -> Child:
        """Start one of the processes (again)."""
        return self.group.start(
            name,
            [
                sys.executable,
                "-m",
                module or MODULES[name],
                "--config",
                str(self.config_path),
                "--log-json",
            ],
            # Matrices are small: threads of the linear algebra wait for each other in a loop.
            env={"KAFKA_BOOTSTRAP": self.settings.bootstrap, "OPENBLAS_NUM_THREADS": "1"},
        )

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return what a process has logged, as one dict per event."""
        try:
            return self.group.child(name).events()
        except (OSError, KeyError):
            return []

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until each process has logged `<name>.ready`.

        Raises
        ------
        NotReadyError
            If one has not within the timeout.
        ChildDiedError
            If one has ended.
        """
        deadline = time.monotonic() + timeout_s
        waiting = list(self.config.processes)
        while waiting:
            self.group.check()
            waiting = [
                name
                for name in waiting
                if not any(e.get("event") == f"{name}.ready" for e in self.events(name))
            ]
            if waiting and time.monotonic() > deadline:
                tails = "\n".join(self.group.child(n).log_tail() for n in waiting)
                raise NotReadyError(
                    f"{', '.join(waiting)} not ready after {timeout_s:.0f} s:\n{tails}"
                )
            time.sleep(POLL_S)
