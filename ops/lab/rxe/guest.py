"""Runs in the machine: does what the lab's process on the host says, over a serial port.

`python -m ops.lab.rxe.guest`, as root of the guest. It decides nothing: commands of iproute2,
agents to start and to signal, the clock. Agents are forked from this process, which has loaded
all that they need: an emulated processor takes ten seconds for that, and one that is started
again must not hold the others up for so long.
"""

import ctypes
import importlib
import os
import select
import signal
import subprocess
import sys
import termios
import time
import traceback
import tty
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ops.lab import starve
from ops.lab.netns.commands import batch, run, write_sysctls
from ops.lab.rxe.wire import LineError, Lines, encode
from probers.transports.rdma import library
from schemas.units import SECOND_NS, US_NS

PORT: Final = "/dev/ttyS1"
READ_BYTES: Final = 65_536
LOG_MODE: Final = 0o600
# What agents import by and by.
WARM: Final = ("probers.cli", "probers.transports.rdma.transport", "confluent_kafka")


class _Timeval(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("microseconds", ctypes.c_long))


class Guest:
    """What the host may ask for."""

    def __init__(self, logs: Path, descriptors: Sequence[int]) -> None:
        self._logs = logs
        self._descriptors = descriptors
        self._pids: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Do it; return its answer, which carries the same number."""
        number = message.get("number")
        operations: dict[str, Callable[..., Any]] = {
            "batch": self._batch,
            "sysctls": write_sysctls,
            "verbs": self._verbs,
            "run": self._run,
            "agent": self._agent,
            "starve": self._starve,
            "signal": self._signal,
            "end": self._end,
            "states": self._states,
            "clock": time.time_ns,
            "step": self._step,
            "slew": self._slew,
            "processor": self._processor,
        }
        try:
            do = operations[str(message["op"])]
            return {"number": number, "result": do(**message.get("with", {}))}
        except Exception as error:  # noqa: BLE001 - told to the host, whatever it is
            return {"number": number, "error": f"{type(error).__name__}: {error}"}

    def _batch(self, tool: str, namespace: str | None, commands: Sequence[str]) -> None:
        batch(tool, namespace, commands)

    def _verbs(self, commands: Sequence[str]) -> None:
        # The tool's own batches do not read standard input.
        for command in commands:
            run("rdma", *command.split())

    def _run(self, name: str, argv: Sequence[str]) -> int:
        with self._log(name) as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self._started(name, process.pid)

    def _agent(self, name: str, argv: Sequence[str]) -> int:
        def agent() -> int:
            sys.argv = ["skeletonhunter agent", *argv]
            return int(importlib.import_module("probers.cli").main())

        return self._fork(name, agent)

    def _starve(self, name: str, victim: str, percent: float) -> int:
        pid = self._pids[victim]
        return self._fork(name, lambda: starve.run(lambda: starve.stop_by_turns(pid, percent)))

    def _fork(self, name: str, work: Callable[[], int]) -> int:
        if self._states().get(name) is None and name in self._pids:
            raise ValueError(f"{name} runs already")
        pid = os.fork()
        if pid:
            return self._started(name, pid)
        code = 1
        try:
            os.setsid()
            for descriptor in self._descriptors:
                os.close(descriptor)
            with self._log(name) as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            code = work()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001 - a child must not go on as its parent
            traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _log(self, name: str) -> Any:
        return os.fdopen(
            os.open(self._logs / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, LOG_MODE),
            "ab",
        )

    def _started(self, name: str, pid: int) -> int:
        self._pids[name] = pid
        self._ended.pop(name, None)
        return pid

    def _signal(self, name: str, number: int) -> None:
        self._states()
        if name not in self._ended:
            os.kill(self._pids[name], number)

    def _end(self, names: Sequence[str]) -> None:
        for name in names:
            # A stopped one gets the SIGTERM only when it goes on.
            self._signal(name, signal.SIGCONT)
            self._signal(name, signal.SIGTERM)

    def _states(self) -> dict[str, int | None]:
        """Return the exit status of each process; None of one that runs."""
        for name, pid in self._pids.items():
            if name not in self._ended:
                gone, status = os.waitpid(pid, os.WNOHANG)
                if gone:
                    self._ended[name] = os.waitstatus_to_exitcode(status)
        return {name: self._ended.get(name) for name in self._pids}

    def _step(self, shift_ns: int) -> None:
        time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + shift_ns)

    def _slew(self, shift_ns: int) -> None:
        seconds, rest_ns = divmod(shift_ns, SECOND_NS)
        ctypes.CDLL(None).adjtime(ctypes.byref(_Timeval(seconds, rest_ns // US_NS)), None)

    def _processor(self) -> list[int]:
        """Return the ticks that the processor has spent: user, nice, system, idle and so on."""
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        return [int(word) for word in first.split()[1:]]


def warm_up() -> None:
    """Load what agents need, as they do."""
    for name in WARM:
        importlib.import_module(name)
    library.load()


def main() -> int:
    """Serve until the machine is stopped; return the exit code."""
    warm_up()
    logs = Path(sys.argv[1])
    port = os.open(PORT, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(port, termios.TCSANOW)
    guest = Guest(logs, (port,))
    lines = Lines()
    os.write(port, encode({"ready": True}))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        select.select([port], [], [])
        try:
            messages = list(lines.feed(os.read(port, READ_BYTES)))
        except LineError as error:
            print(f"guest: {error}", flush=True)
            continue
        for message in messages:
            answer = memoryview(encode(guest.answer(message)))
            while answer:
                answer = answer[os.write(port, answer) :]


if __name__ == "__main__":
    sys.exit(main())
