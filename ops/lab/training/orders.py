"""What a running rank is told to do wrong: a file that it looks at in each iteration."""

import json
import os
import time
from pathlib import Path
from typing import Any, Final

ORDERS_FILE: Final = "orders.json"
# While it is there no rank writes dumps.
UNRECORDED_FILE: Final = "unrecorded"
# How soon a rank that hangs notices that it is healed.
LOOK_S: Final = 0.05
EXIT_CODE: Final = 1


def load_batch_from_slow_storage(seconds: float = 3600) -> None:
    """Return late, or never: the name is to be found in stacks."""
    time.sleep(seconds)


class Orders:
    """The orders of one rank: `{"3": {"kind": "rank-slow", "ms": 300}}` is one of rank 3."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._path = folder / ORDERS_FILE
        self._unrecorded = folder / UNRECORDED_FILE
        self._rank = str(rank)
        self._seen = (0, 0)
        self._order: dict[str, Any] = {}

    def current(self) -> dict[str, Any]:
        """Return what this rank is to do now; {}: nothing but its work."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return {}
        # A file that is replaced within one tick of the clock has another inode.
        if (found.st_mtime_ns, found.st_ino) != self._seen:
            self._seen = found.st_mtime_ns, found.st_ino
            self._order = json.loads(self._path.read_bytes()).get(self._rank, {})
        return self._order

    @property
    def recorded(self) -> bool:
        """Whether this rank is to write dumps."""
        return not self._unrecorded.exists()

    def obey(self) -> None:
        """Hang, be slow, or end, if that is the order; to be called in each iteration."""
        order = self.current()
        match order.get("kind"):
            case "rank-stall":
                self.hang()
            case "rank-slow":
                time.sleep(order["ms"] / 1e3)
            case "rank-exit":
                os._exit(EXIT_CODE)

    def hang(self) -> None:
        """Stand still in Python until the order is taken back."""
        while self.current().get("kind") == "rank-stall":
            load_batch_from_slow_storage(LOOK_S)
