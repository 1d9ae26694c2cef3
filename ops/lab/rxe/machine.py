"""The machine of an rxe lab, seen from the host: started, asked, its clock kept, stopped."""

import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Self

import ops
from ops.lab.rxe.wire import LineError, Lines, encode
from ops.lab.vm.machine import MachineError, boot_command, write_script
from ops.lab.vm.packages import fetch_image
from ops.running.processes import die_with_parent
from schemas.units import SECOND_NS

# Booting takes 8 s of a whole processor, loading what agents need another 10 s; of a busy
# machine it gets a tenth of one.
BOOT_TIMEOUT_S: Final = 300.0
# Commands take some 100 ms each, emulated; a busy machine several times that.
ANSWER_TIMEOUT_S: Final = 25.0
STOP_TIMEOUT_S: Final = 5.0
READ_BYTES: Final = 65_536
# /run/out of the guest, below the lab's folder.
OUT: Final = "machine"
LOGS: Final = "logs"
CONSOLE: Final = "console.log"
GUEST_OUT: Final = Path("/run/out")
CLOCK_TRIES: Final = 5
# A clock that is so far off is set; less is made up slowly, so that no round trip sees it.
STEP_NS: Final = 50_000_000


def _silent(_text: str) -> None:
    """Show nothing: what was to be fetched has been."""


class Machine:
    """QEMU with the guest's server in it; `folder` is the lab's.

    The two talk over a serial port, which is a pair of sockets of this process: nobody else
    can reach it, and no port is open on the host.
    """

    def __init__(self, folder: Path) -> None:
        self._out = folder / OUT
        (self._out / LOGS).mkdir(parents=True, exist_ok=True, mode=0o700)
        image = fetch_image(_silent)
        own, guests = socket.socketpair()
        self._socket = own
        self._lines = Lines()
        self._number = 0
        write_script(
            self._out,
            [sys.executable, "-m", "ops.lab.rxe.guest", str(GUEST_OUT / LOGS)],
            {"PYTHONPATH": f"/run/verbs:{Path(ops.__file__).parents[1]}"},
        )
        command, environment = boot_command(
            image,
            self._out,
            serial=(f"file:{self._out / CONSOLE}", "chardev:control"),
            network=True,
        )
        command += ["-chardev", f"socket,id=control,fd={guests.fileno()}"]
        with guests:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=(guests.fileno(),),
                # Ctrl-C is for the lab: agents say goodbye before their machine goes.
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, no threads here
            )
        try:
            self._receive(time.monotonic() + BOOT_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, op: str, **arguments: Any) -> Any:
        """Have the guest do something; return what it returns.

        Raises
        ------
        MachineError
            If it fails, or the machine does not answer.
        """
        self._number += 1
        try:
            self._socket.sendall(encode({"number": self._number, "op": op, "with": arguments}))
        except OSError as error:
            raise MachineError(f"the machine is gone: {error}{self._last_words()}") from error
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            answer = self._receive(deadline)
            if answer.get("number") == self._number:
                break
        if "error" in answer:
            raise MachineError(f"{op} in the machine: {answer['error']}")
        return answer["result"]

    def _receive(self, deadline: float) -> dict[str, Any]:
        while True:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self._socket], [], [], max(0.0, left_s))
            if not ready:
                raise MachineError(f"the machine does not answer{self._last_words()}")
            try:
                data = self._socket.recv(READ_BYTES)
                messages = list(self._lines.feed(data))
            except (OSError, LineError) as error:
                raise MachineError(f"the machine: {error}{self._last_words()}") from error
            if not data:
                raise MachineError(f"the machine has stopped{self._last_words()}")
            if messages:
                # The host asks and waits: there is never more than one.
                return messages[-1]

    def _last_words(self) -> str:
        try:
            text = (self._out / CONSOLE).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = text.strip().splitlines()[-5:]
        return ":\n" + "\n".join(lines) if lines else ""

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def cpu_ns(self) -> int:
        """Processor time of this host that it has taken."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        user, system = fields.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) * SECOND_NS // os.sysconf("SC_CLK_TCK")

    def set_clock(self) -> int:
        """Bring the guest's clock to the host's; return how far it was off, nanoseconds."""
        shift_ns = min((self._offset() for _ in range(CLOCK_TRIES)), key=lambda o: o[0])[1]
        self.ask("step" if abs(shift_ns) > STEP_NS else "slew", shift_ns=shift_ns)
        return shift_ns

    def _offset(self) -> tuple[int, int]:
        """Return how long asking took, and what the guest's clock lacks."""
        before_ns = time.time_ns()
        guests_ns = int(self.ask("clock"))
        after_ns = time.time_ns()
        return after_ns - before_ns, (before_ns + after_ns) // 2 - guests_ns

    def close(self) -> None:
        """Stop it at once: it has no disk, and nothing to write."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._socket.close()


def guest_path(folder: Path, path: Path) -> str:
    """Return where the guest sees a file below the lab's folder that it shares.

    >>> guest_path(Path("/l"), Path("/l/machine/agents/a.toml"))
    '/run/out/agents/a.toml'
    """
    return os.fspath(GUEST_OUT / path.relative_to(folder / OUT))
