"""Apache Kafka in a container, for machines where a Docker engine answers.

The image and settings are those of docker-compose.yml. (testcontainers' own Kafka
class drives the scripts of another vendor's image.)
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import yaml

from ops.broker.ports import LOOPBACK, ClaimedPorts
from ops.broker.ready import wait_for_metadata
from tests import ROOT

COMPOSE: Final = ROOT / "docker-compose.yml"
EXTERNAL_PORT: Final = 9094
# What makes a broker for tests quick; see ops.broker.properties.
QUICK: Final = {
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "4",
    "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "4",
    # Tests with old times would lose their records to the first retention run.
    "KAFKA_LOG_INITIAL_TASK_DELAY_MS": "3600000",
    "KAFKA_LOG_CLEANER_BACKOFF_MS": "3600000",
}


def engine_answers() -> bool:
    """Return whether a Docker engine of this machine is there, not only the client."""
    # A published port of an engine elsewhere cannot be reached on our loopback address.
    if not os.environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        return False
    if shutil.which("docker") is None:
        return False
    try:
        done = subprocess.run(
            ["docker", "info", "--format", "{{.ServerVersion}}"],
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and bool(done.stdout.strip())


def service() -> dict[str, Any]:
    """Return the broker's service of the compose file."""
    content = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    found: dict[str, Any] = content["services"]["kafka"]
    return found


def environment(port: int) -> dict[str, str]:
    """Return the container's environment for a broker that clients reach at this port."""
    settings: dict[str, str] = service()["environment"]
    advertised = settings["KAFKA_ADVERTISED_LISTENERS"]
    return {
        **settings,
        **QUICK,
        "KAFKA_ADVERTISED_LISTENERS": advertised.replace(
            f"{LOOPBACK}:{EXTERNAL_PORT}", f"{LOOPBACK}:{port}"
        ),
    }


@contextmanager
def kafka_container(timeout_s: float = 120.0) -> Iterator[str]:
    """Run the broker and give its address; raises what the engine raises."""
    from testcontainers.core.container import DockerContainer

    ports = ClaimedPorts()
    port = ports.claim()
    container = DockerContainer(service()["image"])
    for name, value in environment(port).items():
        container.with_env(name, value)
    # The broker registers itself under this name; published on loopback only.
    container.with_kwargs(hostname="kafka")
    published: dict[str, Any] = container.ports
    published[f"{EXTERNAL_PORT}/tcp"] = (LOOPBACK, port)
    try:
        with container:
            address = f"{LOOPBACK}:{port}"
            _wait_ready(container, address, timeout_s)
            yield address
    finally:
        ports.release()


def _wait_ready(container: Any, address: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s

    def check() -> None:
        container.reload()
        if container.status not in {"created", "running"} or time.monotonic() > deadline:
            logs = b"".join(container.get_logs()).decode(errors="replace")
            raise RuntimeError(f"Kafka's container is not ready:\n{logs[-2000:]}")

    wait_for_metadata(address, check)
