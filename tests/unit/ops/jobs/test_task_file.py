"""Task files: what is taken, and that everything wrong is said at once."""

import json
from typing import Any

import pytest

from ops.jobs.task_file import MAX_SHOWN, TaskFileError, parse_task_file
from schemas.records import Task

TOML = b"""
task_id = "job1"
gpus_per_host = 8

[[containers]]
container_id = "job1-w0"
host_id = "node-17"
agent_id = "agent-17"
rails = 3

[[containers]]
container_id = "job1-w1"
host_id = "node-18"
agent_id = "agent-18"
rails = [0, 5]
"""


def parse(content: bytes, name: str = "job.toml") -> Task:
    """Parse for the cluster "c" at time 7."""
    return parse_task_file(name, content, cluster="c", submitted_at=7)


def problems(table: dict[str, Any]) -> list[str]:
    """Return what is wrong with a table."""
    with pytest.raises(TaskFileError) as caught:
        parse(json.dumps(table).encode(), "job.json")
    return caught.value.problems


def test_a_file_becomes_a_task() -> None:
    """Rails as a number count from 0, as a list they stand as they are."""
    task = parse(TOML)
    assert (task.cluster, task.task_id, task.submitted_at, task.gpus_per_host) == (
        "c", "job1", 7, 8,
    )  # fmt: skip
    assert [e.endpoint_id for e in task.endpoints] == [
        "job1-w0/r0", "job1-w0/r1", "job1-w0/r2", "job1-w1/r0", "job1-w1/r5",
    ]  # fmt: skip
    assert (task.endpoints[4].host_id, task.endpoints[4].agent_id) == ("node-18", "agent-18")
    assert task.endpoints[4].rail == 5


def test_json_has_the_same_keys() -> None:
    """The same job, written as JSON, is the same task."""
    as_json = {
        "task_id": "job1",
        "gpus_per_host": 8,
        "containers": [
            {"container_id": "job1-w0", "host_id": "node-17", "agent_id": "agent-17", "rails": 3},
            {
                "container_id": "job1-w1", "host_id": "node-18", "agent_id": "agent-18",
                "rails": [0, 5],
            },
        ],
    }  # fmt: skip
    assert parse(json.dumps(as_json).encode(), "job.json") == parse(TOML)


def test_everything_wrong_is_said_at_once() -> None:
    """A wrong number, an unknown key, a missing id, a wrong rail, a double endpoint: five lines."""
    found = problems(
        {
            "task_id": "a b",
            "gpus_per_host": 0,
            "color": 1,
            "containers": [
                {"container_id": "w0", "host_id": "h", "agent_id": "a", "rails": 1},
                {"container_id": "w0", "host_id": "h2", "agent_id": "a", "rails": 1},
                {"container_id": 5, "agent_id": "b", "rails": [0, 0]},
                "text",
            ],
        }
    )
    text = "\n".join(found)
    for part in (
        "task_id 'a b'", "gpus_per_host=0", "color: unknown", "endpoint w0/r0 is there 2 times",
        "agent a is on 2 hosts", "containers[3].container_id: 5 is no text",
        "containers[3].host_id: missing", "rail 0 is there twice", "containers[4]: a table",
    ):  # fmt: skip
        assert part in text
    assert len(found) == 9


@pytest.mark.parametrize("rails", [0, -1, True, "8", [], [1.5], [-1], [5_000], None, 5_000])
def test_rails_are_counted_or_listed(rails: object) -> None:
    """Nothing else is taken for a number of RNICs."""
    container = {"container_id": "w", "host_id": "h", "agent_id": "a", "rails": rails}
    (found,) = problems({"task_id": "t", "containers": [container]})
    assert found.startswith("containers[1].rails")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("job.toml", b"task_id = "),
        ("job.toml", b"\xff"),
        ("job.json", b"["),
        ("job.json", b"[1]"),
        ("job.json", b"[" * 100_000),
        ("job.toml", b""),
    ],
)
def test_bytes_that_are_no_task_are_refused(name: str, content: bytes) -> None:
    """Whatever the bytes are, the answer is a sentence."""
    with pytest.raises(TaskFileError, match="the task file is wrong"):
        parse(content, name)


def test_a_large_mistake_is_shown_in_part() -> None:
    """A thousand wrong containers do not fill the screen."""
    with pytest.raises(TaskFileError) as caught:
        parse(json.dumps({"task_id": "t", "containers": [1] * 1_000}).encode(), "job.json")
    assert len(caught.value.problems) == 1_000
    assert len(str(caught.value).splitlines()) == MAX_SHOWN + 2
