"""The configuration of the lab's agents, and how they are started."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ops.lab.shape import EndpointSpec, LabShape
from schemas.kafka.connection import BOOTSTRAP_ENV, KafkaSettings

FILE_MODE: Final = 0o600
Table = Mapping[str, str | int | float | bool]

# Loopback answers within a millisecond, a starved machine within some hundred.
AGENT_OPTIONS: Final[Table] = {
    "interval_ms": 1000,
    "timeout_ms": 400,
    "confirm": 2,
    "flows": 4,
    "heartbeat_ms": 1000,
    "counters_hz": 10,
}


def kafka_table(settings: KafkaSettings) -> dict[str, str]:
    """Return the `[kafka]` table from which the settings can be read again."""
    table: dict[str, str | None] = {
        "bootstrap.servers": settings.bootstrap,
        "cluster": settings.cluster,
        "topic.prefix": settings.topic_prefix,
        "schema.registry.url": settings.registry_url,
        "schema.registry.user": settings.registry_user,
        "schema.registry.password": settings.registry_password,
        **settings.options,
    }
    return {key: value for key, value in table.items() if value is not None}


def kafka_environment(settings: KafkaSettings) -> dict[str, str]:
    """Return what keeps a child from following another broker of the user's environment."""
    return {BOOTSTRAP_ENV: settings.bootstrap}


def toml_table(header: str, table: Mapping[str, Any]) -> str:
    """Return a flat table of strings, numbers and booleans as TOML."""
    # JSON's strings, numbers and booleans are TOML's.
    lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join([header, *lines, ""])


def write_private(path: Path, text: str) -> Path:
    """Write a file that may hold passwords; return its path."""
    path.touch(FILE_MODE)
    path.write_text(text, encoding="utf-8")
    return path


class AgentFiles:
    """Writes the agents' configuration files into the lab's folder.

    `rnic` makes the `[[agent.rnic]]` table of an endpoint.
    """

    def __init__(
        self,
        folder: Path,
        shape: LabShape,
        settings: KafkaSettings,
        *,
        rnic: Callable[[EndpointSpec], Mapping[str, str | int]],
        options: Table,
    ) -> None:
        self.folder = folder
        self._shape = shape
        self._settings = settings
        self._rnic = rnic
        self._options = {**AGENT_OPTIONS, **options}

    def path(self, agent_id: str) -> Path:
        """Return where an agent's file is."""
        return self.folder / "agents" / f"{agent_id}.toml"

    def command(self, agent_id: str) -> list[str]:
        """Return the command that runs an agent."""
        return [
            sys.executable,
            "-m",
            "probers",
            "--config",
            str(self.path(agent_id)),
            "--log-json",
        ]

    def write(self) -> None:
        """Write all files."""
        (self.folder / "agents").mkdir(mode=0o700)
        for host, agent_id in enumerate(self._shape.agent_ids()):
            mine = [e for e in self._shape.endpoints if e.host == host]
            write_private(self.path(agent_id), self.text(mine))

    def text(self, mine: list[EndpointSpec]) -> str:
        """Return the file of the agent that answers for these endpoints of one host."""
        agent = {
            "id": mine[0].agent_id,
            "host_id": mine[0].host_id,
            "container_id": mine[0].container_id,
            "task_id": self._shape.task_id,
            **self._options,
        }
        return "\n".join(
            [
                toml_table("[kafka]", kafka_table(self._settings)),
                toml_table("[agent]", agent),
                *(toml_table("[[agent.rnic]]", self._rnic(e)) for e in mine),
            ]
        )
