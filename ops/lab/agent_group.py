"""The agents of a lab as processes: started, awaited, killed, stopped, continued."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ops.lab.agents import AgentFiles, kafka_environment
from ops.lab.errors import LabError
from ops.lab.faults import FaultError
from ops.lab.quota import why_no_quota
from ops.lab.shape import LabShape
from ops.log.watch import Watch
from ops.running.processes import ProcessGroup
from schemas.kafka.connection import KafkaSettings
from schemas.records import Endpoint

# An agent starts within a second on an idle machine; this is for a busy one.
REGISTER_TIMEOUT_S: Final = 60.0
SHOWN: Final = 4


class AgentGroup:
    """One agent per host, beside other processes of the same group.

    `changed` is called whenever a process was started.
    """

    register_timeout_s = REGISTER_TIMEOUT_S

    def __init__(
        self,
        group: ProcessGroup,
        files: AgentFiles,
        shape: LabShape,
        settings: KafkaSettings,
        changed: Callable[[], None],
    ) -> None:
        self._group = group
        self._files = files
        self._shape = shape
        self._environment = kafka_environment(settings)
        self._changed = changed
        self._stopped: set[str] = set()
        self._starved: set[str] = set()

    def start_all(self) -> None:
        """Write the configurations, start all agents."""
        self._files.write()
        for agent_id in self._shape.agent_ids():
            self.start(agent_id)

    def start(self, agent_id: str) -> None:
        """Start an agent (again)."""
        self._group.start(agent_id, self._files.command(agent_id), env=self._environment)
        self._changed()

    def hurt(self, kind: str, agent_id: str, params: Mapping[str, Any]) -> None:
        """Put an agent's fault in; raises FaultError if this machine cannot have it."""
        match kind:
            case "agent-kill":
                self.kill(agent_id)
            case "agent-drain":
                self._group.stop(agent_id)
            case "agent-starve":
                self.starve(agent_id, "stop", params["percent"])
            case "agent-quota":
                lacking = why_no_quota()
                if lacking is not None:
                    raise FaultError(f"{kind}: {lacking}")
                self.starve(agent_id, "quota", params["percent"])
            case "agent-crowd":
                self.starve(agent_id, "crowd", round(params["count"]))
            case _:
                self.stop(agent_id)

    def mend(self, kind: str, agent_id: str) -> None:
        """Take an agent's fault out."""
        match kind:
            case "agent-kill" | "agent-drain":
                self.start(agent_id)
            case "agent-starve" | "agent-quota" | "agent-crowd":
                self.feed(agent_id)
            case _:
                self.go_on(agent_id)

    def kill(self, agent_id: str) -> None:
        """End an agent as a crash would."""
        self._group.kill(agent_id)

    def stop(self, agent_id: str) -> None:
        """Make an agent stand still."""
        os.kill(self._group.child(agent_id).pid, signal.SIGSTOP)
        self._stopped.add(agent_id)

    def starve(self, agent_id: str, how: str, amount: float) -> None:
        """Take the processor from an agent; `how` and `amount` as `ops.lab.starve` has them."""
        self._group.start(
            starver(agent_id),
            [
                *(sys.executable, "-m", "ops.lab.starve"),
                *("--pid", str(self._group.child(agent_id).pid)),
                *(f"--{how}", str(amount)),
                *("--lab", str(self._files.folder)),
            ],
        )
        self._starved.add(agent_id)
        self._changed()

    def feed(self, agent_id: str) -> None:
        """Let a starved agent run again."""
        self._starved.discard(agent_id)
        self._group.stop(starver(agent_id))

    def go_on(self, agent_id: str) -> None:
        """Let a stopped agent go on."""
        self._stopped.discard(agent_id)
        with suppress(ProcessLookupError, KeyError):
            os.kill(self._group.child(agent_id).pid, signal.SIGCONT)

    def all_go_on(self) -> None:
        """Let all agents go on that do not: they would get a SIGTERM only then."""
        for agent_id in list(self._stopped):
            self.go_on(agent_id)
        for agent_id in list(self._starved):
            self.feed(agent_id)

    def state(self, agent_id: str) -> str:
        """Return `running`, `stopped`, `starved`, `killed`, or `ended by itself`."""
        if agent_id in self._stopped:
            return "stopped"
        if agent_id in self._starved:
            return "starved"
        if agent_id not in self._group.names():
            return "killed"
        return "running" if self._group.child(agent_id).running else "ended by itself"

    def wait_registered(self, watch: Watch) -> None:
        """Wait until all endpoints are seen in `watch`, which must look from before the start.

        Raises
        ------
        LabError
            If some do not register in time.
        ChildDiedError
            If a process has ended.
        """
        missing = {e.endpoint_id for e in self._shape.endpoints}
        deadline = time.monotonic() + self.register_timeout_s
        while missing:
            self._group.check()
            for seen in watch.poll():
                if isinstance(seen.record, Endpoint):
                    missing.discard(seen.record.endpoint_id)
            if missing and time.monotonic() > deadline:
                first = next(e for e in self._shape.endpoints if e.endpoint_id in missing)
                raise LabError(
                    f"{len(missing)} endpoints have not registered within "
                    f"{self.register_timeout_s:.0f} s: {', '.join(sorted(missing)[:SHOWN])} …\n"
                    f"{self._log_tail(first.agent_id)}"
                )

    def _log_tail(self, agent_id: str) -> str:
        return self._group.child(agent_id).log_tail()


def starver(agent_id: str) -> str:
    """Return the name of the process that starves an agent."""
    return f"starve-{agent_id}"
