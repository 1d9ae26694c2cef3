"""An agent as its unit runs it: its own user, one capability or none, no new privileges."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.running.processes import Child, ProcessGroup
from probers.config.health import HealthAddress
from probers.health.client import ask
from schemas import topics
from schemas.enums import AgentState, ProbeStatus
from schemas.kafka.connection import KafkaSettings
from tests import ROOT
from tests.integration.agent_harness import Agents, Watcher

# Nobody: every distribution's user without rights.
UID = 65_534
# prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN), inherited, as MemoryDenyWriteExecute= asks for
# (Linux 6.3); an older kernel refuses, and the agent runs without.
NO_NEW_CODE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


def dropped(*, lock_memory: bool) -> list[str]:
    """Return the command that drops what the unit does not give."""
    kept = "+ipc_lock" if lock_memory else ""
    capabilities = f"-all,{kept}".rstrip(",")
    return [
        "setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs",
        f"--bounding-set={capabilities}", f"--inh-caps={capabilities}",
        f"--ambient-caps={capabilities}", "--securebits=+noroot,+noroot_locked",
    ]  # fmt: skip


# Where this process has its packages from, also for a Python that is not in its environment.
PACKAGES = os.pathsep.join([str(ROOT), *(p for p in sys.path if p.endswith("-packages"))])
pytestmark = [pytest.mark.broker, pytest.mark.root]


def runnable() -> str | None:
    """Return a Python like this one that somebody without rights may run; None: there is none."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("setpriv") is None:
        return None
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/local/bin/python{minor}", f"/usr/bin/python{minor}"):
        if not os.path.exists(python):
            continue
        done = subprocess.run(
            [*dropped(lock_memory=False), python, "-c", NO_NEW_CODE, "-c", "import probers.cli"],
            env={**os.environ, "PYTHONPATH": PACKAGES},
            capture_output=True,
            check=False,
            timeout=30,
        )
        if done.returncode == 0:
            return python
    return None


@pytest.fixture(scope="module")
def python() -> str:
    """Return a Python that somebody without rights may run."""
    found = runnable()
    if found is None:
        pytest.skip("needs root, setpriv, and a Python that others may run")
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder of the user's own: pytest's are for root only."""
    with tempfile.TemporaryDirectory(prefix="unprivileged-") as name:
        os.chown(name, UID, UID)
        yield Path(name)


@pytest.mark.parametrize("lock_memory", [True, False])
def test_an_agent_without_rights_probes(
    kafka: KafkaSettings, folder: Path, tmp_path: Path, python: str, *, lock_memory: bool
) -> None:
    """Registered, probing, asked over its socket: with what the unit gives, and with nothing."""
    with ProcessGroup(tmp_path / "logs") as group:
        agents = Agents(kafka, folder, group)
        watcher = Watcher(agents.settings, topics.PROBE_ROUND, topics.HEARTBEAT)
        address = HealthAddress(str(folder / "a.sock"))
        agents.tell("agent-a", ("a/r0", "b/r0"))
        config = agents.configure("a", health=f'"{address}"')
        agents.start("b", agents.configure("b"))
        child = group.start(
            "a",
            [
                "env", f"PYTHONPATH={PACKAGES}", *dropped(lock_memory=lock_memory), python,
                "-c", NO_NEW_CODE, "-P", "-m", "probers", "--config", str(config),
            ],
        )  # fmt: skip
        watcher.until(
            "three rounds",
            lambda: len(watcher.of(topics.PROBE_ROUND, "agent-a")) >= 3,
        )
        assert ask(address, "/readyz", 5)[0] == 200
        assert rights(child) == ("0" * 16 if not lock_memory else f"{1 << 14:016x}", "1", str(UID))
        states = {h.state for h in watcher.of(topics.HEARTBEAT, "agent-a")}
        results = [r for done in watcher.of(topics.PROBE_ROUND, "agent-a") for r in done.results]
        watcher.close()
    assert AgentState.DEGRADED not in states
    assert ProbeStatus.OK in {r.status for r in results}


def rights(child: Child) -> tuple[str, str, str]:
    """Return effective capabilities, whether new privileges are barred, and the user."""
    lines = Path(f"/proc/{child.process.pid}/status").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return found["CapEff"], found["NoNewPrivs"], found["Uid"].split("\t")[0]
