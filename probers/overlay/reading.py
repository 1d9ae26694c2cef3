"""Reads the tables of a host as they are now. Runs in a process of its own, which then ends."""

import time
from collections.abc import Sequence
from typing import Final

from probers.overlay.address import ipv4_number
from probers.overlay.command import Command, CommandError
from probers.overlay.fdb import judge, parse_fdb, parse_neighbours, with_macs
from probers.overlay.flows import FlowBook
from probers.overlay.megaflow import Skipped, parse_line
from probers.overlay.wire import Answer, Destination, Request

# What is read whole, to be parsed as JSON: a database of 100,000 entries has 12 MB.
MAX_JSON_BYTES: Final = 32 * 2**20
NEIGHBOURS: Final = "neigh"
FDB: Final = "fdb"
OFFLOADED: Final = "offloaded"
SOFTWARE: Final = "software"


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
    book = FlowBook(destinations, offload=asked)
    try:
        # Hardware first: a flow that moves there meanwhile is in neither, not in software only.
        if asked:
            _dump(request.commands[OFFLOADED], True, book, deadline_s, answer)
        _dump(request.commands[SOFTWARE], False if asked else None, book, deadline_s, answer)
    except CommandError as error:
        # Of one dump alone, nothing can be told: what it drops, the other may forward.
        answer.troubles.append(str(error))
        return
    if answer.counts.get("lines_skipped") and not answer.counts.get("flows"):
        answer.troubles.append("no line of the dumps is a flow")
        return
    answer.read = True
    answer.findings.extend(f for d in destinations if (f := book.find(d)) is not None)
    answer.counts.update(book.counts)


def _dump(
    line: Sequence[str],
    hardware: bool | None,
    book: FlowBook,
    deadline_s: float,
    answer: Answer,
) -> None:
    """Take in one dump of flows."""
    counts = answer.counts
    for text in Command(line, deadline_s).lines():
        found = parse_line(text.decode("ascii", "replace"))
        if not isinstance(found, Skipped):
            counts["flows"] = counts.get("flows", 0) + 1
            book.add(found, hardware=hardware)
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
