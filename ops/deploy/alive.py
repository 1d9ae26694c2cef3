"""Health check of a container: its main process is the right one, and connected to Kafka.

    python -m ops.deploy.alive streams

A worker that stalls ends itself; this check finds the one that has never
started, or that has lost its broker. Linux only, as the images are.
"""

import os
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final

from schemas.kafka.connection import load_settings
from schemas.process.settings import ConfigError

PROC: Final = Path("/proc")
# State of a TCP connection that is up, as the kernel numbers it (include/net/tcp_states.h).
ESTABLISHED: Final = "01"
MAIN_PID: Final = 1


def ports_of(bootstrap: str) -> frozenset[int]:
    """Return the ports of a bootstrap list `HOST:PORT,HOST:PORT`."""
    return frozenset(int(part.rpartition(":")[2]) for part in bootstrap.split(","))


def has_connection(table: str, ports: Iterable[int]) -> bool:
    """Return whether a table like /proc/net/tcp shows an open connection to one of the ports."""
    wanted = set(ports)
    for line in table.splitlines()[1:]:
        columns = line.split()
        if len(columns) < 4 or columns[3] != ESTABLISHED:
            continue
        if int(columns[2].rpartition(":")[2], 16) in wanted:
            return True
    return False


def runs_module(command_line: bytes, module: str) -> bool:
    """Return whether a command line as in /proc/PID/cmdline is `python -m module ...`."""
    words = command_line.decode(errors="replace").split("\0")
    return ("-m", module) in pairwise(words)


def complaint(module: str, pid: int = MAIN_PID, proc: Path = PROC) -> str | None:
    """Return what is wrong with the process; None: nothing."""
    try:
        command_line = (proc / str(pid) / "cmdline").read_bytes()
        tables = [
            (proc / str(pid) / "net" / name).read_text(encoding="ascii")
            for name in ("tcp", "tcp6")
            if (proc / str(pid) / "net" / name).exists()
        ]
        settings = load_settings()
    except OSError as error:
        return f"cannot look at process {pid}: {error.strerror}"
    except ConfigError as error:
        return str(error)
    if not runs_module(command_line, module):
        return f"process {pid} is not {module}"
    if not any(has_connection(table, ports_of(settings.bootstrap)) for table in tables):
        return f"no connection to {settings.bootstrap}"
    return None


def main(arguments: list[str]) -> int:
    """Print what is wrong; return 0 or 1."""
    if len(arguments) != 1:
        print("usage: python -m ops.deploy.alive MODULE")
        return os.EX_USAGE
    found = complaint(arguments[0])
    if found is not None:
        print(found)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
