"""How far workers are, seen from outside: committed offsets, lines of their logs."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ops.log.positions import GroupPositions
from ops.running.processes import Child, ProcessGroup

POLL_S: Final = 0.02
READY_POLL_S: Final = 0.1


class Positions:
    """What a group has committed of a topic; `ends` are those of its partitions."""

    def __init__(
        self, positions: GroupPositions, group: str, topic: str, ends: Mapping[int, int]
    ) -> None:
        self._positions = positions
        self._group = group
        self._places = [(topic, partition) for partition in ends]
        self.end = sum(ends.values())

    def done(self) -> int | None:
        """Return the sum of the committed offsets; None while there is none at all."""
        found = self._positions.committed(self._group, self._places).values()
        known = [offset for offset in found if offset is not None]
        return sum(known) if known else None

    def wait(
        self, condition: Callable[[int | None], bool], group: ProcessGroup, timeout_s: float
    ) -> float:
        """Return the monotonic time at which a sum of offsets satisfies; raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while True:
            group.check()
            asked = time.monotonic()
            if condition(self.done()):
                return asked
            if asked > deadline:
                raise TimeoutError(f"{self._group} stands at {self.done()} after {timeout_s:.0f} s")
            time.sleep(POLL_S)


def documents(child: Child) -> list[dict[str, Any]]:
    """Return what a process has printed or logged as JSON objects, one a line."""
    found = []
    for line in child.log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            continue  # what a library prints by itself
        if isinstance(document, dict):
            found.append(document)
    return found


def events(child: Child, *names: str) -> list[dict[str, Any]]:
    """Return the events of these names that a process has logged."""
    return [d for d in documents(child) if d.get("event") in names]


def wait_ready(group: ProcessGroup, workers: Sequence[Child], timeout_s: float) -> None:
    """Wait until workers say that they are ready; raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not all(events(child, "worker.ready") for child in workers):
        group.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the workers are not ready after {timeout_s:.0f} s")
        time.sleep(READY_POLL_S)
