"""Runs the host's commands and reads the overlay tables once, in the child process.

The output of each command is bounded in size and time.
"""

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Final, cast

from probers.overlay.address import ipv4_number
from probers.overlay.fdb import judge, parse_fdb, parse_neighbours, with_macs
from probers.overlay.flows import FlowIndex
from probers.overlay.megaflow import Skipped, parse_line
from probers.overlay.wire import Answer, Destination, Request

# What is read whole, to be parsed as JSON: a database of 100,000 entries has 12 MB.
MAX_JSON_BYTES: Final = 32 * 2**20
NEIGHBOURS: Final = "neigh"
FDB: Final = "fdb"
OFFLOADED: Final = "offloaded"
SOFTWARE: Final = "software"
# Open vSwitch keeps 200,000 flows at most (flow-limit), of 400 to 800 characters.
MAX_LINES: Final = 262_144
MAX_BYTES: Final = 256 * 2**20
# A longer line is cut; no parser of ours takes it.
MAX_LINE_BYTES: Final = 32_768
CHUNK_BYTES: Final = 65_536
MAX_ERROR_BYTES: Final = 4_096
MAX_ERROR_CHARS: Final = 120


class CommandError(Exception):
    """A command that did not do what it should; the message is a reason for people."""


class Command:
    """One run of a command line, never by a shell.

    Parameters
    ----------
    line : program and arguments
    deadline_s : on the monotonic clock; the command is killed then
    """

    def __init__(self, line: Sequence[str], deadline_s: float) -> None:
        self._name = os.path.basename(line[0])
        self._deadline_s = deadline_s
        self._late = False
        # Not a pipe: one that is full while the other is read would stop both.
        self._errors = os.memfd_create("errors")
        try:
            self._process = subprocess.Popen(
                list(line),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                # Numbers and words as they are parsed, whatever the host's language.
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            os.close(self._errors)
            raise CommandError(f"{self._name}: {os.strerror(error.errno or 0)}") from error
        self._stream = cast(IO[bytes], self._process.stdout)

    def lines(self) -> Iterator[bytes]:
        """Return what it prints, line by line; of one that is too long, its beginning.

        Raises
        ------
        CommandError
            At the end: if it failed, took too long or printed too much.
        """
        return self._watched(self._lines())

    def whole(self, max_bytes: int) -> bytes:
        """Return all that it prints.

        Raises
        ------
        CommandError
            If it failed, took too long or printed more than that.
        """
        parts: list[bytes] = []
        room = max_bytes
        for chunk in self._watched(self._chunks()):
            room -= len(chunk)
            if room < 0:
                raise CommandError(f"{self._name}: more than {max_bytes} bytes")
            parts.append(chunk)
        return b"".join(parts)

    def _watched(self, output: Iterator[bytes]) -> Iterator[bytes]:
        watchdog = threading.Timer(max(0.0, self._deadline_s - time.monotonic()), self._kill)
        watchdog.daemon = True
        watchdog.start()
        code = 0
        try:
            yield from output
            code = self._process.wait()
        finally:
            watchdog.cancel()
            said = self._end()
        if self._late:
            raise CommandError(f"{self._name}: no answer in time")
        if code:
            raise CommandError(f"{self._name}: exit code {code}{said}")

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self._stream.read(CHUNK_BYTES):
            yield chunk

    def _lines(self) -> Iterator[bytes]:
        lines = size = 0
        within = False
        while chunk := self._stream.readline(MAX_LINE_BYTES):
            size += len(chunk)
            lines += not within
            if lines > MAX_LINES or size > MAX_BYTES:
                raise CommandError(
                    f"{self._name}: more than {MAX_LINES} lines or {MAX_BYTES} bytes"
                )
            if not within:
                yield chunk
            # The rest of a line that was cut is not a line of its own.
            within = not chunk.endswith(b"\n")

    def _kill(self) -> None:
        self._late = True
        self._process.kill()

    def _end(self) -> str:
        """Let go of the process; return what it said was wrong."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._stream.close()
        said = os.pread(self._errors, MAX_ERROR_BYTES, 0).decode("ascii", "replace").strip()
        last = said.splitlines()[-1] if said else ""
        printable = "".join(c if c.isprintable() else "?" for c in last[:MAX_ERROR_CHARS])
        os.close(self._errors)
        return f": {printable}" if printable else ""


def read(request: Request) -> Answer:
    """Return where the tables send packets to the destinations of the request."""
    answer = Answer()
    deadline_s = time.monotonic() + request.timeout_s
    neighbours = _neighbours(request, deadline_s, answer)
    known = [d for d in request.destinations if ipv4_number(d.address) is not None]
    destinations = with_macs(known, neighbours, answer)
    if request.source == "ovs":
        _read_flows(request, destinations, deadline_s, answer)
    else:
        _read_fdb(request, destinations, deadline_s, answer)
    return answer


def _read_flows(
    request: Request, destinations: list[Destination], deadline_s: float, answer: Answer
) -> None:
    asked = OFFLOADED in request.commands
    index = FlowIndex(destinations, offload=asked)
    try:
        # Hardware first: a flow that moves there meanwhile is in neither, not in software only.
        if asked:
            _dump(request.commands[OFFLOADED], True, index, deadline_s, answer)
        _dump(request.commands[SOFTWARE], False if asked else None, index, deadline_s, answer)
    except CommandError as error:
        # One dump alone says nothing: what it drops, the other may forward.
        answer.troubles.append(str(error))
        return
    if answer.counts.get("lines_skipped") and not answer.counts.get("flows"):
        answer.troubles.append("no line of the dumps is a flow")
        return
    answer.read = True
    answer.findings.extend(f for d in destinations if (f := index.find(d)) is not None)
    answer.counts.update(index.counts)


def _dump(
    line: Sequence[str],
    hardware: bool | None,
    index: FlowIndex,
    deadline_s: float,
    answer: Answer,
) -> None:
    """Index the flows of one dump."""
    counts = answer.counts
    for text in Command(line, deadline_s).lines():
        found = parse_line(text.decode("ascii", "replace"))
        if not isinstance(found, Skipped):
            counts["flows"] = counts.get("flows", 0) + 1
            index.add(found, hardware=hardware)
        elif found is not Skipped.TITLE:
            counts["lines_skipped"] = counts.get("lines_skipped", 0) + 1


def _read_fdb(
    request: Request, destinations: list[Destination], deadline_s: float, answer: Answer
) -> None:
    text = _whole(FDB, request, deadline_s, answer)
    if text is None:
        return
    parsed = parse_fdb(text, request.devices)
    if parsed is None:
        answer.troubles.append("the forwarding database is no JSON list")
        return
    entries, strange = parsed
    answer.counts["entries"] = len(entries)
    if strange:
        answer.counts["entries_skipped"] = strange
    answer.read = True
    answer.findings.extend(judge(destinations, entries, answer.counts))


def _neighbours(request: Request, deadline_s: float, answer: Answer) -> dict[str, str]:
    text = _whole(NEIGHBOURS, request, deadline_s, answer)
    if text is None:
        return {}
    found = parse_neighbours(text)
    if found is None:
        answer.troubles.append("the neighbour table is no JSON list")
        return {}
    return found


def _whole(name: str, request: Request, deadline_s: float, answer: Answer) -> str | None:
    """Return all that a command prints; None: it is not wanted, or failed."""
    if not request.commands.get(name):
        return None
    try:
        printed = Command(request.commands[name], deadline_s).whole(MAX_JSON_BYTES)
    except CommandError as error:
        answer.troubles.append(str(error))
        return None
    # An empty table is printed as nothing by some versions.
    return printed.decode("utf-8", "replace").strip() or "[]"
