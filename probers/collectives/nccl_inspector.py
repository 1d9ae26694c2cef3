"""Reads the log of NCCL's Inspector: one line of JSON for each operation that is done.

The format is that of plugins/profiler/inspector of github.com/NVIDIA/nccl (2.28 and later). What
waits is not in it. NCCL counts for each function of a communicator, and the log of a rank may lack
lines: each function of a communicator is a communicator of its own here, so that what all ranks
count alike has one number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from probers.collectives.flight_recorder import Dump
from probers.collectives.nccl_names import operation_name, text_of
from schemas.bounds import MAX_LONG, MAX_RANK, MAX_TIME_US
from schemas.enums import CollectiveState
from schemas.process.files import parse_json
from schemas.records import CollectiveOp, CollectiveSnapshot, CommunicatorProgress

LIBRARY: Final = "nccl"
# With the trace of 64 channels a line takes some 20 KB.
MAX_LINE_BYTES: Final = 256 * 1024
MAX_COMMUNICATORS: Final = 4_096
ENDED_EARLIER: Final = "the time at which it was logged: it ended before"


class LineError(ValueError):
    """A line that is none of the Inspector's, or damaged; the message says why."""


@dataclass(frozen=True, slots=True)
class InspectorLine:
    """One line."""

    operation: CollectiveOp
    group: CommunicatorProgress
    version: str


def parse_line(content: bytes, *, number: int, rank: int, world_size: int | None) -> InspectorLine:
    """Return what a line says.

    Parameters
    ----------
    number
        Of the operation among all of its process.
    rank, world_size
        Of the process, as its environment says.

    Raises
    ------
    LineError
        If it is not the Inspector's, or its numbers cannot be.
    """
    if len(content) > MAX_LINE_BYTES:
        raise LineError(f"a line longer than {MAX_LINE_BYTES} bytes")
    try:
        document = parse_json(content)
    except ValueError as error:
        raise LineError("a line that is no JSON") from error
    header, metadata = _part(document, "header"), _part(document, "metadata")
    is_p2p = isinstance(document, dict) and "p2p_perf" in document
    kind = "p2p" if is_p2p else "coll"
    done = _part(document, f"{kind}_perf")
    name, func = text_of(header.get("id")), text_of(done.get(kind))
    if not name or not func:
        raise LineError("a line without a communicator or a function")
    ranks = _number(header, "n_ranks", MAX_RANK + 1)
    own = _number(header, "rank", ranks - 1)
    logged_at = _number(metadata, "dump_timestamp_us", MAX_TIME_US)
    took = _number(done, f"{kind}_exec_time_us", MAX_TIME_US)
    operation = operation_name(func)
    peer = _number(done, "p2p_peer", ranks - 1) if is_p2p else None
    receives = operation == "recv"
    launched_at, started_at, completed_at = _traced(done, kind)
    reason = None
    if completed_at is None:
        # How long it took is right then, and when it was, as late as the log was written.
        completed_at, started_at, reason = logged_at, max(0, logged_at - took), ENDED_EARLIER
    communicator = name if is_p2p else f"{name}/{operation}"
    said = text_of(header.get("comm_name"))
    description = "" if said == "unknown" else said
    is_world = ranks == world_size and own == rank
    return InspectorLine(
        CollectiveOp(
            communicator=communicator, operation=operation,
            sequence=_number(done, f"{kind}_sn", MAX_LONG), is_p2p=is_p2p, record_id=number,
            op_id=None,
            sender=None if peer is None else (peer if receives else own),
            receiver=None if peer is None else (own if receives else peer),
            input_sizes=(), output_sizes=(), input_dtypes=(), output_dtypes=(),
            n_bytes=_number(done, f"{kind}_msg_size_bytes", MAX_LONG),
            launched_at=launched_at, started_at=started_at, completed_at=completed_at,
            missing_reason=reason, state=CollectiveState.COMPLETED, retired=None, timeout_ms=None,
            stack=(),
        ),
        CommunicatorProgress(
            communicator=communicator, description=description,
            ranks=tuple(range(ranks)) if is_world else None,
        ),
        text_of(metadata.get("inspector_output_format_version")),
    )  # fmt: skip


@dataclass(slots=True)
class InspectorLog:
    """The log of one rank, line after line.

    Attributes
    ----------
    refused
        Lines that could not be used.
    why
        Why the last of them could not; None: all could.
    """

    rank: int
    world_size: int | None
    refused: int = 0
    why: str | None = None
    _next: int = 0
    _version: str = ""
    _groups: dict[str, CommunicatorProgress] = field(default_factory=dict)

    def take(self, lines: list[bytes], *, written_at: int) -> Dump:
        """Return the operations of further lines, in the form in which a recorder's are told.

        Parameters
        ----------
        lines
            Whole ones, without their ends.
        written_at
            When the last was written, microseconds since the epoch.
        """
        first, operations = self._next, []
        for content in lines:
            if not content.strip():
                continue
            try:
                line = parse_line(
                    content, number=self._next, rank=self.rank, world_size=self.world_size
                )
            except LineError as error:
                self.refused += 1
                self.why = str(error)
                continue
            name = line.group.communicator
            if name not in self._groups and len(self._groups) >= MAX_COMMUNICATORS:
                self.refused += 1
                self.why = f"more than {MAX_COMMUNICATORS} communicators"
                continue
            self._groups[name] = line.group
            self._version = line.version or self._version
            self._next += 1
            operations.append(line.operation)
        snapshot = CollectiveSnapshot(
            rank=self.rank, source="", library=LIBRARY,
            version=f"inspector {self._version}".rstrip(), taken_at=written_at,
            taken_at_missing_reason=None, dropped_before=first,
            communicators=tuple(self._groups.values()), operations=tuple(operations),
        )  # fmt: skip
        return Dump(snapshot, (), self._next - 1)


def _traced(done: Mapping[str, Any], kind: str) -> tuple[int | None, int | None, int | None]:
    """Return when an operation was launched, began and ended, if the log is a verbose one."""
    trace = done.get("event_trace_ts")
    if not isinstance(trace, dict):
        return None, None, None
    channels = trace.get("kernel_events")
    begun, ended = [], []
    for channel in channels if isinstance(channels, list) else []:
        if isinstance(channel, dict):
            begun.append(_time(channel.get("kernel_start_ts")))
            ended.append(_time(channel.get("kernel_stop_ts")))
    launched_at = _time(trace.get(f"{kind}_start_ts"))
    if not begun or None in begun or None in ended:
        return launched_at, None, None
    return (
        launched_at,
        min(t for t in begun if t is not None),
        max(t for t in ended if t is not None),
    )


def _time(value: Any) -> int | None:
    """Return a time; 0 stands for none."""
    plain = isinstance(value, int) and not isinstance(value, bool)
    return value if plain and 0 < value <= MAX_TIME_US else None


def _part(document: Any, name: str) -> Mapping[str, Any]:
    found = document.get(name) if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise LineError(f"a line without {name}")
    return found


def _number(held: Mapping[str, Any], name: str, most: int) -> int:
    value = held.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise LineError(f"a line whose {name} is none")
    return value
