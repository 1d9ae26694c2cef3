"""Children are started together and never left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ops.running.processes import ChildDiedError, ProcessGroup

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-uc",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up'); time.sleep(60)",
]


def alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until_gone(pid: int, timeout_s: float = 30.0) -> bool:
    """Return whether the process ends within the timeout."""
    deadline = time.monotonic() + timeout_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_leaving_the_block_ends_all_children(tmp_path: Path) -> None:
    """After the block no child runs, whatever ended it."""
    pids: list[int] = []

    def start_three_and_fail() -> None:
        with ProcessGroup(tmp_path) as group:
            pids.extend(group.start(f"c{i}", SLEEP).pid for i in range(3))
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        start_three_and_fail()
    assert pids
    assert not any(alive(pid) for pid in pids)


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """Stopping has an end."""
    with ProcessGroup(tmp_path) as group:
        child = group.start("stubborn", STUBBORN)
        while "up" not in child.log_tail():
            group.check()
            time.sleep(0.02)
        assert group.stop("stubborn", timeout_s=0.2) == -signal.SIGKILL


def test_a_dead_child_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    """The error says which child, which code and what it said last."""
    with ProcessGroup(tmp_path) as group:
        child = group.start(
            "bad", [sys.executable, "-c", "print('last words'); raise SystemExit(7)"]
        )
        child.process.wait(30)
        with pytest.raises(ChildDiedError, match=r"bad ended with code 7:\nlast words"):
            group.check()


def test_a_name_runs_only_once(tmp_path: Path) -> None:
    """A second child of a running one's name is refused."""
    with ProcessGroup(tmp_path) as group:
        group.start("one", SLEEP)
        with pytest.raises(ValueError, match="one runs already"):
            group.start("one", SLEEP)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_children_of_a_killed_parent_end_too(tmp_path: Path) -> None:
    """Even SIGKILL of the parent leaves no child."""
    script = (
        "import sys, time; from pathlib import Path\n"
        "from ops.running.processes import ProcessGroup\n"
        f"with ProcessGroup(Path({str(tmp_path)!r})) as g:\n"
        f"    print(g.start('c', {SLEEP!r}).pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(30)
    parent.stdout.close()
    assert wait_until_gone(child)


def test_only_the_first_interrupt_counts() -> None:
    """A second Ctrl-C does not disturb the cleaning up."""
    script = (
        "import os, signal, time\nfrom schemas.process.signals import interruptible\n"
        "try:\n"
        "    with interruptible():\n"
        "        try:\n"
        "            os.kill(os.getpid(), signal.SIGINT); time.sleep(5)\n"
        "        finally:\n"
        "            os.kill(os.getpid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGTERM)\n"
        "            print('cleaned')\n"
        "except KeyboardInterrupt:\n"
        "    print('ended')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == ["cleaned", "ended"]
