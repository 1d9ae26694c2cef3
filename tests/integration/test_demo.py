"""The demonstration as a newcomer runs it, and interrupts it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ops.lab.fault_kinds import LOOPBACK_LAB, NETNS_LAB
from ops.lab.kind import LAB_KINDS

pytestmark = [pytest.mark.broker, pytest.mark.lab]
# Set-up excluded, the demonstration promises 90 s; a test machine is busier.
DEMO_TIMEOUT_S = 170


@pytest.fixture
def world(tmp_path: Path) -> Mapping[str, str]:
    """Return an environment whose files and processes can be told from all others."""
    for name in ("state", "tmp"):
        (tmp_path / name).mkdir()
    return {
        **os.environ,
        "SKELETONHUNTER_STATE_DIR": str(tmp_path / "state"),
        "TMPDIR": str(tmp_path / "tmp"),
    }


def processes_of(world: Mapping[str, str]) -> list[str]:
    """Return the command lines of all processes that carry this world's mark."""
    mark = f"SKELETONHUNTER_STATE_DIR={world['SKELETONHUNTER_STATE_DIR']}".encode()
    return [" ".join(line) for line in _marked(mark)]


def _marked(mark: bytes) -> Iterator[list[str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if mark in environment and any(command):
                yield command


def files_of(world: Mapping[str, str]) -> list[str]:
    """Return what lies in this world's state and temporary folders."""
    folders = (Path(world["SKELETONHUNTER_STATE_DIR"]), Path(world["TMPDIR"]))
    # The JVM's performance data folder belongs to the JVM and is shared by all of a user's.
    return [
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() or path.is_socket()
    ]


def namespaces() -> list[str]:
    """Return the network namespaces of demonstrations."""
    if shutil.which("ip") is None:
        return []
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if line.startswith("demo.")]


def start(world: Mapping[str, str], *options: str) -> subprocess.Popen[str]:
    """Start the demonstration."""
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("skeletonhunter")), "demo", *options],
        env=dict(world),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("kind", [LOOPBACK_LAB, NETNS_LAB])
def test_the_demo_names_the_link_it_cut_and_leaves_nothing(
    world: Mapping[str, str], kind: str
) -> None:
    """Exit 0, the verdict and the resolve on the screen, no process, file or namespace left."""
    lacking = LAB_KINDS[kind].missing()
    if lacking is not None:
        pytest.skip(lacking)
    demo = start(world, "--kind", kind)
    output, _ = demo.communicate(timeout=DEMO_TIMEOUT_S)
    assert demo.returncode == 0, output
    assert "fault OPEN" in output
    assert "fault RESOLVED" in output
    assert "link:leaf:" in output
    assert processes_of(world) == []
    assert files_of(world) == []
    assert namespaces() == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("after_s", [0.0, 5.0, 12.0])
def test_ctrl_c_at_any_moment_leaves_nothing(world: Mapping[str, str], after_s: float) -> None:
    """Interrupted while starting the broker, the lab or the workers: nothing is left."""
    demo = start(world)
    assert demo.stdout is not None
    assert "starting" in demo.stdout.readline()
    time.sleep(after_s)  # not waiting for anything: this is the moment of the interrupt
    os.kill(demo.pid, signal.SIGINT)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, output
    assert "Traceback" not in output
    assert processes_of(world) == []
    assert files_of(world) == []
    assert namespaces() == []
