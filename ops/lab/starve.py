"""Takes the processor from a process, in one of three ways.

`python -m ops.lab.starve --pid N --stop PERCENT --lab FOLDER`: of each second, it runs so many
per cent, and is stopped in between. `--quota PERCENT`: a control group limits it to that share of
one processor. `--crowd COUNT`: it gets one processor only, for which so many busy processes
compete. All is undone when this process ends by SIGTERM, or with its parent.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ops.lab.quota import limited
from ops.running.processes import die_with_parent

# Long enough that a probe is late at 10 %, short enough that a heartbeat is not.
PERIOD_S: Final = 1.0
POLL_S: Final = 0.2
BUSY: Final = "while True: pass"


def stop_by_turns(pid: int, percent: float) -> None:
    """Stop and continue the process until it is gone; raises SystemExit by signal."""
    running_s = PERIOD_S * percent / 100
    try:
        with suppress(ProcessLookupError):
            while True:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(PERIOD_S - running_s)
                os.kill(pid, signal.SIGCONT)
                time.sleep(running_s)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def limit(pid: int, percent: float) -> None:
    """Limit the process until it is gone; raises SystemExit by signal."""
    with limited(pid, percent, f"skh-{pid}"):
        _wait_for_end(pid)


def crowd(pid: int, count: int) -> None:
    """Let busy processes compete with it until it is gone; raises SystemExit by signal."""
    all_of_them = os.sched_getaffinity(pid)
    # The last one: interrupts and what was started first tend to be on the first.
    one = {max(all_of_them)}
    busy: list[subprocess.Popen[bytes]] = []
    try:
        _pin(pid, one)
        for _ in range(count):
            # As in ProcessGroup: one thread here, and the hook makes one system call.
            busy.append(subprocess.Popen([sys.executable, "-c", BUSY], preexec_fn=die_with_parent))  # noqa: PLW1509
            _pin(busy[-1].pid, one)
        _wait_for_end(pid)
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()
        with suppress(OSError):
            _pin(pid, all_of_them)


def _pin(pid: int, processors: set[int]) -> None:
    """Let all threads of a process run on these processors only."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(int(task.name), processors)


def _wait_for_end(pid: int) -> None:
    while Path(f"/proc/{pid}").exists():
        time.sleep(POLL_S)


def main() -> int:
    """Starve a process until told to stop; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ops.lab.starve", description=__doc__)
    parser.add_argument("--pid", type=int, required=True)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--stop", type=float, metavar="PERCENT")
    how.add_argument("--quota", type=float, metavar="PERCENT")
    how.add_argument("--crowd", type=int, metavar="COUNT")
    parser.add_argument("--lab", help="folder of the lab, by which leftovers are known")
    arguments = parser.parse_args()
    pid = arguments.pid
    if arguments.quota is not None:
        return run(lambda: limit(pid, arguments.quota))
    if arguments.crowd is not None:
        return run(lambda: crowd(pid, arguments.crowd))
    return run(lambda: stop_by_turns(pid, arguments.stop))


def run(starve: Callable[[], None]) -> int:
    """Starve a process until SIGTERM; what starves it undoes it then. Return the exit code."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    starve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
