"""Processes that look like ranks: rank 0 sends a little all the time, rank 1 reads it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = """
import os, socket, sys, time
listening, address, port = os.environ["RANK"] == "1", sys.argv[1], int(sys.argv[2])
if listening:
    listener = socket.create_server((address, port))
    connection, _ = listener.accept()
    while connection.recv(65536):
        pass
while True:
    try:
        connection = socket.create_connection((address, port), 1)
        break
    except OSError:
        time.sleep(0.05)
connection.settimeout(None)
while True:
    connection.send(bytes(100))
    time.sleep(0.02)
"""


@contextmanager
def rank(
    number: int, task: str, folder: Path, address: str, port: int, *, namespace: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a rank whose dumps are in the folder; in a network namespace, if one is given."""
    environment = os.environ | {
        "RANK": str(number),
        "WORLD_SIZE": "2",
        "SKELETONHUNTER_TASK_ID": task,
        "SKELETONHUNTER_ENDPOINT_IDS": f"w{number}/r0",
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/rank_",
    }
    enter = [] if namespace is None else ["ip", "netns", "exec", namespace]
    command = [*enter, sys.executable, "-c", SCRIPT, address, str(port)]
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()
