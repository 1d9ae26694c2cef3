"""Restarts processes that were killed or ended by themselves, as a supervisor does."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ops.bench.rig.report import Say

# Between a process's end and its next start.
RESTART_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Supervised:
    """A process that can be killed and started again.

    Attributes
    ----------
    kind : what it is; a run counts kills by kind
    running : whether the process is there
    """

    name: str
    kind: str
    running: Callable[[], bool]
    kill: Callable[[], object]
    start: Callable[[], object]


class Supervisor:
    """Kills processes on request and starts again what has ended.

    Attributes
    ----------
    kills : by kind
    ended : processes that ended by themselves, by kind
    """

    def __init__(self, processes: list[Supervised], say: Say) -> None:
        self._processes = {process.name: process for process in processes}
        self._say = say
        self._restart_s: dict[str, float] = {}
        self.kills: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def running(self) -> list[Supervised]:
        """Return the processes that are there."""
        return [
            process
            for name, process in self._processes.items()
            if name not in self._restart_s and process.running()
        ]

    def kill(self, process: Supervised, down_s: float = RESTART_S) -> None:
        """End a process by SIGKILL; it is started again after a time."""
        process.kill()
        self.kills[process.kind] += 1
        self._restart_s[process.name] = time.monotonic() + down_s

    def look(self) -> None:
        """Start what is due, and notice what has ended by itself."""
        now_s = time.monotonic()
        for name, process in self._processes.items():
            at_s = self._restart_s.get(name)
            if at_s is not None:
                if now_s >= at_s:
                    process.start()
                    del self._restart_s[name]
            elif not process.running():
                self._say(f"{name} has ended by itself")
                self.ended[process.kind] += 1
                self._restart_s[name] = now_s + RESTART_S

    def release(self, kind: str) -> None:
        """Look no more after the processes of a kind."""
        for name in [n for n, process in self._processes.items() if process.kind == kind]:
            del self._processes[name]
            self._restart_s.pop(name, None)

    @property
    def all_running(self) -> bool:
        """Whether nothing waits for its next start."""
        return not self._restart_s and len(self.running()) == len(self._processes)
