"""A process in a crowd: it gets one processor, busy ones beside it, and all of it back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="needs Linux's /proc and its processors' sets"
)
TIMEOUT_S = 60.0


def children(pid: int) -> list[int]:
    """Return the processes that one has started."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait(reached: Callable[[], bool], what: str) -> None:
    """Wait until a function says yes."""
    deadline = time.monotonic() + TIMEOUT_S
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_crowded_process_shares_one_processor_until_the_crowd_is_gone() -> None:
    """SIGTERM ends the crowd, and gives the process all processors that it had."""
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    before = os.sched_getaffinity(victim.pid)
    crowd = subprocess.Popen(
        [sys.executable, "-m", "ops.lab.starve", "--pid", str(victim.pid), "--crowd", "2"]
    )
    try:
        wait(lambda: len(children(crowd.pid)) == 2, "two busy processes")
        busy = children(crowd.pid)
        wait(lambda: len(os.sched_getaffinity(busy[1])) == 1, "one processor")
        assert os.sched_getaffinity(victim.pid) == os.sched_getaffinity(busy[0])
        crowd.send_signal(signal.SIGTERM)
        assert crowd.wait(TIMEOUT_S) == 0
        assert os.sched_getaffinity(victim.pid) == before
        assert not any(Path(f"/proc/{pid}").exists() for pid in busy)
    finally:
        crowd.kill()
        victim.kill()
        crowd.wait()
        victim.wait()


def test_a_crowd_ends_with_the_process_that_it_surrounds() -> None:
    """Nobody is left behind that burns a processor for nothing."""
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    crowd = subprocess.Popen(
        [sys.executable, "-m", "ops.lab.starve", "--pid", str(victim.pid), "--crowd", "1"]
    )
    try:
        wait(lambda: len(children(crowd.pid)) == 1, "a busy process")
        busy = children(crowd.pid)
        victim.kill()
        victim.wait()
        assert crowd.wait(TIMEOUT_S) == 0
        assert not Path(f"/proc/{busy[0]}").exists()
    finally:
        crowd.kill()
        victim.kill()
        crowd.wait()
