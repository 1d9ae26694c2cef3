"""`python -m ops.lab.vm -- COMMAND`: run a command in a throw-away machine with Soft-RoCE.

The guest has this host's files, read-only, and Debian's pyverbs in /run/verbs. --tests runs
the tests of tests/rdma in it. Exits with the command's status; 75 when the machine cannot be
had here, 70 when it broke down.
"""

import argparse
import sys
import sysconfig
import time
from pathlib import Path
from typing import Final

from ops.lab.vm.machine import MachineError, run_in_machine
from ops.lab.vm.packages import GUEST_PYTHON, NoMachineError, fetch_image

# sysexits.h
BROKEN: Final = 70
NOT_HERE: Final = 75


def test_command(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return what runs the tests in the guest, with pytest's further arguments, and its settings.

    Debian's pyverbs is made for Debian's Python: another one uses that of the guest, with the
    packages of its own environment, of which only the pure ones are needed there.
    """
    environment = {"SKELETONHUNTER_RXE": "1", "PYTHONPATH": "/run/verbs"}
    python = sys.executable
    if sys.version_info[:2] != GUEST_PYTHON:
        python = "/usr/bin/python3"
        environment["PYTHONPATH"] += f":{sysconfig.get_path('purelib')}"
    environment["PYTHONPATH"] += f":{Path.cwd()}"
    pytest = [python, "-m", "pytest", "tests/rdma", "-q", "-p", "no:cacheprovider", "--color=no"]
    return [*pytest, *arguments], environment


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ops.lab.vm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--timeout", type=float, default=240, metavar="S", help="default 240")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="what the guest writes to /run/out stays here"
    )
    parser.add_argument(
        "--network", action="store_true", help="the guest reaches this host's loopback, as 10.0.2.2"
    )
    parser.add_argument("--tests", action="store_true", help="run tests/rdma in the machine")
    parser.add_argument("--fetch", action="store_true", help="only fetch what is needed")
    parser.add_argument("command", nargs="*")
    given = parser.parse_args()
    environment: dict[str, str] = {}
    if given.tests:
        given.command, environment = test_command(given.command)
    if not given.fetch and not given.command:
        parser.error("no command: add `-- COMMAND …`, or --fetch")
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"machine: {text}", file=sys.stderr, flush=True)

    try:
        if given.fetch:
            fetch_image(say)
            return 0
        if given.out is not None:
            given.out.mkdir(parents=True, exist_ok=True)
        status = run_in_machine(
            given.command,
            say=say,
            timeout_s=given.timeout,
            environment=environment,
            folder=given.out and given.out.absolute(),
            network=given.network,
        )
    except NoMachineError as error:
        say(f"cannot be had here: {error}")
        return NOT_HERE
    except MachineError as error:
        say(str(error))
        return BROKEN
    say(f"exit status {status}, {time.monotonic() - began:.1f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
