"""Tasks on a real broker: submitted, listed, ended, from the command line as a user would."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.kafka.connection import KafkaSettings

pytestmark = pytest.mark.broker
# Only this group: the umbrella's other groups are none of these tests' business.
COMMAND = (
    "import sys, typer\n"
    "from ops.cli import task\n"
    "from ops.cli.errors import CliError\n"
    "app = typer.Typer(); task.register(app)\n"
    "try:\n"
    "    app()\n"
    "except (CliError, ConnectionError) as error:\n"
    "    print(error, file=sys.stderr); sys.exit(getattr(error, 'exit_code', 3))\n"
)
FILE = """
task_id = "{task_id}"
[[containers]]
container_id = "{task_id}-w0"
host_id = "h0"
agent_id = "a0"
rails = 2
"""


def run(kafka: KafkaSettings, *arguments: str, code: int = 0) -> str:
    """Run `task …`, check the exit code, return what was printed."""
    done = subprocess.run(
        [
            sys.executable, "-c", COMMAND, "task", *arguments, "--bootstrap", kafka.bootstrap,
            "--prefix", kafka.topic_prefix,
        ],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_task_lives_on_the_topic(kafka: KafkaSettings, tmp_path: Path) -> None:
    """Submitted it is listed as running, ended as ended; ending again changes nothing."""
    for task_id in ("job1", "job2"):
        (tmp_path / "job.toml").write_text(FILE.format(task_id=task_id))
        assert "2 endpoints" in run(kafka, "submit", str(tmp_path / "job.toml"))
    first = json.loads(run(kafka, "list", "--json"))
    assert [(t["task_id"], t["endpoints"], t["ended_at"]) for t in first] == [
        ("job1", 2, None), ("job2", 2, None),
    ]  # fmt: skip
    assert "ended" in run(kafka, "end", "job1")
    after = {t["task_id"]: t["ended_at"] for t in json.loads(run(kafka, "list", "--json"))}
    assert after["job1"] is not None
    assert after["job2"] is None
    assert "already" in run(kafka, "end", "job1")
    again = {t["task_id"]: t["ended_at"] for t in json.loads(run(kafka, "list", "--json"))}
    assert again == after
    assert "job1, job2" in run(kafka, "end", "job3", code=2)


def test_a_wrong_file_changes_nothing(kafka: KafkaSettings, tmp_path: Path) -> None:
    """All mistakes are named, with the exit code for usage; no task appears."""
    (tmp_path / "job.toml").write_text('task_id = "a b"\ncontainers = 3\n')
    said = run(kafka, "submit", str(tmp_path / "job.toml"), code=2)
    assert "task_id" in said
    assert "containers" in said
    assert "no task" in run(kafka, "list")
