"""A TCP server on the loopback that plays NCCL's RAS, in good and bad ways."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Behaviour = Callable[[socket.socket], None]


def answering(content: bytes, *, formats: bool = True) -> Behaviour:
    """Return RAS that answers so; without `formats` one before NCCL 2.28.7."""

    def behave(client: socket.socket) -> None:
        lines = client.makefile("rb")
        for line in lines:
            words = line.decode().lower().split()
            if words[:2] == ["client", "protocol"]:
                client.sendall(b"SERVER PROTOCOL 3\n")
            elif words[0] == "timeout" or (formats and words[:2] == ["set", "format"]):
                client.sendall(b"OK\n")
            elif words == ["status"]:
                client.sendall(content)
                return
            else:
                client.sendall(f"ERROR: Unknown command {line.decode()}".encode())

    return behave


def silent(client: socket.socket) -> None:
    """Take the question, and say nothing until the other end goes."""
    with contextlib.suppress(OSError):
        while client.recv(4_096):
            pass


def endless(client: socket.socket) -> None:
    """Answer without end, and without a line."""
    with contextlib.suppress(OSError):
        while True:
            client.sendall(b"x" * 65_536)


def endless_status(client: socket.socket) -> None:
    """Greet as RAS does, and answer without end."""
    answering(b"{")(client)
    endless(client)


def dripping(client: socket.socket) -> None:
    """Answer a byte at a time."""
    with contextlib.suppress(OSError):
        while True:
            client.sendall(b"S")
            time.sleep(0.05)


def garbage(client: socket.socket) -> None:
    """Be something else, such as a web server."""
    with contextlib.suppress(OSError):
        client.recv(4_096)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n\x00\xff")


def closing(client: socket.socket) -> None:
    """Close the connection at once."""
    client.close()


@contextmanager
def ras_server(behave: Behaviour) -> Iterator[tuple[str, int]]:
    """Run a server; give its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                with client:
                    behave(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()
        listening.shutdown(socket.SHUT_RDWR)
