"""Keeps a lab up and answers the commands of `lab fault | heal | status | down`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ops.lab.control import ControlError, ControlServer
from ops.lab.events import EventLoop
from ops.lab.folder import CONTROL_FILE
from ops.lab.lab import FABRIC, Lab
from ops.running.processes import ChildDiedError
from schemas.process.eventlog import EventLog

# How soon a signal or a dead process is noticed.
TURN_NS: Final = 200_000_000


class LabServer:
    """Serves one lab; `say` gets a sentence for each command and each process that ended."""

    def __init__(self, lab: Lab, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._say = say
        self._down = False
        self._lost: set[str] = set()

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until `lab down`, or until `stopped` says so.

        Raises
        ------
        ChildDiedError
            If the fabric has ended: without it there is no lab.
        """
        loop = EventLoop()
        server = ControlServer(self._lab.path / CONTROL_FILE, loop, self._command, EventLog("lab"))
        try:
            while not (self._down or stopped()):
                loop.run_once(TURN_NS)
                self._look_after()
        finally:
            server.close()
            loop.close()

    def _look_after(self) -> None:
        group = self._lab.group
        fabric = group.child(FABRIC)
        if not fabric.running:
            raise ChildDiedError(f"the fabric has ended:\n{fabric.log_tail()}")
        ended = {name for name in group.names() if not group.child(name).running}
        for name in sorted(ended - self._lost):
            self._say(f"{name} has ended by itself:\n{group.child(name).log_tail(5)}")
        self._lost = ended

    def _command(self, command: Mapping[str, Any]) -> Any:
        match command.get("op"):
            case "status":
                return self._lab.status()
            case "fault":
                params = dict(command.get("params", {}))
                truth = self._lab.fault(str(command["kind"]), str(command["target"]), **params)
                self._say(f"{truth.fault_id}: {truth.kind} {truth.target} {dict(truth.params)}")
                return truth.as_dict()
            case "heal":
                healed = self._lab.heal(command.get("target"))
                for truth in healed:
                    self._say(f"{truth.fault_id}: healed {truth.kind} {truth.target}")
                return [truth.as_dict() for truth in healed]
            case "restart":
                self._lab.ranks.restart()
                self._say("the training job begins anew")
                return {}
            case "down":
                self._down = True
                return {"pid_ends": True}
            case other:
                raise ControlError(f"unknown command {other!r}")
