"""The health server on real sockets, turned by hand: nothing waits, nothing is kept for ever."""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from probers.config.health import HealthAddress
from probers.health.answers import MAX_REQUEST_BYTES, Health
from probers.health.server import MAX_OPEN, PATIENCE_NS, HealthServer
from schemas.units import SECOND_NS

GOOD = Health(agent_id="agent-h0", state="RUNNING")
REQUEST = b"GET /healthz HTTP/1.1\r\n\r\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the socket's path."""
    return tmp_path / "a.sock"


@pytest.fixture
def server(path: Path) -> Iterator[HealthServer]:
    """Return a server on a unix socket."""
    made = HealthServer(HealthAddress(str(path)))
    yield made
    made.close()


def connect(path: Path) -> socket.socket:
    """Return a client."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(30)
    client.connect(str(path))
    return client


def turn(server: HealthServer, at_s: float = 0) -> None:
    """Let the loop turn once."""
    server.serve(int(at_s * SECOND_NS), lambda: GOOD)


def answer(client: socket.socket) -> bytes:
    """Return all that comes until the other end closes."""
    with client:
        return b"".join(iter(lambda: client.recv(4_096), b""))


def test_a_request_is_answered_within_one_turn(server: HealthServer, path: Path) -> None:
    """A client that sends at once need not wait for a second turn."""
    client = connect(path)
    client.sendall(REQUEST)
    turn(server)
    assert answer(client).startswith(b"HTTP/1.1 200 ")


def test_a_slow_client_is_waited_for_until_its_time_is_up(server: HealthServer, path: Path) -> None:
    """Half a request after two seconds is closed without an answer."""
    slow, steady = connect(path), connect(path)
    slow.sendall(REQUEST[:5])
    steady.sendall(REQUEST[:5])
    turn(server)
    steady.sendall(REQUEST[5:])
    turn(server, 1)
    assert answer(steady).startswith(b"HTTP/1.1 200 ")
    turn(server, 1 + PATIENCE_NS / SECOND_NS)
    assert answer(slow) == b""


def test_who_holds_connections_makes_way_for_who_comes(server: HealthServer, path: Path) -> None:
    """With all places taken by silent clients, one that asks is still answered."""
    silent = [connect(path) for _ in range(MAX_OPEN)]
    for _ in range(MAX_OPEN):
        turn(server)
    client = connect(path)
    client.sendall(REQUEST)
    turn(server)
    assert answer(client).startswith(b"HTTP/1.1 200 ")
    assert answer(silent[0]) == b""
    for one in silent:
        one.close()


def test_a_long_request_is_cut_off(server: HealthServer, path: Path) -> None:
    """What is sent beyond the bound is not read; the kernel may drop the answer with it."""
    client = connect(path)
    client.sendall(b"GET /" + b"a" * (4 * MAX_REQUEST_BYTES))
    turn(server)
    with contextlib.suppress(ConnectionResetError):
        assert answer(client).startswith(b"HTTP/1.1 400 ")
    after = connect(path)
    after.sendall(REQUEST)
    turn(server)
    assert answer(after).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_resets_harms_nobody() -> None:
    """Over TCP, a reset before and after the request."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = HealthServer(HealthAddress(None, "127.0.0.1", port))
    try:
        for request in (b"", REQUEST):
            client = socket.create_connection(("127.0.0.1", port), 5)
            client.sendall(request)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            turn(server)
        client = socket.create_connection(("127.0.0.1", port), 5)
        client.sendall(REQUEST)
        turn(server)
        assert answer(client).startswith(b"HTTP/1.1 200 ")
    finally:
        server.close()


def test_the_socket_is_for_owner_and_group_and_goes_with_its_server(path: Path) -> None:
    """Others of the host may not ask; a file that is left is taken over, one in use is not."""
    server = HealthServer(HealthAddress(str(path)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with pytest.raises(OSError, match=r"health at unix:.*in use"):
        HealthServer(HealthAddress(str(path)))
    server.close()
    assert not path.exists()
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.close()
    HealthServer(HealthAddress(str(path))).close()
    path.write_text("no socket")
    with pytest.raises(OSError, match="in use"):
        HealthServer(HealthAddress(str(path)))
    assert path.read_text() == "no socket"


def test_a_closed_server_leaves_anothers_socket_alone(path: Path) -> None:
    """Somebody else has made the file anew: it is not ours to remove."""
    server = HealthServer(HealthAddress(str(path)))
    os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        # Another file in between, lest the file system gives the same number again.
        path.with_suffix(".kept").touch()
        other.bind(str(path))
        server.close()
        assert path.exists()
