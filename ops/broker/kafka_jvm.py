"""Command lines of Kafka's two programs: the storage tool and the server."""

import base64
import os
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ops.broker import warm
from ops.broker.errors import BrokerError
from ops.broker.jvm import java
from ops.broker.properties import SCRAM, Login

FORMAT_TIMEOUT_S: Final = 60.0
SERVER: Final = "kafka.Kafka"
STORAGE_TOOL: Final = "kafka.tools.StorageTool"


def java_command(
    jars: Sequence[Path], folder: Path, *, record: Path | None = None, mains: Sequence[str]
) -> list[str]:
    """Return the call of a main class with its arguments, for a broker whose files are in `folder`.

    `record` names a file to be written with what makes later starts quick.
    """
    log_config = Path(__file__).with_name("log4j2.json")
    return [
        java(),
        "-Xmx512m",
        # On two cores beside the workers: one collector thread is enough.
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-XX:ErrorFile=kafka-crash-%p.log",
        *(warm.use_flags() if record is None else warm.record_flags(record)),
        "-Djava.awt.headless=true",
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-Dlog4j2.configurationFile={log_config}",
        "-cp",
        os.pathsep.join(map(str, jars)),
        *mains,
    ]


def format_storage(
    jars: Sequence[Path], folder: Path, config: Path, login: Login | None = None
) -> None:
    """Prepare an empty log folder.

    Raises
    ------
    BrokerError
        If Kafka refuses the settings; the message holds what it said.
    """
    scram: list[str] = []
    if login is not None:
        record = f"[name={login.user},password={login.password}]"
        for mechanism in SCRAM:
            scram += ["--add-scram", f"{mechanism}={record}"]
    arguments = ["format", "-t", new_cluster_id(), "-c", str(config), *scram]
    try:
        done = subprocess.run(
            java_command(jars, folder, mains=[STORAGE_TOOL, *arguments]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerError(f"cannot format {folder}: {error}") from error
    if done.returncode != 0:
        raise BrokerError(f"cannot format {folder}:\n{done.stdout.strip()[-2000:]}")


def new_cluster_id() -> str:
    """Return a new id as Kafka writes them; one with a leading dash would pass for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
