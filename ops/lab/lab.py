"""A lab from the outside: bring it up, break it, heal it, take it down.

    with Lab(LabConfig(settings=settings)) as lab:
        fault = lab.fault("link-cut", "link:leaf:p0-0--spine:0")
        lab.heal()

Topics must exist. Needs a free name (`LabConfig.name`) in the state folder; two
labs on one broker need different topic prefixes, since their components have
the same names.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from arena.world.topology import link_id
from ops.lab.agent_group import AgentGroup
from ops.lab.agents import (
    AgentFiles,
    Table,
    kafka_environment,
    kafka_table,
    toml_table,
    write_private,
)
from ops.lab.control import request, wait_for
from ops.lab.errors import LabError, LabUsageError
from ops.lab.fault_kinds import KINDS, LOOPBACK_LAB, NETNS_LAB, RANK
from ops.lab.faultboard import ActiveFault, describe, truth_of
from ops.lab.faults import FaultError, FaultSpec, check_fault, near
from ops.lab.folder import INFO_FILE, PIDS_FILE, LabFolder
from ops.lab.kind import lab_kind
from ops.lab.left_states import withdraw_states
from ops.lab.preflight import missing_topics
from ops.lab.publishing import LabPublisher
from ops.lab.ranks import JobConfig, TrainingRanks
from ops.lab.rxe.agents import MachineAgents
from ops.lab.rxe.kind import forwarded_ports
from ops.lab.rxe.machine import BOOT_TIMEOUT_S, LOGS, OUT
from ops.lab.rxe.misleading import STALE, StaleKeys
from ops.lab.server import SOCKET_FILE, FabricConfig
from ops.lab.shape import LabShape
from ops.lab.task import TASK_END, LabTask
from ops.lab.truth import TRUTH_FILE, Action, Truth, TruthLog, lab_truth
from ops.lab.vm.packages import fetch_image
from ops.lab.workload import DEFAULT_PERIOD_NS
from ops.log.watch import Watch
from ops.running.processes import ChildDiedError, ProcessGroup
from schemas import topics
from schemas.enums import Layer
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog

FABRIC: Final = "fabric"
COLLECTOR: Final = "collector"
FABRIC_TIMEOUT_S: Final = 20.0
# Faults of processes, which this one puts in; the others are the fabric's.
PROCESSES: Final = frozenset({Layer.HOST, Layer.JOB})
KAFKA_FILE: Final = "kafka.toml"


def silent(_text: str) -> None:
    """Show nothing."""


@dataclass(frozen=True, kw_only=True)
class LabConfig:
    """What lab to build.

    `shape` None: what that kind of lab has. `stages` and `period_ns` are the
    simulated job's; with `job`, ranks train really instead. `agent_options` override keys of
    the agents' `[agent]` table. Logs and the truth stay in `keep` after the lab is down; None:
    nothing stays.
    """

    settings: KafkaSettings
    kind: str = LOOPBACK_LAB
    shape: LabShape | None = None
    name: str = "default"
    agents: bool = True
    seed: int = 1
    stages: int | None = None
    period_ns: int = DEFAULT_PERIOD_NS
    job: JobConfig | None = None
    agent_options: Table = field(default_factory=dict)
    keep: Path | None = None


class Lab:
    """A fabric process, an agent process per host, a training job.

    `say` gets a sentence for each step of coming up and going down.
    """

    def __init__(self, config: LabConfig, say: Callable[[str], None] = silent) -> None:
        self.config = config
        self.kind = lab_kind(config.kind)
        self.shape = config.shape or self.kind.shape
        self.faults: dict[str, ActiveFault] = {}
        self._say = say
        self._log = EventLog("lab")
        self._folder: LabFolder | None = None
        self._group: ProcessGroup | None = None
        self._agents: AgentGroup | None = None
        self._publisher: LabPublisher | None = None
        self._keys: StaleKeys | None = None
        self._task: LabTask | None = None
        self._ranks: TrainingRanks | None = None
        self._truth: list[Truth] = []
        self._numbered = 0

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def path(self) -> Path:
        """The lab's folder."""
        if self._folder is None:
            raise LabError("the lab is not up")
        return self._folder.path

    @property
    def group(self) -> ProcessGroup:
        """The lab's processes."""
        if self._group is None:
            raise LabError("the lab is not up")
        return self._group

    @property
    def ranks(self) -> TrainingRanks:
        """The ranks of the lab's real job.

        Raises
        ------
        FaultError
            If it has none.
        """
        if self._ranks is None:
            raise FaultError(
                "this lab runs no training job: bring it up with --job torch or --job jax"
            )
        return self._ranks

    @property
    def truth(self) -> list[Truth]:
        """Everything that was done, in order; also after the lab is down."""
        if self._folder is not None:
            self._truth = TruthLog(self._folder.path / TRUTH_FILE).read()
        return self._truth

    def up(self) -> None:
        """Start everything, wait until all endpoints have registered.

        Raises
        ------
        LabError, LabFolderError, ChildDiedError, ConnectionError
            If that fails; nothing is left behind then.
        """
        try:
            self._up()
        except BaseException:
            self.down()
            raise

    def _up(self) -> None:
        config = self.config
        if config.job is not None and self.kind.name != NETNS_LAB:
            raise LabUsageError(f"a real job trains in a {NETNS_LAB} lab only")
        lacking = self.kind.missing()
        if lacking is not None:
            raise LabError(f"no {self.kind.name} lab here: {lacking}")
        missing = missing_topics(config.settings)
        if missing:
            raise LabError(f"{config.settings.bootstrap} lacks the topic {missing[0]}: apply them")
        if self.kind.machine:
            fetch_image(self._say)
        self._folder = LabFolder.acquire(config.name)
        self._describe("starting")
        self._group = ProcessGroup(config.keep or self.path / "logs").__enter__()
        self._say(f"fabric: {len(self.shape.node_ids())} nodes, {len(self.shape.links)} links")
        ports = self.kind.ports(self.shape)
        status = self._start_fabric(ports)
        self._publisher = LabPublisher(config.settings, self._log)
        self._task = LabTask(self.shape, config.settings, self._publisher, self._log)
        self._keys = StaleKeys(config.settings, self._publisher)
        with Watch(config.settings, (topics.ENDPOINT,)) as watch:
            self._say(f"task {self.shape.task_id}: {len(self.shape.endpoints)} endpoints submitted")
            self._task.submit()
            if config.job is not None:
                self._ranks = TrainingRanks(
                    self.group, self.path, self.shape, config.job, self._write_pids
                )
                framework = config.job.framework
                self._say(
                    f"training job: {len(self.shape.endpoints)} ranks of {framework.title} by "
                    f"{config.job.python}"
                )
                if framework.unrecorded is not None:
                    self._say(framework.unrecorded)
                self._ranks.start()
            if config.agents:
                self._agents = self._agent_group(ports, status["addresses"])
                self._agents.start_all()
                self._say(f"agents: {self.shape.hosts} started, waiting for their endpoints")
                self._agents.wait_registered(watch)
                self._say(f"all {len(self.shape.endpoints)} endpoints have registered")
            if self._ranks is not None:
                self._start_collector()
                self._ranks.wait_training()
                self._say(f"the job trains: iterations {self._ranks.progress()['steps']}")
        self._record(lab_truth("up", config.name))
        self._describe("up")

    def _start_fabric(self, ports: Mapping[str, int]) -> Any:
        config, group = self.config, self.group
        kafka = write_private(
            self.path / KAFKA_FILE, toml_table("[kafka]", kafka_table(config.settings))
        )
        path = FabricConfig(
            folder=self.path,
            shape=self.shape,
            endpoints=ports,
            seed=config.seed,
            # A real job has no pipeline: all ranks of a rail are replicas.
            stages=config.stages if config.job is None else 1,
            period_ns=config.period_ns,
            kafka_config=kafka,
            kind=config.kind,
            real_job=config.job is not None,
            forwarded=forwarded_ports(config.settings) if self.kind.machine else (),
        ).write()
        group.start(
            FABRIC,
            [sys.executable, "-m", "ops.lab.server", "--config", str(path), "--log-json"],
            env=kafka_environment(config.settings),
        )
        self._write_pids()
        return wait_for(
            self.path / SOCKET_FILE,
            timeout_s=BOOT_TIMEOUT_S if self.kind.machine else FABRIC_TIMEOUT_S,
            check=group.check,
            command={"op": "status"},
        )

    def _start_collector(self) -> None:
        """Collect what ranks do: by one process, since all hosts are of this machine's kernel."""
        settings = self.config.settings
        self.group.start(
            COLLECTOR,
            [
                *(sys.executable, "-m", "probers.collector", "--log-json"),
                *("--config", str(self.path / KAFKA_FILE)),
            ],
            env=kafka_environment(settings),
        )
        self._write_pids()

    def _agent_group(self, ports: Mapping[str, int], addresses: Mapping[str, str]) -> AgentGroup:
        settings = self.config.settings
        files = AgentFiles(
            self.path / OUT if self.kind.machine else self.path,
            self.shape,
            settings,
            rnic=lambda e: self.kind.rnic(e, self.path, ports, addresses),
            options={**self.kind.options, **self.config.agent_options},
        )
        if self.kind.machine:
            return MachineAgents(
                *(self.group, files, self.shape, settings, self._write_pids),
                socket=self.path / SOCKET_FILE,
                folder=self.path,
            )
        return AgentGroup(self.group, files, self.shape, settings, self._write_pids)

    def _write_pids(self) -> None:
        group = self.group
        if self._folder is not None:
            self._folder.write(PIDS_FILE, [group.child(name).pid for name in group.names()])

    def _describe(self, state: str) -> None:
        if self._folder is not None:
            self._folder.write(
                INFO_FILE,
                {
                    "pid": os.getpid(),
                    "kind": self.kind.name,
                    "state": state,
                    "bootstrap": self.config.settings.bootstrap,
                    "prefix": self.config.settings.topic_prefix,
                    "cluster": self.config.settings.cluster,
                    "shape": self.shape.as_dict(),
                },
            )

    def _record(self, truth: Truth) -> None:
        TruthLog(self.path / TRUTH_FILE).append(truth)

    def fault(self, kind: str, target: str, **params: Any) -> Truth:
        """Put a fault in; return what was done and when.

        Raises
        ------
        FaultError
            If kind, target or a parameter is wrong; the message says what was meant.
        """
        spec = check_fault(kind, target, params, self.shape, self.kind.name)
        fault_id = f"f{self._numbered + 1}"
        if spec.layer in PROCESSES:
            self._hurt(spec)
            truth = self._told("inject", fault_id, spec)
        else:
            command = {
                "op": "inject",
                "fault_id": fault_id,
                "kind": spec.kind,
                "target": spec.target,
                "params": dict(spec.params),
            }
            truth = Truth.from_dict(request(self.path / SOCKET_FILE, command))
        self._numbered += 1
        self.faults[fault_id] = ActiveFault(fault_id, spec)
        return truth

    def _hurt(self, spec: FaultSpec) -> None:
        other = next((f for f in self.faults.values() if f.spec.target == spec.target), None)
        if other is not None:
            raise FaultError(f"{spec.target} is under {other.spec.kind} already: heal it first")
        if spec.kind == STALE and self._keys is not None:
            self._keys.spoil(spec.target)
            return
        if spec.kind == TASK_END and self._task is not None:
            self._task.end()
            return
        if KINDS[spec.kind].target == RANK:
            self.ranks.hurt(spec.kind, spec.target, spec.params)
            return
        if self._agents is None:
            raise FaultError("this lab has no agents")
        state = self._agents.state(spec.target)
        if state != "running":
            raise FaultError(f"{spec.target} does not run: {state}")
        self._agents.hurt(spec.kind, spec.target, spec.params)

    def _told(self, action: Action, fault_id: str, spec: FaultSpec) -> Truth:
        truth = truth_of(action, fault_id, spec)
        self._record(truth)
        return truth

    def heal(self, target: str | None = None) -> list[Truth]:
        """Take out all faults, or those with that id, kind or target; return what was done.

        Raises
        ------
        FaultError
            If no fault in force has that id, kind or target.
        """
        chosen = [f for f in self.faults.values() if target is None or _matches(f, target)]
        if target is not None and not chosen:
            known = [name for f in self.faults.values() for name in (f.fault_id, f.spec.target)]
            raise FaultError(
                f"no fault in force matches {target!r}; "
                + (near(target, known) if known else "none is in force")
            )
        healed, failed = [], []
        for fault in chosen:
            try:
                healed.append(self._heal(fault))
            except LabError as error:
                failed.append(error)
        if failed:
            # One that cannot be healed keeps none of the others in force.
            raise failed[0]
        return healed

    def _heal(self, fault: ActiveFault) -> Truth:
        if fault.spec.layer in PROCESSES:
            if fault.spec.kind == STALE and self._keys is not None:
                self._keys.mend(fault.spec.target)
            elif fault.spec.kind == TASK_END and self._task is not None:
                self._task.submit()
            elif KINDS[fault.spec.kind].target == RANK:
                self.ranks.mend(fault.spec.kind, fault.spec.target)
            elif self._agents is not None:
                self._agents.mend(fault.spec.kind, fault.spec.target)
            truth = self._told("heal", fault.fault_id, fault.spec)
        else:
            command = {"op": "heal", "fault_id": fault.fault_id}
            truth = Truth.from_dict(request(self.path / SOCKET_FILE, command))
        del self.faults[fault.fault_id]
        return truth

    def check(self) -> None:
        """Raise ChildDiedError if the fabric or an agent has ended by itself."""
        self.group.check()

    def status(self) -> dict[str, Any]:
        """Return what runs, what is broken, what the fabric has counted."""
        agents = self._agents
        states = {} if agents is None else {a: agents.state(a) for a in self.shape.agent_ids()}
        return {
            "name": self.config.name,
            "folder": str(self.path),
            "kind": self.kind.name,
            "pid": os.getpid(),
            "bootstrap": self.config.settings.bootstrap,
            "prefix": self.config.settings.topic_prefix,
            "shape": self.shape.as_dict(),
            "agents": states,
            "job": None if self._ranks is None else self._ranks.progress(),
            "faults": [describe(fault) for fault in self.faults.values()],
            "fabric": request(self.path / SOCKET_FILE, {"op": "status"}),
        }

    def down(self) -> None:
        """Stop everything and leave nothing behind; may be called in any state, and again."""
        folder, group = self._folder, self._group
        if folder is None:
            return
        try:
            if group is not None:
                self._record(lab_truth("down", self.config.name))
                if self._task is not None:
                    self._task.end()
                self._say("stopping agents and fabric")
                if self._keys is not None:
                    # Before agents take their registrations back: this writes them once more.
                    self._keys.close()
                if self._agents is not None:
                    # A fabric that is gone, or does not answer, is to be stopped all the same.
                    with suppress(LabError, ConnectionError):
                        self._agents.all_go_on()
                group.stop_all()
                if self._agents is not None:
                    # Without a broker there is nothing to take back.
                    with suppress(ConnectionError, LookupError):
                        withdraw_states(self.config.settings, set(self.shape.agent_ids()))
            self._keep_truth(folder)
            self._keep_logs(folder)
        finally:
            self._group = self._publisher = self._agents = self._task = self._ranks = None
            if self._keys is not None:
                self._keys.close()
            self._keys = None
            self.faults.clear()
            self._folder = None
            folder.release()

    def _keep_logs(self, folder: LabFolder) -> None:
        logs = folder.path / OUT / LOGS
        if self.config.keep is not None and logs.is_dir():
            shutil.copytree(logs, self.config.keep, dirs_exist_ok=True)

    def _keep_truth(self, folder: LabFolder) -> None:
        self._truth = TruthLog(folder.path / TRUTH_FILE).read()
        if self.config.keep is not None and self._truth:
            shutil.copy(folder.path / TRUTH_FILE, self.config.keep / TRUTH_FILE)


def _matches(fault: ActiveFault, target: str) -> bool:
    a, sep, b = target.removeprefix("link:").partition("--")
    wanted = link_id(a, b) if sep else target
    return wanted in (fault.fault_id, fault.spec.kind, fault.spec.target)


__all__ = ["ChildDiedError", "FaultError", "Lab", "LabConfig", "LabError"]
