"""The fabric process: data plane, counters, faults, tables on the topics; one thread.

`python -m ops.lab.server --config FILE`, where the file is what `FabricConfig.write`
writes. It is started by `ops.lab.lab.Lab`, and ends by SIGTERM or with its parent.
"""

import argparse
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ops.lab.control import ControlServer
from ops.lab.counters import CounterTree, CounterWriter
from ops.lab.events import EventLoop
from ops.lab.fault_kinds import LOOPBACK_LAB, RXE_LAB
from ops.lab.faultboard import describe
from ops.lab.faults import FaultError, check_fault
from ops.lab.loopback import LoopbackNetwork
from ops.lab.netns.network import NetnsNetwork
from ops.lab.netns.plan import Plan, prefix_of
from ops.lab.netns.traffic import Traffic
from ops.lab.network import Network
from ops.lab.publishing import LabPublisher, now_us
from ops.lab.rxe.network import RxeNetwork
from ops.lab.shape import LabShape
from ops.lab.topology import Topology
from ops.lab.truth import TRUTH_FILE, TruthLog
from ops.lab.workload import DEFAULT_PERIOD_NS, Workload
from schemas.kafka.connection import load_settings
from schemas.process.eventlog import EventLog, setup_logging

SOCKET_FILE: Final = "fabric.sock"
CONFIG_FILE: Final = "fabric.json"
FILE_MODE: Final = 0o600
REPUBLISH_NS: Final = 30 * 10**9
# Housekeeping: delivery reports, and whether the parent is still there.
CHORE_NS: Final = 500_000_000
# librdkafka gets this long to write the withdrawal of the topology.
FLUSH_TIMEOUT_S: Final = 5.0
# Generation 2 collections walk the whole heap; with few objects of ours they are not
# needed, and would hold packets up.
GC_THRESHOLD: Final = (50_000, 50, 1_000)


@dataclass(frozen=True, kw_only=True)
class FabricConfig:
    """What the fabric process is told.

    `endpoints` are the ports at which endpoints listen; `forwarded` those of this host's
    loopback that agents in a machine of their own are to reach. With `real_job` somebody else
    trains between the containers, and no traffic is made here. `kafka_config` names the
    TOML file with the `[kafka]` table; None: nothing is published.
    """

    folder: Path
    shape: LabShape
    endpoints: Mapping[str, int]
    seed: int = 1
    stages: int | None = None
    period_ns: int = DEFAULT_PERIOD_NS
    kafka_config: Path | None = None
    kind: str = LOOPBACK_LAB
    real_job: bool = False
    forwarded: tuple[int, ...] = ()

    def write(self) -> Path:
        """Write the file for the process, return its path."""
        content = {
            **asdict(self),
            "folder": str(self.folder),
            "endpoints": dict(self.endpoints),
            "kafka_config": None if self.kafka_config is None else str(self.kafka_config),
        }
        path = self.folder / CONFIG_FILE
        path.touch(FILE_MODE)
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> "FabricConfig":
        """Return the configuration of a file."""
        content = json.loads(path.read_text(encoding="utf-8"))
        kafka = content["kafka_config"]
        return cls(
            **{
                **content,
                "folder": Path(content["folder"]),
                "shape": LabShape(**content["shape"]),
                "kafka_config": None if kafka is None else Path(kafka),
                "forwarded": tuple(content["forwarded"]),
            }
        )


class FabricServer:
    """Joins the parts, and answers commands."""

    def __init__(self, config: FabricConfig, loop: EventLoop, log: EventLog) -> None:
        self._config = config
        self._loop = loop
        self._log = log
        self._stop = False
        self.network = self._make_network()
        workload = Workload(shape=config.shape, stages=config.stages, period_ns=config.period_ns)
        self._job = self._make_job(workload)
        (config.folder / "workload.json").write_text(
            json.dumps(workload.truth(), indent=1), encoding="utf-8"
        )
        self._publisher: LabPublisher | None = None
        self._cluster = ""
        if config.kafka_config is not None:
            settings = load_settings(config.kafka_config)
            self._cluster = settings.cluster
            self._publisher = LabPublisher(settings, log)
        self._control = ControlServer(config.folder / SOCKET_FILE, loop, self._command, log)

    def _make_network(self) -> Network:
        config = self._config
        write = TruthLog(config.folder / TRUTH_FILE).append
        if config.kind == LOOPBACK_LAB:
            return LoopbackNetwork(
                config.shape,
                config.endpoints,
                self._loop,
                seed=config.seed,
                write=write,
                publish=self._publish_tables,
            )
        if config.kind == RXE_LAB:
            return RxeNetwork(
                config.shape,
                config.folder,
                self._loop,
                ports=config.forwarded,
                write=write,
                publish=self._publish_tables,
            )
        return NetnsNetwork(
            config.shape,
            config.folder,
            self._loop,
            seed=config.seed,
            write=write,
            publish=self._publish_tables,
        )

    def _make_job(self, workload: Workload) -> CounterWriter | Traffic | None:
        config = self._config
        if config.kind == RXE_LAB or config.real_job:
            return None  # an emulated processor has nothing left for it
        if config.kind == LOOPBACK_LAB:
            tree = CounterTree(config.folder / "sys", config.shape)
            return CounterWriter(tree, workload, self._loop)
        return Traffic(Plan(config.shape, prefix_of(config.folder)), workload, self._loop)

    def run(self) -> None:
        """Serve until told to stop."""
        self._publish_topology()
        self._republish()
        if self._job is not None:
            self._job.start()
        parent = os.getppid()
        self._chores(parent)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLD)
        self._log.info("fabric.ready", kind=self._config.kind)
        while not self._stop:
            self._loop.run_once()

    def stop(self) -> None:
        """End `run` at the next turn of the loop; the counters' timer wakes it in time."""
        self._stop = True

    def close(self) -> None:
        """Withdraw what was published, close everything."""
        self._control.close()
        if self._job is not None:
            self._job.close()
        self.network.close()
        if self._publisher is not None:
            self._publisher.withdraw()
            left = self._publisher.flush(FLUSH_TIMEOUT_S)
            if left:
                self._log.warning("withdraw.incomplete", records=left)
        self._log.info("fabric.stopped")

    def _chores(self, parent: int) -> None:
        if self._publisher is not None:
            self._publisher.poll()
        if os.getppid() != parent:
            self._log.warning("parent.gone")
            self._stop = True
            return
        self._loop.call_later(CHORE_NS, lambda: self._chores(parent))

    def _publish_topology(self) -> None:
        if self._publisher is None:
            return
        topology = Topology(
            self._config.shape,
            cluster=self._cluster,
            addresses=self.network.addresses(),
            overlay=self._config.kind != RXE_LAB,
        )
        self._publisher.topology(topology.components(now_us()))

    def _republish(self) -> None:
        self._publish_tables(set(range(self._config.shape.hosts)))
        self._loop.call_later(REPUBLISH_NS, self._republish)

    def _publish_tables(self, hosts: set[int]) -> None:
        if self._publisher is None:
            return
        for host in sorted(hosts):
            table = self.network.table(host, cluster=self._cluster, captured_at=now_us())
            if table is not None:
                self._publisher.flows(table)
        self._publisher.poll()

    def _command(self, command: Mapping[str, Any]) -> Any:
        match command.get("op"):
            case "status":
                return self._status()
            case "inject":
                spec = check_fault(
                    str(command["kind"]),
                    str(command["target"]),
                    command.get("params", {}),
                    self._config.shape,
                    self._config.kind,
                )
                return self.network.inject(str(command["fault_id"]), spec).as_dict()
            case "heal":
                fault_id = str(command["fault_id"])
                if fault_id not in self.network.active:
                    raise FaultError(f"no fault {fault_id!r} is in force")
                return self.network.heal(fault_id).as_dict()
            case "agents" if isinstance(self.network, RxeNetwork):
                return self.network.agents(command)
            case other:
                raise FaultError(f"unknown command {other!r}")

    def _status(self) -> dict[str, Any]:
        publisher = self._publisher
        return {
            "addresses": self.network.addresses(),
            "cpu_ns": time.process_time_ns(),
            **self.network.status(),
            "faults": [describe(active) for active in self.network.active.values()],
            "published": None if publisher is None else publisher.published,
            "publish_failed": None if publisher is None else publisher.failed,
        }


def main() -> int:
    """Run the fabric; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ops.lab.server", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--log-json", action="store_true")
    arguments = parser.parse_args()
    setup_logging(as_json=arguments.log_json)
    log = EventLog("fabric")
    config = FabricConfig.read(arguments.config)
    loop = EventLoop()
    server = FabricServer(config, loop, log)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: server.stop())
    try:
        server.run()
    finally:
        server.close()
        loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
