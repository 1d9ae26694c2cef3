"""Memory and CPU of processes at moments at which they have nothing to do."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ops.bench.rig import process_cost
from ops.bench.rig.waiting import wait_until

# A process that has nothing to do polls; one that works takes more than this share of a core, also
# on a busy machine.
IDLE_SHARE: Final = 0.06
LOOK_S: Final = 4.0
# Looks in a row that find it idle.
LOOKS: Final = 2
TIMEOUT_S: Final = 600.0
# Written to `clear_refs`: the peak begins anew (proc(5)).
RESET_PEAK: Final = "5"


def wait_quiet(pid: int, check: Callable[[], None], timeout_s: float = TIMEOUT_S) -> None:
    """Wait until a process has nothing to do; raises TimeoutError."""
    last_cpu_s, last_s, idle = process_cost.cpu_s(pid), time.monotonic(), 0

    def quiet() -> bool:
        nonlocal last_cpu_s, last_s, idle
        cpu_s, now_s = process_cost.cpu_s(pid), time.monotonic()
        share = (cpu_s - last_cpu_s) / max(1e-9, now_s - last_s)
        last_cpu_s, last_s = cpu_s, now_s
        idle = idle + 1 if share < IDLE_SHARE else 0
        return idle >= LOOKS

    time.sleep(LOOK_S)
    wait_until(quiet, timeout_s, f"process {pid} still works", check=check, poll_s=LOOK_S)


def reset_peak(pid: int) -> None:
    """Let the peak of a process's resident memory begin anew."""
    (Path("/proc") / str(pid) / "clear_refs").write_text(RESET_PEAK, encoding="utf-8")
