"""Reads the dumps of PyTorch's Flight Recorder: what each rank recorded of its collectives.

All versions since PyTorch 2.4, NCCL and gloo, pickle and JSON. The format is that of
`torch/csrc/distributed/c10d/FlightRecorder.hpp` (PyTorch); keys that a version lacks are None
here, and keys that are not known are left alone.

Some of it does not say what its name suggests:

- Of gloo, `state` stays `scheduled` and both times are missing: an operation is done once it is
  `retired`.
- Of NCCL, an operation that is `retired` and not `completed` has timed out.
- Operations of one coalesced launch have no state of their own: the entry `coalesced` has it.
- `pg_config` of gloo is one entry without a name, and its ranks are counted within the group:
  no members of a gloo group can be had from a dump.
- `pg_id` is a rank's own number of a group; only names are the same everywhere.
- `pg_status` is by `pg_id`, which only an operation of the group tells: of a group that the ring
  has lost altogether it says nothing, and of others no more than their operations.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from probers.collectives.plain_pickle import MAX_VALUES, PickleError, load_plain
from schemas.enums import CollectiveState
from schemas.process.files import parse_json
from schemas.records import CollectiveOp, CollectiveSnapshot, CommunicatorProgress

# 470 bytes an operation with its stack: 100,000 of them, and the largest ring in use has 20,000.
MAX_DUMP_BYTES: Final = 64 * 2**20
# JSON of empty dictionaries takes 24 times its size: under a gigabyte, as of a pickle. An operation
# has no stack there, and takes some 700 bytes.
MAX_JSON_BYTES: Final = 32 * 2**20
MAX_OPERATIONS: Final = 200_000
MAX_GROUPS: Final = 100_000
# The largest jobs have some 100,000 GPUs; a larger number at the end of a name is something else.
MAX_RANKS: Final = 2**17
# Over all groups of a dump: the largest job's ranks in 32 groups of all of them.
MAX_MEMBERS: Final = 32 * MAX_RANKS
MAX_TEXT: Final = 400
MAX_FRAMES: Final = 100
MAX_TENSORS: Final = 100_000
MAX_DIMENSIONS: Final = 64
# Later minor versions add keys; a later major one changes them.
KNOWN_MAJOR: Final = 2
COALESCED: Final = "coalesced"
_LAUNCH: Final = f":{COALESCED}"

# Of tensors: the sizes of each.
Shapes = tuple[tuple[int, ...], ...]

_PICKLE_BEGIN: Final = b"\x80"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_STATES: Final = {state.value.lower(): state for state in CollectiveState}
# As PyTorch writes JSON, without spaces.
_ENTRIES: Final = b'"entries":['
_BETWEEN: Final = b"},{"
_RECORD_IDS: Final = re.compile(rb'"record_id":(\d{1,18})')
_PEERS: Final = re.compile(r"(send|recv) (\d{1,7})(->|<-)(\d{1,7})")
_LAST_NUMBER: Final = re.compile(r"(\d+)$")
_RANK_NUMBER: Final = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)
_ENDING: Final = re.compile(r"\.(?:json|pkl|pickle|pt|bin|trace|dump)$", re.IGNORECASE)
_NOT_RECORDED: Final = "not recorded by this library"
_NOT_YET: Final = "not seen to happen"
# Bytes of PyTorch's types, by the names that dumps give them.
_WIDTHS: Final[Mapping[str, int]] = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "UInt16": 2,
    "Int": 4, "Float": 4, "UInt32": 4, "Long": 8, "Double": 8, "UInt64": 8,
    "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16,
    "Float8_e5m2": 1, "Float8_e4m3fn": 1, "Float8_e5m2fnuz": 1, "Float8_e4m3fnuz": 1,
    "Float8_e8m0fnu": 1,
}  # fmt: skip


class DumpError(ValueError):
    """A file that is no dump, or one that cannot be used; the message says why."""


class NoDumpError(DumpError):
    """A file that is something else, such as a log beside the dumps."""


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump, and what a reader should know of it.

    `highest_record_id` is that of the newest operation in the ring, also of one that is left out;
    −1 if it is empty.
    """

    snapshot: CollectiveSnapshot
    warnings: tuple[str, ...]
    highest_record_id: int


def read_dump(
    content: bytes,
    name: str,
    *,
    taken_at: int | None = None,
    skip: Callable[[int], bool] | None = None,
) -> Dump:
    """Return what a dump says.

    Parameters
    ----------
    content
        Of the file.
    name
        Of the file: the number after `rank` in it, else that at its end, is the rank, where the
        content does not tell.
    taken_at
        Microseconds since the epoch at which the file was written, by the rank's clock.
    skip
        Which operations are left out, by `record_id`: a reader of one dump after the other knows
        most of them. Coalesced launches are not asked for: they speak for others.

    Raises
    ------
    NoDumpError
        If it is neither a pickle nor a JSON object with a dump's keys.
    DumpError
        If it is damaged, larger than the limits above, or its rank cannot be told.
    """
    before, document = _newest(content, skip) or ([], _document(content))
    if "version" not in document and "entries" not in document:
        raise NoDumpError("no dump of the Flight Recorder: neither version nor entries")
    warnings: list[str] = []
    version = _text(document.get("version", ""))
    if version.split(".")[0] != str(KNOWN_MAJOR):
        warnings.append(f"version {version or 'none'} is not known: read as far as it is like 2.x")
    entries = _list(document.get("entries", []), "entries", MAX_OPERATIONS)
    frames: dict[int, str] = {}
    signatures = _Signatures(by_text=not content.startswith(_PICKLE_BEGIN))
    records = before + [_record_id(entry) for entry in entries]
    if skip is not None:
        launches = _LAUNCH.encode() in content
        # The last one tells the library.
        numbered = zip(entries, records[len(before) :], strict=True)
        entries = [
            entry
            for entry, number in numbered
            if not skip(number) or entry is entries[-1] or (launches and _is_launch(entry))
        ]
    operations, total = [], 0
    libraries_seen, described = set[str](), dict[str, str]()
    for entry in entries:
        signature = signatures.of(_mapping(entry, "an entry"))
        operations.append(_operation(entry, signature, frames))
        libraries_seen.add(signature.library)
        described[signature.communicator] = signature.description
        total += signature.n_values
        if total > MAX_VALUES:
            raise DumpError(f"sizes and types of tensors are more than {MAX_VALUES:,} values")
    libraries = sorted(libraries_seen - {""})
    found = _with_coalesced(operations)
    groups = _groups(document, described, with_members="gloo" not in libraries)
    told = _rank(document, groups, found, name=name, warnings=warnings)
    ordered = tuple(sorted(found, key=lambda operation: operation.record_id))
    newest = max((o.launched_at for o in ordered if o.launched_at is not None), default=None)
    reason = None
    if taken_at is None:
        reason = "not known"
    elif newest is not None and taken_at < newest:
        taken_at, reason = None, "the file is older than what it holds"
    first = dropped = min(records, default=0)
    if records and max(records) - first + 1 > len(records):
        warnings.append("operations are missing between others")
        dropped = max(first, 1)
    return Dump(
        CollectiveSnapshot(
            rank=told, source=name, library="+".join(libraries) or None, version=version,
            taken_at=taken_at, taken_at_missing_reason=reason,
            dropped_before=dropped, communicators=groups, operations=ordered,
        ),
        tuple(warnings),
        max(records, default=-1),
    )  # fmt: skip


def _newest(
    content: bytes, skip: Callable[[int], bool] | None
) -> tuple[list[int], Mapping[Any, Any]] | None:
    """Return JSON without the operations before the first that is wanted, and their numbers.

    Most of a ring that is read again is known: to find where the rest begins takes a twentieth of
    the time that it takes to read it. None: it has to be read as a whole, since it is no JSON as
    PyTorch writes it, holds coalesced launches, or nothing in it is known.
    """
    begin = content.find(_ENTRIES)
    if skip is None or begin < 0 or not content.startswith(b"{") or _LAUNCH.encode() in content:
        return None
    found = [(int(match[1]), match.end()) for match in _RECORD_IDS.finditer(content, begin)]
    # The last one tells the library.
    wanted = (place for place, (number, _) in enumerate(found) if not skip(number))
    first = next(wanted, len(found) - 1)
    cut = content.find(_BETWEEN, found[first - 1][1]) if first > 0 else -1
    if cut < 0:
        return None
    rest = content[: begin + len(_ENTRIES)] + content[cut + 2 :]
    try:
        document = _document(rest)
        entries = _list(document["entries"], "entries", MAX_OPERATIONS)
        numbers = [_record_id(entry) for entry in entries]
    except (DumpError, KeyError):
        return None
    # A text of the job may look like the end of an entry.
    if numbers != [number for number, _ in found[first:]]:
        return None
    return [number for number, _ in found[:first]], document


def _document(content: bytes) -> Mapping[Any, Any]:
    """Return the dump's outermost dictionary."""
    if len(content) > MAX_DUMP_BYTES:
        raise DumpError(f"larger than {MAX_DUMP_BYTES} bytes")
    if not content:
        raise DumpError("empty: the rank ended while it wrote")
    if content.startswith(_PICKLE_BEGIN):
        try:
            document = load_plain(content)
        except PickleError as error:
            raise DumpError(str(error)) from error
    elif (text := content.removeprefix(_BYTE_ORDER_MARK)).lstrip()[:1] == b"{":
        if len(text) > MAX_JSON_BYTES:
            raise DumpError(f"larger than {MAX_JSON_BYTES} bytes of JSON")
        try:
            document = parse_json(text)
        except ValueError as error:
            raise DumpError(f"no JSON: {error}"[:MAX_TEXT]) from error
    else:
        raise NoDumpError("neither pickle nor JSON")
    if not isinstance(document, dict):
        raise NoDumpError("no dump of the Flight Recorder: no dictionary")
    return document


def _record_id(entry: Any) -> int:
    return _integer(_mapping(entry, "an entry").get("record_id"), "record_id")


def _is_launch(entry: Mapping[Any, Any]) -> bool:
    return _text(entry.get("profiling_name", "")).endswith(_LAUNCH)


class _Signature(NamedTuple):
    """What an entry has in common with all others that do the same."""

    library: str
    communicator: str
    description: str
    operation: str
    is_p2p: bool
    sender: int | None
    receiver: int | None
    input_sizes: Shapes
    output_sizes: Shapes
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    n_bytes: int | None
    # Sizes and types: a pickle may share them among many operations.
    n_values: int


class _Signatures:
    """Reads what an entry does, of those that do the same once.

    Parameters
    ----------
    by_text
        Whether entries are compared by their text. Not those of a pickle: it may name one list
        within another again and again, and then the text has no end.
    """

    def __init__(self, *, by_text: bool) -> None:
        self._by_text = by_text
        self._known: dict[str, _Signature] = {}
        self._shapes: dict[int, Shapes] = {}

    def of(self, entry: Mapping[Any, Any]) -> _Signature:
        """Return what an entry does."""
        if not self._by_text:
            return self._read(entry)
        given = entry.get
        try:
            text = repr(
                (given("profiling_name"), given("process_group"), given("pg_id"), given("is_p2p"),
                 given("input_sizes"), given("output_sizes"), given("input_dtypes"),
                 given("output_dtypes"))
            )  # fmt: skip
        except RecursionError as error:
            raise DumpError("nested too deep") from error
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._read(entry)
        return found

    def _read(self, entry: Mapping[Any, Any]) -> _Signature:
        library, _, operation = _text(entry.get("profiling_name", "")).rpartition(":")
        name, description = _group_name(entry)
        peers = _PEERS.fullmatch(operation)
        sender = receiver = None
        if peers:
            operation, own, arrow, other = peers.groups()
            sender, receiver = (int(own), int(other)) if arrow == "->" else (int(other), int(own))
        inputs = _shapes(entry.get("input_sizes"), self._shapes)
        outputs = _shapes(entry.get("output_sizes"), self._shapes)
        input_types, output_types = (
            tuple(_text(t) for t in _list(entry.get(key) or [], key, MAX_TENSORS))
            for key in ("input_dtypes", "output_dtypes")
        )
        sizes = sum(len(held) + sum(map(len, held)) for held in (inputs, outputs))
        return _Signature(
            library=library, communicator=name, description=description, operation=operation,
            is_p2p=bool(entry.get("is_p2p", peers is not None)),
            sender=sender, receiver=receiver, input_sizes=inputs, output_sizes=outputs,
            input_dtypes=input_types, output_dtypes=output_types,
            n_bytes=_bytes(inputs, input_types) if inputs else _bytes(outputs, output_types),
            n_values=sizes + len(input_types) + len(output_types),
        )  # fmt: skip


def _operation(
    entry: Mapping[Any, Any], signature: _Signature, frames: dict[int, str]
) -> CollectiveOp:
    """Return an entry as an operation."""
    # Before version 2.0 there was one count of both.
    key = "p2p_seq_id" if signature.is_p2p else "collective_seq_id"
    sequence = entry.get(key, entry.get("seq_id"))
    started = _time(entry.get("time_discovered_started_ns"))
    completed = _time(entry.get("time_discovered_completed_ns"))
    state = _STATES.get(_text(entry.get("state", "")), CollectiveState.UNKNOWN)
    silent = signature.library == "gloo" and started is None and completed is None
    reason = None if completed is not None else _NOT_RECORDED if silent else _NOT_YET
    retired = entry.get("retired")
    return CollectiveOp(
        communicator=signature.communicator, operation=signature.operation,
        is_p2p=signature.is_p2p, sequence=_integer(sequence, "a sequence"),
        record_id=_record_id(entry), op_id=_optional(entry.get("op_id")),
        sender=signature.sender, receiver=signature.receiver,
        input_sizes=signature.input_sizes, output_sizes=signature.output_sizes,
        input_dtypes=signature.input_dtypes, output_dtypes=signature.output_dtypes,
        n_bytes=signature.n_bytes,
        launched_at=_time(entry.get("time_created_ns")), started_at=started,
        completed_at=completed, missing_reason=reason,
        # A gloo operation never leaves the state in which it began.
        state=CollectiveState.COMPLETED if silent and retired else state,
        retired=retired if isinstance(retired, bool) else None,
        timeout_ms=_optional(entry.get("timeout_ms")), stack=_stack(entry.get("frames"), frames),
    )  # fmt: skip


def _with_coalesced(operations: Sequence[CollectiveOp]) -> list[CollectiveOp]:
    """Give the members of a coalesced launch its state, and leave the launch itself out."""
    launches = {
        (o.communicator, o.is_p2p, o.sequence): o for o in operations if o.operation == COALESCED
    }
    if not launches:
        return list(operations)
    found, covered = [], set[tuple[str, bool, int]]()
    for operation in operations:
        key = (operation.communicator, operation.is_p2p, operation.sequence)
        if key in launches and operation.operation != COALESCED:
            covered.add(key)
            found.append(_as_part_of(operation, launches[key]))
        elif key not in launches:
            found.append(operation)
    # One whose members the ring has lost stands for them.
    return found + [launch for key, launch in launches.items() if key not in covered]


def _as_part_of(operation: CollectiveOp, launch: CollectiveOp) -> CollectiveOp:
    return operation._replace(
        state=launch.state,
        started_at=launch.started_at,
        completed_at=launch.completed_at,
        missing_reason=launch.missing_reason,
        retired=launch.retired,
    )


def _group_name(entry: Mapping[Any, Any]) -> tuple[str, str]:
    """Return an entry's group: name and description."""
    group = entry.get("process_group")
    if isinstance(group, list | tuple) and len(group) >= 2:
        return _text(group[0]), _text(group[1])
    return (_text(group if isinstance(group, str) else entry.get("pg_id", "")), "")


def _groups(
    document: Mapping[Any, Any], described: dict[str, str], *, with_members: bool
) -> tuple[CommunicatorProgress, ...]:
    """Return each group of the dump, with its members where the dump names them.

    Parameters
    ----------
    described
        Descriptions of groups with operations by name; gets those of the others.
    """
    members: dict[str, tuple[int, ...] | None] = dict.fromkeys(described)
    config = _mapping(document.get("pg_config") or {}, "pg_config")
    if len(config) > MAX_GROUPS:
        raise DumpError(f"pg_config has more than {MAX_GROUPS:,} groups")
    # By identity: a pickle may name one list for many groups.
    expanded: dict[int, tuple[int, ...] | None] = {}
    total = 0
    for key, value in config.items():
        held = _mapping(value, "a group")
        name = _text(held.get("name", key))
        if with_members and name:
            ranks = held.get("ranks")
            if id(ranks) not in expanded:
                expanded[id(ranks)] = _ranks(ranks)
            members[name] = expanded[id(ranks)]
            total += len(expanded[id(ranks)] or ())
            if total > MAX_MEMBERS:
                raise DumpError(f"pg_config names more than {MAX_MEMBERS:,} ranks")
            described.setdefault(name, _text(held.get("desc", "")))
    return tuple(
        CommunicatorProgress(communicator=name, description=described[name], ranks=members[name])
        for name in sorted(members)
    )


def _rank(
    document: Mapping[Any, Any],
    groups: Sequence[CommunicatorProgress],
    operations: Sequence[CollectiveOp],
    *,
    name: str,
    warnings: list[str],
) -> int:
    """Return the rank: from the content, else from the file's name."""
    file = PurePath(name).name
    stated_in = [*_RANK_NUMBER.findall(file)[-1:], *_LAST_NUMBER.findall(_ENDING.sub("", file))]
    named = int(stated_in[0]) if stated_in and len(stated_in[0]) <= 7 else None
    if named is not None and named >= MAX_RANKS:
        named = None
    for key in ("rank", "global_rank"):
        if (stated := document.get(key)) is not None:
            return _rank_number(stated)
    possible = _possible_ranks(groups, operations)
    if possible is not None and len(possible) == 1:
        (stated,) = possible
        if named is not None and named != stated:
            warnings.append(
                f"its name says rank {named}, but its groups are those of rank {stated}"
            )
        return stated
    if named is None:
        raise DumpError(
            "which rank's it is cannot be told: its name holds no number after `rank` "
            "nor at its end, and its groups do not tell"
        )
    if possible is not None and named not in possible:
        raise DumpError(
            f"which rank's it is cannot be told: its name says rank {named}, which is in none of "
            "the groups that it recorded"
        )
    return named


def _possible_ranks(
    groups: Sequence[CommunicatorProgress], operations: Sequence[CollectiveOp]
) -> set[int] | None:
    """Return which ranks are in all groups of a dump; None if none is known.

    Tensor- and data-parallel groups have one rank in common; so have a group, and a rank's
    own place in it, which names of point-to-point operations tell.
    """
    known = {g.communicator: g.ranks for g in groups if g.ranks}
    sets = [set(ranks) for ranks in known.values()]
    for operation in operations:
        ranks = known.get(operation.communicator)
        own = operation.sender if operation.operation == "send" else operation.receiver
        if ranks and own is not None and own < len(ranks):
            sets.append({ranks[own]})
            break
    return set.intersection(*sets) if sets else None


def _ranks(value: Any) -> tuple[int, ...] | None:
    """Return the ranks of a group: a list, or a text of one."""
    if isinstance(value, str):
        if len(value) > 10 * MAX_RANKS:
            raise DumpError("a group names too many ranks")
        try:
            value = parse_json(value)
        except ValueError:
            return None
    if not isinstance(value, list):
        return None
    return tuple(_rank_number(rank) for rank in _list(value, "ranks", MAX_RANKS))


def _rank_number(value: Any) -> int:
    if not 0 <= (rank := _integer(value, "a rank")) < MAX_RANKS:
        raise DumpError(f"rank {rank} is not one of a job")
    return rank


def _shapes(value: Any, known: dict[int, Shapes]) -> Shapes:
    """Return the sizes of tensors; `known` holds them by identity: a pickle may name one often."""
    if (found := known.get(id(value))) is None:
        found = known[id(value)] = tuple(
            tuple(_integer(d, "a size") for d in _list(shape, "a shape", MAX_DIMENSIONS))
            for shape in _list(value or [], "sizes", MAX_TENSORS)
        )
    return found


def _bytes(shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> int | None:
    """Return the bytes of tensors; None if there are none or the width of one is not known."""
    if not shapes or len(shapes) != len(dtypes):
        return None
    total = 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        if (width := _WIDTHS.get(dtype)) is None:
            return None
        for dimension in shape:
            width *= dimension
        total += width
    return total


def _stack(value: Any, known: dict[int, str]) -> tuple[str, ...]:
    """Return frames as `function at file:line`, innermost first.

    `known` holds the texts of frames by identity: a pickle names each frame once.
    """
    found = []
    for frame in _list(value or [], "frames", MAX_OPERATIONS)[:MAX_FRAMES]:
        if (text := known.get(id(frame))) is None:
            held = _mapping(frame, "a frame")
            name, file = _text(held.get("name", "")), _text(held.get("filename", ""))
            text = known[id(frame)] = f"{name} at {file}:{_text(held.get('line', ''))}"
        found.append(text)
    return tuple(found)


def _time(value: Any) -> int | None:
    """Return microseconds of a time in nanoseconds; None where 0 or null stand for none."""
    return None if value is None or value == 0 else _integer(value, "a time") // 1000


def _optional(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _integer(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise DumpError(f"{what} is no integer")
    return value


def _text(value: Any) -> str:
    """Return a text that cannot steer a terminal."""
    if isinstance(value, bytes):
        raise DumpError("bytes where a text was to be")
    text = str(value)[:MAX_TEXT] if isinstance(value, str | int | float) else ""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _list(value: Any, what: str, limit: int) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise DumpError(f"{what} is no list")
    if len(value) > limit:
        raise DumpError(f"{what} has more than {limit:,} items")
    return value


def _mapping(value: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise DumpError(f"{what} is no dictionary")
    return value
