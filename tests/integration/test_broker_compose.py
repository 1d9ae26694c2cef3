"""The broker of the compose file, held to the very Kafka that its image contains."""

import os
import subprocess
from pathlib import Path

import pytest

from ops.broker.fetch import fetch
from ops.broker.jvm import java
from ops.broker.lock import KAFKA
from ops.broker.properties import as_text
from tests import kafka_container

pytestmark = pytest.mark.broker


def test_kafka_takes_the_settings_of_the_container(tmp_path: Path) -> None:
    """Kafka's own storage tool reads the settings, as the image derives them, and formats."""
    environment = kafka_container.environment(23_456)
    assert "EXTERNAL://127.0.0.1:23456" in environment["KAFKA_ADVERTISED_LISTENERS"]
    cluster_id = environment.pop("CLUSTER_ID")
    # The image's rule: KAFKA_A_B is the setting a.b.
    settings = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
    }
    assert settings.pop("log.dirs").startswith(
        kafka_container.service()["volumes"][0].split(":")[1]
    )
    settings["log.dirs"] = str(tmp_path / "logs")
    config = tmp_path / "server.properties"
    config.write_text(as_text(settings), encoding="utf-8")
    jars = os.pathsep.join(map(str, fetch(KAFKA)))
    done = subprocess.run(
        [java(), "-XX:TieredStopAtLevel=1", "-cp", jars, "kafka.tools.StorageTool", "format",
         "-t", cluster_id, "-c", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert cluster_id in (tmp_path / "logs" / "meta.properties").read_text()
