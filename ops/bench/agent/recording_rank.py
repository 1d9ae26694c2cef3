"""A process that looks like a rank of a gloo job to the collector, without PyTorch.

It launches operations at a rate, writes the ring of them as `probers/collector/torch_dump.py` does
(so often that it would take two thousandths of a processor), and is connected to all other ranks.
"""

import collections
import json
import os
import socket
import sys
import time
from typing import Any

# What PyTorch takes to write one operation of a dump, and what dumps may take of the time.
WRITE_S = 25e-6
SHARE = 0.002


def entry(number: int, now_ns: int) -> dict[str, Any]:
    """Return an operation as a dump of gloo has it; every fourth is of the world."""
    group = ("0", "default_pg") if number % 4 == 0 else ("1", "dp")
    size = [[1024, 1024]] if number % 8 else [[1024]]
    return {
        "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "pg_id": int(group[0]),
        "process_group": group, "profiling_name": "gloo:all_reduce", "record_id": number,
        "input_sizes": size, "input_dtypes": ["Float"], "output_sizes": size,
        "output_dtypes": ["Float"], "is_p2p": False, "state": "scheduled", "retired": True,
        "thread_id": "139975044090752", "thread_name": "python", "timeout_ms": 1_800_000,
        "time_created_ns": now_ns, "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": 0,
    }  # fmt: skip


def mesh(rank: int, ports: list[int]) -> list[socket.socket]:
    """Connect all ranks with each other; each listens at its port."""
    listener = socket.create_server(("127.0.0.1", ports[rank]))
    connections = []
    for other in range(rank):
        while True:
            try:
                connections.append(socket.create_connection(("127.0.0.1", ports[other]), 1))
                break
            except OSError:
                time.sleep(0.05)
    for _ in range(len(ports) - rank - 1):
        connections.append(listener.accept()[0])
    for connection in connections:
        connection.setblocking(False)
    return connections


def main() -> None:
    """Be a rank until somebody ends it."""
    ports = [int(text) for text in sys.argv[1].split(",")]
    rate_hz, ring = int(sys.argv[2]), int(sys.argv[3])
    rank = int(os.environ["RANK"])
    path = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)
    connections = mesh(rank, ports)
    held: collections.deque[dict[str, Any]] = collections.deque(maxlen=ring)
    launched, begin, dump_at = 0, time.monotonic(), 0.0
    period_s = max(2.0, ring * WRITE_S / SHARE)
    while True:
        now = time.monotonic()
        while launched < (now - begin) * rate_hz:
            held.append(entry(launched, time.time_ns()))
            launched += 1
        for connection in connections:
            try:
                connection.send(bytes(1000))
                connection.recv(65_536)
            except BlockingIOError:
                continue
        if now >= dump_at:
            dump_at = now + period_s
            document = {"version": "2.10", "pg_config": {}, "entries": list(held)}
            with open(f"{path}.tmp", "w", encoding="ascii") as file:
                json.dump(document, file, separators=(",", ":"))
            os.replace(f"{path}.tmp", path)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
