"""Two processes of one role, of which one leads; the one that leads can be killed."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from ops.bench.rig.waiting import wait_until
from ops.running.processes import Child

START_S: Final = 120.0
POLL_S: Final = 0.02


class Pair:
    """A leader and its standby.

    Parameters
    ----------
    role
        What the events of their logs begin with.
    start
        Starts a process of that name; its log goes on where one of the name ran before.
    """

    def __init__(self, role: str, start: Callable[[str], Child]) -> None:
        self._role = role
        self._start = start
        self.leader = start(f"{role}-a")
        self._wait(self.leader, "leading", 0)
        self.standby = start(f"{role}-b")
        self._wait(self.standby, "ready", 0)

    def kill(self) -> Callable[[], float]:
        """End the leader by SIGKILL; return what waits for the other one.

        That says how long it took, and starts the killed one again, as the next standby.
        """
        before = len(self._events(self.standby, "leading"))
        killed_s = time.time()
        self.leader.process.kill()
        self.leader.process.wait()

        def until_led() -> float:
            self._wait(self.standby, "leading", before)
            led = self._events(self.standby, "leading")[-1]
            ready = len(self._events(self.leader, "ready"))
            self.leader, self.standby = self.standby, self._start(self.leader.name)
            self._wait(self.standby, "ready", ready)
            return datetime.fromisoformat(led["at"]).timestamp() - killed_s

        return until_led

    def _events(self, child: Child, event: str) -> list[dict[str, str]]:
        return child.events(f"{self._role}.{event}")

    def _wait(self, child: Child, event: str, before: int) -> None:
        wait_until(
            lambda: len(self._events(child, event)) > before, START_S,
            f"no {self._role}.{event}: {child.log_tail()}", poll_s=POLL_S,
        )  # fmt: skip
