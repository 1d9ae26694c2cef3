"""Where control groups limit processor time, what is written there, and that a process feels it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ops.lab.quota import Hierarchy, find_hierarchy, limited, limits, why_no_quota

V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0"


def test_version_one_is_used_where_it_is_mounted_and_else_version_two() -> None:
    """A hierarchy of another controller is none; nor is one in which we have no group."""
    both = [V2, "cgroup /c/memory cgroup rw,memory 0 0", "cgroup /c/cpu cgroup rw,cpuacct,cpu 0 0"]
    own = ["4:cpuacct,cpu:/a/b\n", "2:memory:/m\n", "0::/c\n"]
    assert find_hierarchy(both, own) == Hierarchy(Path("/c/cpu/a/b"), 1)
    assert find_hierarchy(both[:2], own) == Hierarchy(Path("/sys/fs/cgroup/c"), 2)
    assert find_hierarchy(both[1:2], own) is None
    assert find_hierarchy(both, ["2:memory:/m\n"]) is None
    assert find_hierarchy([], own) is None


@pytest.mark.parametrize(
    ("percent", "v1_us", "v2"), [(5, "5000", "5000 100000"), (0.1, "1000", "1000 100000")]
)
def test_the_quota_is_a_share_of_the_period_and_a_millisecond_at_least(
    percent: float, v1_us: str, v2: str
) -> None:
    """In the files of both versions."""
    assert limits(1, percent) == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": v1_us}
    assert limits(2, percent) == {"cpu.max": v2}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or why_no_quota() is not None, reason=str(why_no_quota()))
def test_a_limited_process_gets_its_share_and_leaves_no_group() -> None:
    """A tenth of a second of processor time in a second and more."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    name = f"skh-test-{os.getpid()}"
    try:
        with limited(busy.pid, 10.0, name):
            before_ticks, began_s = _ticks(busy.pid), time.monotonic()
            time.sleep(2.0)
            ran_s = (_ticks(busy.pid) - before_ticks) / os.sysconf("SC_CLK_TCK")
            assert ran_s <= 0.1 * (time.monotonic() - began_s) + 0.1
    finally:
        busy.kill()
        busy.wait()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{name}"))


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
