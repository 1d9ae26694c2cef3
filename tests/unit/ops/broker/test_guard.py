"""The guard: whatever becomes of the owner, neither the server nor its files stay."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.broker.errors import BrokerError
from ops.broker.jvm import GuardedJvm, JvmSpec
from tests import ROOT

DEADLINE_S = 60.0
# A server that says it is there, and one that does not want to end.
SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(600)",
]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail the test if it does not come."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    done = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()[:1] not in {"", "Z"}


def spec(folder: Path, argv: list[str], *, temporary: bool = True) -> JvmSpec:
    """Return what to run in a folder that is the server's own."""
    data = folder / "data"
    data.mkdir()
    announcement = folder / "broker.json"
    announcement.write_text("ours")
    return JvmSpec(
        argv=argv,
        cwd=data,
        log=data / "log",
        remove=data if temporary else None,
        announcement=(announcement, "ours"),
    )


def test_close_ends_the_server_and_removes_its_files(tmp_path: Path) -> None:
    """The ordinary end leaves no process, no folder and no announcement."""
    server = GuardedJvm(spec(tmp_path, SLEEPER))
    server.start()
    pid = server.pid
    assert pid is not None
    assert server.exit_code() is None
    server.close()
    assert not is_running(pid)
    assert list(tmp_path.iterdir()) == []
    server.close()  # harmless


def test_data_that_is_kept_is_kept(tmp_path: Path) -> None:
    """Without a temporary folder the data stays, and the server is asked to end, not killed."""
    ending = (
        "import signal, sys, time; "
        "signal.signal(signal.SIGTERM, lambda *_: (print('clean end', flush=True), sys.exit())); "
        "print('up', flush=True); time.sleep(600)"
    )
    argv = [sys.executable, "-c", ending]
    server = GuardedJvm(spec(tmp_path, argv, temporary=False))
    server.start()
    wait_until(lambda: "up" in server.log_tail())
    server.close()
    assert (tmp_path / "data" / "log").read_text() == "up\nclean end\n"


def test_announcement_of_another_broker_stays(tmp_path: Path) -> None:
    """Only the file that still holds our own words is removed."""
    server = GuardedJvm(spec(tmp_path, SLEEPER))
    server.start()
    (tmp_path / "broker.json").write_text("another broker's")
    server.close()
    assert (tmp_path / "broker.json").read_text() == "another broker's"


def test_kill_and_start_again(tmp_path: Path) -> None:
    """After a crash on purpose the same server starts anew over the same files."""
    server = GuardedJvm(spec(tmp_path, STUBBORN))
    server.start()
    first = server.pid
    assert first is not None
    server.kill()
    assert not is_running(first)
    assert (tmp_path / "data").is_dir()
    server.start()
    assert server.pid not in {None, first}
    server.close()


def test_server_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    """Its exit code and its last words are there to be shown."""
    dying = [sys.executable, "-c", "import sys; print('no luck'); sys.exit(3)"]
    server = GuardedJvm(spec(tmp_path, dying))
    server.start()
    wait_until(lambda: server.exit_code() == 3)
    assert server.log_tail() == "no luck"
    server.close()


def test_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    """A missing Java is a sentence, not a hang."""
    server = GuardedJvm(spec(tmp_path, [str(tmp_path / "nosuch")]))
    with pytest.raises(BrokerError, match="cannot start"):
        server.start()
    server.close()


OWNER = """
import sys, time
from pathlib import Path
from ops.broker.jvm import GuardedJvm, JvmSpec
folder = Path(sys.argv[1])
server = GuardedJvm(JvmSpec(
    argv=sys.argv[2:], cwd=folder / "data", log=folder / "data" / "log", remove=folder / "data",
    announcement=(folder / "broker.json", "ours"),
))
server.start()
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_owner_that_dies_takes_everything_along(tmp_path: Path, how: signal.Signals) -> None:
    """However the owner dies, the server ends and its files go, stubborn as it may be."""
    spec(tmp_path, STUBBORN)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), *STUBBORN],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.send_signal(how)
    owner.wait(DEADLINE_S)
    owner.stdout.close()
    wait_until(lambda: not is_running(pid))
    wait_until(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's parent-death signal")
def test_guard_that_is_killed_takes_the_server_along(tmp_path: Path) -> None:
    """Even without its guard the server does not stay; the owner is told at its next request."""
    server = GuardedJvm(spec(tmp_path, STUBBORN))
    server.start()
    pid = server.pid
    assert pid is not None
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    guard = int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])
    assert guard != os.getpid()
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: not is_running(pid))
    with pytest.raises(BrokerError, match="guard"):
        server.exit_code()
    server.close()
