"""Reads what NCCL's RAS subsystem answers, as JSON (NCCL 2.28.7 and later).

The format is that of docs/userguide/source/troubleshooting/ras.rst of github.com/NVIDIA/nccl. RAS
counts what each rank launched, by function, and says which ranks it cannot reach. It does not say
what is done, when anything was, or how large: this is evidence beside other sources, and alone it
shows no hang. As in the Inspector's log each function of a communicator is a communicator here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from probers.collectives.flight_recorder import Dump
from probers.collectives.nccl_names import operation_name, plain_text, text_of
from schemas.bounds import MAX_LONG, MAX_RANK
from schemas.enums import CollectiveState
from schemas.process.files import parse_json
from schemas.records import CollectiveOp, CollectiveSnapshot, CommunicatorProgress

LIBRARY: Final = "nccl"
# 500 bytes for each rank of a communicator: 4,000 ranks in four each. JSON of empty objects takes
# 24 times its size, 200 MB: opened one at a time, and with the largest dump beside it, which takes
# half a gigabyte, that is less than the 768 MiB that the collector is given.
MAX_ANSWER_BYTES: Final = 8 * 2**20
MAX_COMMUNICATORS: Final = 65_536
MAX_MEMBERS: Final = 4 * (MAX_RANK + 1)
MAX_FUNCTIONS: Final = 64
# Communicators of one rank that are told.
MAX_OWN: Final = 1_024
LAUNCHED_ONLY: Final = "RAS counts what was launched, not what is done"


class RasError(ValueError):
    """An answer that is none of RAS, or damaged; the message says why."""


@dataclass(frozen=True, slots=True)
class RasRank:
    """A rank of a communicator that answered: its number in it, its process, what it launched."""

    rank: int
    host: str
    pid: int
    async_error: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RasMissing:
    """A rank that did not answer. `dead`: RAS has given it up."""

    rank: int
    host: str
    pid: int
    unresponsive: bool
    dead: bool


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    """A communicator."""

    name: str
    size: int
    ranks: tuple[RasRank, ...]
    missing: tuple[RasMissing, ...]


@dataclass(frozen=True, slots=True)
class RasStatus:
    """An answer of RAS."""

    version: str
    communicators: tuple[RasCommunicator, ...]


def parse_status(content: bytes) -> RasStatus:
    """Return what RAS answers.

    Raises
    ------
    RasError
        If it is no answer in JSON, or its numbers cannot be.
    """
    if len(content) > MAX_ANSWER_BYTES:
        raise RasError(f"an answer longer than {MAX_ANSWER_BYTES} bytes")
    try:
        document = parse_json(content)
    except ValueError as error:
        raise RasError("an answer that is no JSON, or cut short") from error
    if not isinstance(document, dict) or "communicators" not in document:
        raise RasError("an answer without communicators")
    found, members = [], 0
    for held in _list(document["communicators"], MAX_COMMUNICATORS):
        communicator = _communicator(held)
        members += len(communicator.ranks) + len(communicator.missing)
        if members > MAX_MEMBERS:
            raise RasError(f"an answer with more than {MAX_MEMBERS:,} ranks")
        found.append(communicator)
    return RasStatus(text_of(document.get("nccl_version")), tuple(found))


def _communicator(held: Any) -> RasCommunicator:
    size = _number(held, "size", MAX_RANK + 1)
    name = text_of(_value(held, "hash"))
    if not name:
        raise RasError("an answer with a communicator without a hash")
    return RasCommunicator(
        name,
        size,
        tuple(
            RasRank(
                _number(rank, "rank", size - 1), text_of(_value(rank, "host")), _pid(rank),
                _error(_value(rank, "status")), _counts(_value(rank, "collective_counts")),
            )
            for rank in _list(_value(held, "ranks"), size)
        ),
        tuple(
            RasMissing(
                _number(rank, "rank", size - 1), text_of(_value(rank, "host")), _pid(rank),
                _value(_value(rank, "status"), "unresponsive") is True,
                _value(_value(rank, "status"), "considered_dead") is True,
            )
            for rank in _list(_value(held, "missing_ranks"), size)
        ),
    )  # fmt: skip


def _counts(held: Any) -> Mapping[str, int]:
    if not isinstance(held, dict) or len(held) > MAX_FUNCTIONS:
        raise RasError("an answer without counts of a rank")
    return {text_of(func): _number(held, func, MAX_LONG) for func in held}


@dataclass(slots=True)
class RasCounts:
    """What RAS said of one rank so far: counts that rose are operations that were launched."""

    rank: int
    world_size: int | None
    _next: int = 0
    _first: int = 0
    _counts: dict[str, tuple[str, int]] = field(default_factory=dict)

    def take(self, status: RasStatus, *, pid: int, asked_at: int) -> Dump | None:
        """Return what an answer says of the rank, in the form in which a recorder's is told.

        Parameters
        ----------
        pid
            Of its process, as that sees itself.
        asked_at
            Microseconds since the epoch.

        Returns
        -------
        Dump or None
            The last operation of each function and communicator. None: the rank is not in the
            answer, or cannot be told from others.
        """
        own = list(self._own(status, pid))
        if not own:
            return None
        groups, counts = [], {}
        for communicator, held in own[:MAX_OWN]:
            is_world = communicator.size == self.world_size and held.rank == self.rank
            for func, count in sorted(held.counts.items()):
                if count == 0:
                    continue
                operation = operation_name(func)
                name = f"{communicator.name}/{operation}"
                members = tuple(range(communicator.size)) if is_world else None
                groups.append(
                    CommunicatorProgress(communicator=name, description="", ranks=members)
                )
                counts[name] = operation, count
        if counts != self._counts:
            # All are told anew: what was counted before is superseded, and whether it is done
            # nobody knows.
            self._counts, self._first = counts, self._next
            self._next += len(counts)
        operations = tuple(
            _launched(name, operation, count, self._first + place)
            for place, (name, (operation, count)) in enumerate(counts.items())
        )
        snapshot = CollectiveSnapshot(
            rank=self.rank, source="", library=LIBRARY, version=status.version,
            taken_at=asked_at, taken_at_missing_reason=None,
            dropped_before=self._first, communicators=tuple(groups), operations=operations,
        )  # fmt: skip
        return Dump(snapshot, (), self._next - 1)

    def _own(self, status: RasStatus, pid: int) -> Iterator[tuple[RasCommunicator, RasRank]]:
        """Yield the rank in each of its communicators.

        Numbers of processes are those of their containers, and come again on other hosts. In the
        job's own communicator the rank's number tells which one it is; else there must be one only.
        """
        alike = {
            (held.host, held.pid)
            for communicator in status.communicators
            for held in communicator.ranks
            if held.pid == pid
        }
        certain = {
            (held.host, held.pid)
            for communicator in status.communicators
            if communicator.size == self.world_size
            for held in communicator.ranks
            if held.pid == pid and held.rank == self.rank
        }
        chosen = certain or alike
        if len(chosen) != 1:
            return
        seen = set[str]()
        for communicator in status.communicators:
            for held in communicator.ranks:
                if (held.host, held.pid) in chosen and communicator.name not in seen:
                    seen.add(communicator.name)
                    yield communicator, held


def troubles(status: RasStatus) -> list[str]:
    """Return what is out of order in an answer, for people: ranks that are missing, or failed."""
    found = []
    for communicator in status.communicators:
        dead = [m.rank for m in communicator.missing if m.dead]
        silent = [m.rank for m in communicator.missing if m.unresponsive and not m.dead]
        # The result of a call that goes on is 7, as while a communicator is made.
        failed = [r.rank for r in communicator.ranks if r.async_error not in {0, 7}]
        for what, ranks in (("dead", dead), ("silent", silent), ("failed", failed)):
            if ranks:
                found.append(f"{communicator.name}: {what} {_some(ranks)}")
    return found


def _launched(name: str, operation: str, count: int, number: int) -> CollectiveOp:
    return CollectiveOp(
        communicator=name, operation=operation, sequence=count - 1, is_p2p=False,
        record_id=number, op_id=None, sender=None, receiver=None, input_sizes=(), output_sizes=(),
        input_dtypes=(), output_dtypes=(), n_bytes=None, launched_at=None, started_at=None,
        completed_at=None, missing_reason=LAUNCHED_ONLY, state=CollectiveState.UNKNOWN,
        retired=None, timeout_ms=None, stack=(),
    )  # fmt: skip


def _some(ranks: Sequence[int], most: int = 10) -> str:
    named = ", ".join(map(str, sorted(ranks)[:most]))
    return named if len(ranks) <= most else f"{named} and {len(ranks) - most} more"


def _value(held: Any, name: str) -> Any:
    if not isinstance(held, dict):
        raise RasError("an answer with something else than objects")
    return held.get(name)


def _error(status: Any) -> int:
    value = _value(status, "async_error")
    plain = isinstance(value, int) and not isinstance(value, bool)
    return value if plain and 0 <= value <= MAX_LONG else 0


def _pid(held: Any) -> int:
    """Return the number of a rank's process; -1: RAS does not know it."""
    value = _value(held, "pid")
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= 2**32:
        raise RasError("an answer whose pid is none")
    return value


def _number(held: Any, name: str, most: int) -> int:
    value = _value(held, name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise RasError(f"an answer whose {plain_text(name)} is none")
    return value


def _list(value: Any, most: int) -> Iterable[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise RasError("an answer with no list, or one that is too long")
    return value
