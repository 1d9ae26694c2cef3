"""The agents of an rxe lab: processes of the machine, started and signalled by the fabric."""

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ops.lab.agent_group import AgentGroup, starver
from ops.lab.agents import AgentFiles
from ops.lab.control import ControlError, request
from ops.lab.rxe.machine import LOGS, OUT, guest_path
from ops.lab.shape import LabShape
from ops.running.processes import ProcessGroup
from schemas.kafka.connection import KafkaSettings

TAIL_LINES: Final = 15


class MachineAgents(AgentGroup):
    """One agent per host, in the machine; `socket` is the fabric's, `folder` the lab's."""

    # Emulated, and on a busy machine slower still.
    register_timeout_s = 240.0

    def __init__(
        self,
        group: ProcessGroup,
        files: AgentFiles,
        shape: LabShape,
        settings: KafkaSettings,
        changed: Callable[[], None],
        *,
        socket: Path,
        folder: Path,
    ) -> None:
        super().__init__(group, files, shape, settings, changed)
        self._socket = socket
        self._folder = folder

    def _ask(self, do: str, name: str, **arguments: Any) -> Any:
        return request(self._socket, {"op": "agents", "do": do, "name": name, **arguments})

    def _signal(self, name: str, number: signal.Signals) -> None:
        with suppress(ControlError):
            self._ask("signal", name, number=int(number))

    def start(self, agent_id: str) -> None:
        """Start an agent (again)."""
        path = guest_path(self._folder, self._files.path(agent_id))
        self._ask("start", agent_id, argv=["--config", path, "--log-json"])

    def kill(self, agent_id: str) -> None:
        """End an agent as a crash would."""
        self._signal(agent_id, signal.SIGKILL)

    def stop(self, agent_id: str) -> None:
        """Make an agent stand still."""
        self._signal(agent_id, signal.SIGSTOP)
        self._stopped.add(agent_id)

    def starve(self, agent_id: str, how: str, amount: float) -> None:  # noqa: ARG002 - a machine knows one way
        """Let an agent run for that share of each second only."""
        self._ask("starve", starver(agent_id), victim=agent_id, percent=amount)
        self._starved.add(agent_id)

    def feed(self, agent_id: str) -> None:
        """Let a starved agent run again."""
        self._starved.discard(agent_id)
        self._signal(starver(agent_id), signal.SIGTERM)

    def go_on(self, agent_id: str) -> None:
        """Let a stopped agent go on."""
        self._stopped.discard(agent_id)
        self._signal(agent_id, signal.SIGCONT)

    def state(self, agent_id: str) -> str:
        """Return `running`, `stopped`, `starved`, `killed`, or `ended by itself`."""
        if agent_id in self._stopped:
            return "stopped"
        if agent_id in self._starved:
            return "starved"
        code = self._ask("states", agent_id).get(agent_id)
        if code is None:
            return "running"
        return "killed" if code == -signal.SIGKILL else "ended by itself"

    def _log_tail(self, agent_id: str) -> str:
        try:
            path = self._folder / OUT / LOGS / f"{agent_id}.log"
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-TAIL_LINES:])
