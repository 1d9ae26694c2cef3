"""Takes the processor from a process: it is stopped and continued by turns.

`python -m ops.lab.starve --pid N --percent P --lab FOLDER`: of each second, the process
runs so many percent. It is continued when this one ends by SIGTERM, or with its parent.
"""

import argparse
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Final

# Long enough that a probe is late at 10 %, short enough that a heartbeat is not.
PERIOD_S: Final = 1.0


def starve(pid: int, percent: float) -> None:
    """Stop and continue the process until it is gone; raises SystemExit by signal."""
    running_s = PERIOD_S * percent / 100
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PERIOD_S - running_s)
            os.kill(pid, signal.SIGCONT)
            time.sleep(running_s)


def main() -> int:
    """Starve a process until told to stop; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ops.lab.starve", description=__doc__)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--percent", type=float, required=True)
    parser.add_argument("--lab", help="folder of the lab, by which leftovers are known")
    arguments = parser.parse_args()
    return run(arguments.pid, arguments.percent)


def run(pid: int, percent: float) -> int:
    """Starve a process until SIGTERM, then let it go on; return the exit code."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    try:
        starve(pid, percent)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
