"""Commands over a unix-domain socket: one line of JSON each way."""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ops.lab.errors import LabError, LabUsageError
from ops.lab.events import EventLoop
from schemas.process.eventlog import EventLog

# A command has some 200 bytes, a status of the largest lab some 100 KB.
MAX_LINE_BYTES: Final = 1 << 20
SOCKET_MODE: Final = 0o600
# sun_path holds 104 bytes on macOS and 108 on Linux, the closing 0 among them.
MAX_PATH_BYTES: Final = 103
REPLY_TIMEOUT_S: Final = 5.0
# A command to an emulated machine takes seconds when others keep it from running.
ANSWER_TIMEOUT_S: Final = 30.0
CONNECT_RETRY_S: Final = 0.02

Handler = Callable[[Mapping[str, Any]], Any]


class ControlError(LabError):
    """A command that failed; the message is for people."""


class ControlUnavailableError(ConnectionError):
    """Nobody listens at the socket."""


def _checked(path: Path) -> str:
    name = str(path)
    if len(os.fsencode(name)) > MAX_PATH_BYTES:
        raise ControlError(
            f"the path of the control socket has more than {MAX_PATH_BYTES} bytes: {name}; "
            "choose a shorter SKELETONHUNTER_STATE_DIR"
        )
    return name


class _Connection:
    """A client that may send its line in pieces; it gets one answer."""

    def __init__(self, server: "ControlServer", peer: socket.socket) -> None:
        self.server = server
        self.peer = peer
        self.received = bytearray()

    def readable(self) -> None:
        try:
            data = self.peer.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.received += data
        if b"\n" in self.received:
            line = bytes(self.received).partition(b"\n")[0]
            self.server.answer(self, line)
        elif not data or len(self.received) > MAX_LINE_BYTES:
            self.server.drop(self)


def _refusal(message: str, *, usage: bool) -> dict[str, Any]:
    return {"ok": False, "error": message, "usage": usage}


class ControlServer:
    """Answers commands inside an event loop.

    The handler gets the command as a dict and returns what JSON can hold. What it
    raises is reported to the client; anything but the lab's own errors is logged as well.
    """

    def __init__(
        self,
        path: Path,
        loop: EventLoop,
        handler: Handler,
        log: EventLog,
    ) -> None:
        self._path = path
        self._loop = loop
        self._handler = handler
        self._log = log
        self._connections: set[_Connection] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(_checked(path))
            # The folder is private already; the mode says so of the socket itself.
            path.chmod(SOCKET_MODE)
            self._socket.listen()
            self._socket.setblocking(False)
        except (OSError, ControlError):
            self._socket.close()
            raise
        loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            peer, _ = self._socket.accept()
        except OSError:
            return
        peer.setblocking(False)
        connection = _Connection(self, peer)
        self._connections.add(connection)
        self._loop.add_reader(peer, connection.readable)

    def answer(self, connection: _Connection, line: bytes) -> None:
        """Run the command, send its answer, hang up."""
        reply = json.dumps(self._run(line)).encode() + b"\n"
        with suppress(OSError):
            # The client waits for it; a blocking write of a short line is over at once.
            connection.peer.settimeout(REPLY_TIMEOUT_S)
            connection.peer.sendall(reply)
        self.drop(connection)

    def _run(self, line: bytes) -> dict[str, Any]:
        try:
            command = json.loads(line)
            if not isinstance(command, dict):
                raise ControlError("a command is a JSON object")
            return {"ok": True, "result": self._handler(command)}
        except (LabError, LabUsageError, ConnectionError) as error:
            return _refusal(str(error), usage=isinstance(error, LabUsageError))
        except Exception as error:  # noqa: BLE001 - a bad command never ends the fabric
            self._log.error("control.failed", command=line[:200].decode(errors="replace"))
            return _refusal(repr(error), usage=False)

    def drop(self, connection: _Connection) -> None:
        """Hang up."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._loop.remove_reader(connection.peer)
            connection.peer.close()

    def close(self) -> None:
        """Stop listening, remove the socket's file."""
        for connection in list(self._connections):
            self.drop(connection)
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._path.unlink(missing_ok=True)


def request(path: Path, command: Mapping[str, Any], *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
    """Send a command, return its result.

    Raises
    ------
    ControlUnavailableError
        If nobody listens at `path`, or nobody answers within the timeout.
    ControlError, LabUsageError
        If the command failed, or makes no sense; the message is the server's.
    """
    name = _checked(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        received = bytearray()
        try:
            client.connect(name)
            client.sendall(json.dumps(dict(command)).encode() + b"\n")
            while not received.endswith(b"\n"):
                data = client.recv(65_536)
                if not data:
                    break
                received += data
        except OSError as error:
            raise ControlUnavailableError(f"{name}: {error}") from error
    if not received.endswith(b"\n"):
        raise ControlUnavailableError(f"{name}: no answer")
    reply = json.loads(received)
    if not reply["ok"]:
        raise LabUsageError(reply["error"]) if reply["usage"] else ControlError(reply["error"])
    return reply["result"]


def wait_for(
    path: Path, *, timeout_s: float, check: Callable[[], None], command: Mapping[str, Any]
) -> Any:
    """Ask until somebody answers; `check` may raise to give up early.

    Raises
    ------
    ControlUnavailableError
        If nobody answers within the timeout.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        check()
        try:
            return request(path, command)
        except ControlUnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(CONNECT_RETRY_S)
