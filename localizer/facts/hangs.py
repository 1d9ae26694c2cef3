"""The hangs of training jobs, as the hang watcher tells them."""

from typing import Final

from schemas.enums import FaultLifecycle
from schemas.records import Hang

# One of each job.
MAX_HANGS: Final = 4_096


class HangBook:
    """Open hangs by id.

    Attributes
    ----------
    refused
        Hangs beyond the bound.
    version
        Grows with every change.
    """

    def __init__(self) -> None:
        self.refused = 0
        self.version = 0
        self._open: dict[str, Hang] = {}
        self._since_ns: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def set_hang(self, hang_id: str, hang: Hang | None, at_ns: int) -> None:
        """Apply the latest state of a hang, or (None) that nothing is known of it any more."""
        known = self._open.get(hang_id)
        if hang is not None and known is not None and hang.seq < known.seq:
            return
        if hang is None or hang.state is FaultLifecycle.RESOLVED:
            if known is not None:
                del self._open[hang_id], self._since_ns[hang_id]
                self.version += 1
            return
        if known is None and len(self._open) >= MAX_HANGS:
            self.refused += 1
            return
        self._open[hang_id] = hang
        self._since_ns.setdefault(hang_id, at_ns)
        self.version += 1

    def open_hangs(self) -> list[tuple[Hang, int]]:
        """Return the open hangs by job, each with the time since which it is known."""
        return sorted(
            ((hang, self._since_ns[name]) for name, hang in self._open.items()),
            key=lambda item: (item[0].task_id, item[1], item[0].hang_id),
        )
