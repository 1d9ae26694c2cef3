"""Task files: a training job as a TOML or JSON file, checked as a whole.

    task_id = "job1"
    gpus_per_host = 8            # may be left out

    [[containers]]
    container_id = "job1-w0"
    host_id = "gpu-node-17"
    agent_id = "agent-17"
    rails = 8                    # RNICs 0 to 7; or a list: [0, 2, 4, 6]

Each RNIC of a container is an endpoint `<container_id>/r<rail>`. A JSON file has
the same keys. Pure: no file is read here, no clock, no Kafka.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from schemas.ids import check_id
from schemas.records import Task, TaskEndpoint

# The contract's bound for one task record.
MAX_ENDPOINTS: Final = 65_536
MAX_RAIL: Final = 1_023
MAX_GPUS: Final = 1_024
MAX_FILE_BYTES: Final = 16 * 2**20
TASK_KEYS: Final = ("task_id", "gpus_per_host", "containers")
CONTAINER_KEYS: Final = ("container_id", "host_id", "agent_id", "rails")
# Of the same mistake made a thousand times, a reader wants the first few.
MAX_SHOWN: Final = 20


class TaskFileError(ValueError):
    """A task file that cannot be used; `problems` holds everything that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        shown = problems[:MAX_SHOWN]
        if len(problems) > MAX_SHOWN:
            shown = [*shown, f"… and {len(problems) - MAX_SHOWN} more"]
        super().__init__("\n  ".join(["the task file is wrong:", *shown]))


def parse_task_file(name: str, content: bytes, *, cluster: str, submitted_at: int) -> Task:
    """Return the task of a file; a name that ends in `.json` is JSON, any other TOML.

    Raises
    ------
    TaskFileError
        Naming everything that is wrong, not only the first thing.
    """
    if len(content) > MAX_FILE_BYTES:
        raise TaskFileError([f"{len(content)} bytes; at most {MAX_FILE_BYTES}"])
    try:
        text = content.decode()
        table = json.loads(text) if name.endswith(".json") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise TaskFileError([f"{name}: {error}"]) from error
    if not isinstance(table, dict):
        raise TaskFileError([f"{name}: a JSON object is expected"])
    return task_from_table(table, cluster=cluster, submitted_at=submitted_at)


def task_from_table(table: Mapping[str, Any], *, cluster: str, submitted_at: int) -> Task:
    """Return the task of a parsed file; raises TaskFileError as `parse_task_file` does."""
    problems = _unknown_keys("", table, TASK_KEYS)
    task_id = _id(problems, "task_id", table.get("task_id"))
    gpus = table.get("gpus_per_host")
    if gpus is not None and not (_is_int(gpus) and 1 <= gpus <= MAX_GPUS):
        problems.append(f"gpus_per_host={gpus!r}: a whole number from 1 to {MAX_GPUS}")
    containers = table.get("containers")
    endpoints: list[TaskEndpoint] = []
    if not isinstance(containers, list) or not containers:
        problems.append("containers: at least one [[containers]] table is needed")
    else:
        for number, container in enumerate(containers, 1):
            endpoints += _container(problems, f"containers[{number}]", container)
    problems += _twice(endpoints)
    if len(endpoints) > MAX_ENDPOINTS:
        problems.append(f"{len(endpoints)} endpoints; at most {MAX_ENDPOINTS}")
    if problems:
        raise TaskFileError(problems)
    return Task(
        cluster=cluster,
        task_id=task_id,
        submitted_at=submitted_at,
        gpus_per_host=gpus,
        endpoints=tuple(endpoints),
    )


def _container(problems: list[str], where: str, table: Any) -> list[TaskEndpoint]:
    if not isinstance(table, dict):
        problems.append(f"{where}: a table is expected, not {table!r:.60}")
        return []
    problems += _unknown_keys(f"{where}.", table, CONTAINER_KEYS)
    container_id, host_id, agent_id = (
        _id(problems, f"{where}.{key}", table.get(key)) for key in CONTAINER_KEYS[:3]
    )
    return [
        TaskEndpoint(
            endpoint_id=f"{container_id}/r{rail}",
            container_id=container_id,
            host_id=host_id,
            agent_id=agent_id,
            rail=rail,
        )
        for rail in _rails(problems, f"{where}.rails", table.get("rails"))
    ]


def _rails(problems: list[str], where: str, value: Any) -> list[int]:
    if _is_int(value) and 1 <= value <= MAX_RAIL + 1:
        return list(range(value))
    if isinstance(value, list) and value and all(_is_int(r) and 0 <= r <= MAX_RAIL for r in value):
        again = [rail for rail, times in Counter(value).items() if times > 1]
        if not again:
            return value
        problems.append(f"{where}: rail {again[0]} is there twice")
        return []
    problems.append(f"{where}={value!r:.60}: a number of RNICs, or a list of rails 0 to {MAX_RAIL}")
    return []


def _twice(endpoints: list[TaskEndpoint]) -> list[str]:
    """Return what is said of containers that occur twice, and of agents on two hosts."""
    times = Counter(e.endpoint_id for e in endpoints)
    hosts: dict[str, set[str]] = {}
    for e in endpoints:
        hosts.setdefault(e.agent_id, set()).add(e.host_id)
    return [
        *(f"endpoint {name} is there {n} times" for name, n in times.items() if n > 1),
        *(
            f"agent {agent} is on {len(on)} hosts: {', '.join(sorted(on))}"
            for agent, on in hosts.items()
            if len(on) > 1
        ),
    ]


def _id(problems: list[str], what: str, value: Any) -> str:
    if not isinstance(value, str):
        problems.append(f"{what}: " + ("missing" if value is None else f"{value!r:.60} is no text"))
        return ""
    try:
        return check_id(what, value)
    except ValueError as error:
        problems.append(str(error))
        return ""


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unknown_keys(prefix: str, table: Mapping[str, Any], known: tuple[str, ...]) -> list[str]:
    return [
        f"{prefix}{key}: unknown; there are {', '.join(known)}" for key in table if key not in known
    ]
