"""A scenario through Kafka, worker and localizer gives the verdicts of the direct run."""

import json
from pathlib import Path

import pytest

from arena.run import run_world
from ops.recording.export import export
from schemas.codec import to_datum
from schemas.kafka.connection import KafkaSettings
from tests.integration.data_tools import cli
from tests.unit.ops.recording.test_diagnosis import incident

pytestmark = pytest.mark.broker

# Workers that start, and a minute of rounds: some 20 s on an idle machine.
TIMEOUT_S = 150
# Who wrote it and when differs between versions and machines; nothing else may.
FREE = {"producer_version"}


def told(events: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return transitions without what may differ, in the order of a fault's life."""
    kept = [{k: v for k, v in e.items() if k not in FREE} for e in events]
    return sorted(kept, key=lambda e: (str(e["fault_id"]), int(str(e["seq"]))))


@pytest.mark.parametrize("workers", [1, 2])
def test_live_and_direct_say_the_same(kafka: KafkaSettings, tmp_path: Path, workers: int) -> None:
    """Every transition, field by field: the same cores behind topics as without them."""
    world = incident(60)
    export(world, tmp_path / "r")
    prefix = kafka.topic_prefix + "arena."
    done = cli(
        kafka,
        "replay",
        str(tmp_path / "r"),
        "--prefix",
        prefix,
        "--run",
        "--workers",
        str(workers),
        "--delete-after",
        "--json",
    )
    output, errors = done.communicate(timeout=TIMEOUT_S)
    assert done.returncode == 1, errors
    live = [v["value"] for v in json.loads(output)["verdicts"]]
    direct = [json.loads(json.dumps(to_datum(e), default=str)) for e in run_world(world).events]
    assert direct[0]["state"] == "OPEN"
    assert direct[-1]["state"] == "RESOLVED"
    # First what a failure is read by: a difference of whole records is cut off.
    brief = ("fault_id", "seq", "state", "event_at", "component_id", "summary")
    assert [[e[k] for k in brief] for e in told(live)] == [
        [e[k] for k in brief] for e in told(direct)
    ]
    assert told(live) == told(direct)
