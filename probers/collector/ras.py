"""Asks NCCL's RAS, within the network namespaces of ranks, in threads of its own.

RAS asks all processes of the job, and waits for those that are slow: an answer may take seconds.
So a look only starts a question, and a later one takes the answer.
"""

import socket
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from probers.collectives.nccl_ras import MAX_ANSWER_BYTES, RasError, RasStatus, parse_status
from probers.host.netns import inside
from schemas.units import SECOND_NS

# NCCL's own client waits a second for the greeting, and RAS five for each process.
CONNECT_S: Final = 1.0
# RAS itself is asked to wait so long for other processes; the rest is for a large answer.
RAS_TIMEOUT_S: Final = 3
ANSWER_S: Final = 10.0
MAX_LINE_BYTES: Final = 4_096
PROTOCOL: Final = 2
# Questions at once: of more jobs on one host the rest waits.
MAX_ASKED: Final = 4

Place = tuple[int, tuple[str, int]]


@dataclass(slots=True)
class _Question:
    asked_ns: int
    thread: threading.Thread | None = None
    status: RasStatus | None = None
    why: str | None = None
    taken: bool = False


@dataclass(frozen=True, slots=True)
class RasAnswer:
    """What came of a question; `why`: nothing did, for this reason."""

    status: RasStatus | None
    why: str | None


@dataclass(slots=True)
class RasAsker:
    """Keeps the last question to each endpoint: a network namespace, host and port."""

    own_namespace: int
    _questions: dict[Place, _Question] = field(default_factory=dict)
    # An answer takes many times its size when it is opened: one at a time.
    _opening: threading.Lock = field(default_factory=threading.Lock)

    def look(self, place: Place, path: Path, *, every_ns: int, now_ns: int) -> RasAnswer | None:
        """Return what was answered since the last look; ask anew when it is time.

        Parameters
        ----------
        place
            The namespace's inode, and the address within it.
        path
            Where the namespace can be opened.
        every_ns, now_ns
            Distance of two questions, and a clock that never goes back.
        """
        known = self._questions.get(place)
        answer = None
        if known is not None and not _runs(known) and not known.taken:
            known.taken = True
            answer, known.status = RasAnswer(known.status, known.why), None
        due = known is None or (not _runs(known) and now_ns - known.asked_ns >= every_ns)
        if due and sum(map(_runs, self._questions.values())) < MAX_ASKED:
            self._ask(place, path, now_ns)
        return answer

    def keep(self, places: Collection[Place]) -> None:
        """Forget all other endpoints."""
        self._questions = {p: q for p, q in self._questions.items() if p in places or _runs(q)}

    def wait(self) -> None:
        """Wait for all answers: of a collector that looks once."""
        for question in self._questions.values():
            if question.thread is not None:
                question.thread.join(ANSWER_S + 2 * CONNECT_S)

    def _ask(self, place: Place, path: Path, now_ns: int) -> None:
        question = self._questions[place] = _Question(now_ns)
        namespace, address = place

        def run() -> None:
            try:
                content = self._answer(namespace, path, address)
                with self._opening:
                    question.status = parse_status(content)
            except (RasError, OSError) as error:
                question.why = str(error) if isinstance(error, RasError) else _why(error)

        # It may hang about for seconds when the collector is to end.
        question.thread = threading.Thread(target=run, name="ras", daemon=True)
        question.thread.start()

    def _answer(self, namespace: int, path: Path, address: tuple[str, int]) -> bytes:
        def connect() -> socket.socket:
            return socket.create_connection(address, CONNECT_S)

        connected = (
            connect() if namespace == self.own_namespace else inside(path, connect)
        )  # fmt: skip
        with connected:
            return ask(connected)


def ask(connected: socket.socket) -> bytes:
    """Return what RAS answers to a question for its status as JSON.

    Raises
    ------
    OSError
        If it does not answer in time.
    RasError
        If it is not RAS, an older one, or its answer has no end.
    """
    deadline_s = time.monotonic() + ANSWER_S
    rest = b""
    for question, answer in (
        (f"CLIENT PROTOCOL {PROTOCOL}", b"SERVER PROTOCOL "),
        (f"TIMEOUT {RAS_TIMEOUT_S}", b"OK"),
        ("SET FORMAT json", b"OK"),
    ):
        connected.sendall(question.encode() + b"\n")
        line, rest = _line(connected, rest, deadline_s)
        if not line.startswith(answer):
            older = question.startswith("SET") and line.startswith(b"ERROR")
            raise RasError("it has no JSON (NCCL before 2.28.7)" if older else "it is not RAS")
    connected.sendall(b"STATUS\n")
    parts, size = [rest], len(rest)
    while part := _receive(connected, deadline_s):
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise RasError(f"an answer longer than {MAX_ANSWER_BYTES} bytes")
    return b"".join(parts)


def _line(connected: socket.socket, held: bytes, deadline_s: float) -> tuple[bytes, bytes]:
    """Return a line, and what came behind it."""
    while b"\n" not in held:
        if len(held) > MAX_LINE_BYTES:
            raise RasError("it is not RAS")
        part = _receive(connected, deadline_s)
        if not part:
            raise RasError("it closed the connection")
        held += part
    line, _, rest = held.partition(b"\n")
    return line, rest


def _receive(connected: socket.socket, deadline_s: float) -> bytes:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("it did not answer in time")
    connected.settimeout(left_s)
    return connected.recv(256 * 1024)


def _runs(question: _Question) -> bool:
    return question.thread is not None and question.thread.is_alive()


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_S:.0f} s"
    return error.strerror or str(error)


def every_ns(least_s: int, world_size: int | None) -> int:
    """Return how often RAS is asked: the whole job about once a second, by all its hosts.

    Each question makes all processes of the job answer. With eight ranks on a host a job of n is
    asked by n / 8 hosts, each every n / 10 seconds.
    """
    return max(least_s, (world_size or 0) // 10) * SECOND_NS
