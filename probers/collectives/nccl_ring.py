"""Reads the file that the profiler plugin for NCCL writes for each process.

The layout is that of `nccl_plugin/ring_layout.h`. The file belongs to a job's user, who may write
anything into it, at any time: whatever is read is checked, and the work is bounded by the layout.
A reader takes sequences, operations, and sequences again: an operation whose sequence is the same
and even was not written meanwhile.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from probers.collectives.flight_recorder import Dump
from probers.collectives.nccl_names import operation_name, plain_text, type_name, width_of
from schemas.bounds import MAX_LONG, MAX_RANK, MAX_TIME_US
from schemas.enums import CollectiveState
from schemas.records import (
    CollectiveOp,
    CollectiveSnapshot,
    CommunicatorProgress,
    RankSocket,
)
from schemas.units import US_NS

MAGIC: Final = int.from_bytes(b"SKHUNTNR", "little")
LAYOUT_VERSION: Final = 1
HEADER_BYTES: Final = 4096
LIBRARY: Final = "nccl"
PROTOCOL: Final = "nccl"
# Far above what the plugin makes (2,048, 512, 2,048), and still quick to read.
MAX_OPERATIONS: Final = 65_536
MAX_COMMUNICATORS: Final = 4_096
MAX_CHANNELS: Final = 16_384
# NCCL numbers channels up to 64; a count beyond was not set.
MOST_CHANNELS_EACH: Final = 64
NOT_YET: Final = "not seen to happen"
LATER_ONE_DONE: Final = "a later one of its communicator is done"

_HEADER: Final = struct.Struct("=Q8I11Q")
_OPERATION: Final = struct.Struct("=8Q4IiIHB5x16s16s16s16s32x")
_COMMUNICATOR: Final = struct.Struct("=QQIIIIQQQQ64s")
_CHANNEL: Final = struct.Struct("=13Q24x")
_WORD: Final = struct.Struct("=Q")
_IN_USE: Final = 1 << 63

# Reads so many bytes at a place of the file; fewer if it ends before.
Read = Callable[[int, int], bytes]


class RingError(ValueError):
    """A file that is no ring of a known layout, or a damaged one; the message says why."""


@dataclass(frozen=True, slots=True)
class RingHeader:
    """What stands at the beginning of a ring: its extents, whose it is, what was lost."""

    operations: int
    communicators: int
    channels: int
    pid: int
    created_ns: int
    api_version: int
    next_operation: int
    used_communicators: int
    used_channels: int
    lost_communicators: int
    lost_channels: int
    lost_events: int
    foreign_events: int

    @property
    def sequences_at(self) -> int:
        """Where the sequences begin."""
        return HEADER_BYTES

    @property
    def operations_at(self) -> int:
        """Where the operations begin."""
        return self.sequences_at + self.operations * _WORD.size

    @property
    def communicators_at(self) -> int:
        """Where the communicators begin."""
        return self.operations_at + self.operations * _OPERATION.size

    @property
    def keys_at(self) -> int:
        """Where the keys of channels begin."""
        return self.communicators_at + self.communicators * _COMMUNICATOR.size

    @property
    def channels_at(self) -> int:
        """Where the channels begin."""
        return self.keys_at + self.channels * _WORD.size


class _Communicator(NamedTuple):
    name: str
    description: str
    ranks: int
    rank: int


@dataclass(frozen=True, slots=True)
class RingReading:
    """A look at a ring.

    Attributes
    ----------
    dump
        Operations and communicators, in the form in which a recorder's are told.
    flows
        Traffic over each channel with each peer.
    lost
        Events, communicators and channels that found no place.
    """

    dump: Dump
    flows: tuple[RankSocket, ...]
    lost: int


def parse_header(content: bytes) -> RingHeader:
    """Return what the beginning of a ring says.

    Raises
    ------
    RingError
        If it is none of this layout, or its numbers cannot be.
    """
    if len(content) < HEADER_BYTES:
        raise RingError("no ring: too short")
    (magic, version, header_bytes, operations, operation_bytes, communicators, communicator_bytes,
     channels, channel_bytes, pid, _, created_ns, api, next_operation, used, used_channels,
     lost_communicators, lost_channels, lost_events, foreign,
    ) = _HEADER.unpack_from(content)  # fmt: skip
    if magic != MAGIC:
        raise RingError("no ring, or not written yet")
    if version != LAYOUT_VERSION:
        raise RingError(f"a ring of layout {version}: {LAYOUT_VERSION} is known")
    sizes = header_bytes, operation_bytes, communicator_bytes, channel_bytes
    known = HEADER_BYTES, _OPERATION.size, _COMMUNICATOR.size, _CHANNEL.size
    fits = (
        sizes == known
        and 0 < operations <= MAX_OPERATIONS
        and 0 < communicators <= MAX_COMMUNICATORS
        and 0 < channels <= MAX_CHANNELS
        and used <= communicators
        and next_operation <= MAX_LONG // 4
    )
    if not fits:
        raise RingError("a damaged ring: its header's numbers cannot be")
    return RingHeader(
        operations, communicators, channels, pid, created_ns, api, next_operation, used,
        used_channels, lost_communicators, lost_channels, lost_events, foreign,
    )  # fmt: skip


class RingReader:
    """Reads one ring again and again: each operation until it is done.

    Parameters
    ----------
    rank, world_size
        Of the process, as its environment says: a communicator of so many ranks in which it has
        the same number is the job's, and its members are known.
    """

    def __init__(self, rank: int, world_size: int | None) -> None:
        self._rank = rank
        self._world_size = world_size
        self._created_ns: int | None = None
        self._start_anew()

    def _start_anew(self) -> None:
        # The number after the last that was read, and those before it that are not done.
        self._next = 0
        self._pending: set[int] = set()
        # By communicator: up to which sequence its collectives are done.
        self._done: dict[str, int] = {}
        # Which places of channels are in use, with their keys.
        self._used_channels: int | None = None
        self._places: dict[int, int] = {}

    def look(self, read: Read, *, now_us: int) -> RingReading:
        """Return what the ring holds that was not done at the last look.

        Parameters
        ----------
        now_us
            When this is, by the host's clock: what was written until then is known.

        Raises
        ------
        RingError
            If it is no ring, or a damaged one.
        """
        header = parse_header(read(0, HEADER_BYTES))
        if header.created_ns != self._created_ns:
            self._created_ns = header.created_ns
            self._start_anew()
        groups = self._communicators(read, header)
        # Names that a ring no longer has are not kept: whoever writes it may make up new ones.
        self._done = {g.name: self._done[g.name] for g in groups if g and g.name in self._done}
        found, lost_before = self._operations(read, header, groups)
        lost = header.lost_events + header.lost_communicators + header.lost_channels
        snapshot = CollectiveSnapshot(
            rank=self._rank, source="", library=LIBRARY, version=f"v{header.api_version}",
            taken_at=now_us, taken_at_missing_reason=None, dropped_before=lost_before,
            communicators=tuple(
                CommunicatorProgress(
                    communicator=group.name, description=group.description,
                    ranks=tuple(range(group.ranks)) if self._is_world(group) else None,
                )
                for group in {g.name: g for g in groups if g is not None}.values()
            ),
            operations=found,
        )  # fmt: skip
        flows = tuple(self._flows(read, header, groups, now_us))
        return RingReading(Dump(snapshot, (), self._next - 1), flows, min(lost, MAX_LONG))

    def _is_world(self, group: _Communicator) -> bool:
        return group.ranks == self._world_size and group.rank == self._rank

    def _communicators(self, read: Read, header: RingHeader) -> list[_Communicator | None]:
        content = read(header.communicators_at, header.used_communicators * _COMMUNICATOR.size)
        if len(content) != header.used_communicators * _COMMUNICATOR.size:
            raise RingError("a ring that ends too early")
        found: list[_Communicator | None] = []
        for values in _COMMUNICATOR.iter_unpack(content):
            valid, held, ranks, rank, name = values[0], values[1], values[2], values[3], values[10]
            if valid != 1:
                found.append(None)
                continue
            if not rank < ranks <= MAX_RANK + 1:
                raise RingError("a damaged ring: a communicator's ranks cannot be")
            found.append(_Communicator(f"0x{held:x}", _text(name), ranks, rank))
        return found

    def _operations(
        self, read: Read, header: RingHeader, groups: list[_Communicator | None]
    ) -> tuple[tuple[CollectiveOp, ...], int]:
        """Return the operations that are new or were not done, and the number of the first kept."""
        lost_before = max(0, header.next_operation - header.operations)
        first = max(lost_before, min(self._pending, default=self._next))
        count = max(0, header.next_operation - first)
        before = self._sequences(read, header, first, count)
        size = _OPERATION.size
        content = b"".join(
            _exactly(read, header.operations_at + begin * size, length * size)
            for begin, length in _parts(header, first, count)
        )
        after = self._sequences(read, header, first, count)
        wanted = sorted(n for n in self._pending if first <= n < first + count)
        standing = []
        for number in [*wanted, *range(max(first, self._next), first + count)]:
            place = number - first
            if before[place] == after[place] == 2 * number + 2:
                standing.append(number)
            elif max(before[place], after[place]) > 2 * number + 2:
                # A later one has its place.
                lost_before = number + 1
            elif number >= self._next:
                # It is being written: those behind it wait for the next look, in order.
                break
            self._next = max(self._next, number + 1)
        # None that is lost may be waited for, and what was before one that is lost is lost, too.
        found = [
            _operation(number, content, (number - first) * size, groups)
            for number in standing
            if number >= lost_before
        ]
        for operation in found:
            if operation.state is CollectiveState.COMPLETED and not operation.is_p2p:
                name = operation.communicator
                self._done[name] = max(self._done.get(name, -1), operation.sequence)
        told = tuple(map(self._with_order, found))
        self._pending = {o.record_id for o in told if o.state is not CollectiveState.COMPLETED}
        return told, lost_before

    def _with_order(self, operation: CollectiveOp) -> CollectiveOp:
        """Return an operation as done if a later one of its communicator is.

        NCCL runs a communicator's collectives one after the other. One whose channels nobody
        reported, as in a communicator of one rank, would be waited for without end.
        """
        waits = operation.state is not CollectiveState.COMPLETED and not operation.is_p2p
        if waits and operation.sequence < self._done.get(operation.communicator, -1):
            return _completed(operation)
        return operation

    @staticmethod
    def _sequences(read: Read, header: RingHeader, first: int, count: int) -> list[int]:
        found: list[int] = []
        for begin, length in _parts(header, first, count):
            at = header.sequences_at + begin * _WORD.size
            found += (value for (value,) in _WORD.iter_unpack(_exactly(read, at, length * 8)))
        return found

    def _flows(
        self, read: Read, header: RingHeader, groups: list[_Communicator | None], now_us: int
    ) -> Iterator[RankSocket]:
        """Yield all channels: that nothing is on any is evidence, too."""
        if header.used_channels != self._used_channels:
            self._used_channels = header.used_channels
            keys = _exactly(read, header.keys_at, header.channels * _WORD.size)
            self._places = {
                place: key for place, (key,) in enumerate(_WORD.iter_unpack(keys)) if key & _IN_USE
            }
        for place, key in self._places.items():
            if place >= header.channels:
                continue
            number = key >> 48 & 0x7FFF
            group = groups[number] if number < len(groups) else None
            channel, peer = key >> 32 & 0xFFFF, key & 0xFFFF_FFFF
            if group is None or peer >= group.ranks:
                continue
            content = _exactly(read, header.channels_at + place * _CHANNEL.size, _CHANNEL.size)
            values = _CHANNEL.unpack(content)
            if max(values) > MAX_LONG:
                raise RingError("a damaged ring: a channel's count is beyond all bounds")
            yield self._flow(group, channel, peer, values, now_us)

    def _flow(
        self, group: _Communicator, channel: int, peer: int, values: tuple[int, ...], now_us: int
    ) -> RankSocket:
        (_, ready, sent, _, sent_bytes, done_bytes, _, _, _, arrived_bytes, consumed_bytes,
         waits_since_ns, chunk_bytes) = values  # fmt: skip
        unacked = max(0, sent_bytes - done_bytes)
        stalled_ns = now_us * US_NS - waits_since_ns if waits_since_ns and unacked else 0
        return RankSocket(
            protocol=PROTOCOL,
            local_address=f"{group.name}/{group.rank}", local_port=channel,
            peer_address=f"{group.name}/{peer}", peer_port=channel,
            peer_rank=peer if self._is_world(group) else None,
            # How large a chunk is that waits is known once it is sent.
            queued_bytes=min(max(0, ready - sent) * chunk_bytes, MAX_LONG),
            unacked_bytes=unacked, unread_bytes=max(0, arrived_bytes - consumed_bytes),
            sent_bytes=sent_bytes, acked_bytes=done_bytes, received_bytes=arrived_bytes,
            retransmits=None, rtt_ns=None, backoff=None, stalled_ns=max(0, stalled_ns),
        )  # fmt: skip


def _parts(header: RingHeader, first: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield the places of so many operations: begin and length; the ring may end in between."""
    begin = first % header.operations
    whole = min(count, header.operations)
    until_end = min(whole, header.operations - begin)
    if until_end:
        yield begin, until_end
    if whole > until_end:
        yield 0, whole - until_end


def _exactly(read: Read, at: int, length: int) -> bytes:
    content = read(at, length)
    if len(content) != length:
        raise RingError("a ring that ends too early")
    return content


def _operation(
    number: int, content: bytes, at: int, groups: list[_Communicator | None]
) -> CollectiveOp:
    """Return an operation of a ring, from a place in its content.

    Raises
    ------
    RingError
        If it belongs to no communicator, or its numbers cannot be.
    """
    (held, sequence, nccl_sequence, count, launched_ns, _, started_ns, ended_ns,
     kernels_started, kernels_ended, proxies_started, proxies_ended, peer, place, channels,
     is_p2p, func, datatype, _, _) = _OPERATION.unpack_from(content, at)  # fmt: skip
    group = groups[place] if place < len(groups) else None
    if group is None or group.name != f"0x{held:x}":
        raise RingError("a damaged ring: an operation of no communicator")
    times = launched_ns // US_NS, started_ns // US_NS, ended_ns // US_NS
    if max(sequence, nccl_sequence, count) > MAX_LONG // 16 or max(times) > MAX_TIME_US:
        raise RingError("a damaged ring: an operation's numbers are beyond all bounds")
    if is_p2p and not 0 <= peer < group.ranks:
        raise RingError("a damaged ring: an operation's peer is none of its communicator")
    launched_at, started_at, ended_at = times
    wanted = channels if 0 < channels <= MOST_CHANNELS_EACH else 1
    by_kernels = kernels_ended >= wanted and kernels_ended == kernels_started
    by_proxies = kernels_started == 0 and 0 < proxies_started == proxies_ended
    done = by_kernels or by_proxies
    operation, datatype = operation_name(_text(func)), type_name(_text(datatype))
    sizes, types = ((count,),), (datatype,)
    receives = operation == "recv"
    width = width_of(datatype)
    sender, receiver = (peer, group.rank) if receives else (group.rank, peer)
    state = CollectiveState.STARTED if started_at else CollectiveState.SCHEDULED
    return CollectiveOp(
        communicator=group.name, operation=operation, sequence=sequence, is_p2p=bool(is_p2p),
        record_id=number, op_id=nccl_sequence,
        sender=sender if is_p2p else None, receiver=receiver if is_p2p else None,
        input_sizes=() if receives else sizes, output_sizes=sizes if receives else (),
        input_dtypes=() if receives else types, output_dtypes=types if receives else (),
        n_bytes=None if width is None else count * width,
        launched_at=launched_at, started_at=started_at or None,
        completed_at=ended_at if done else None, missing_reason=None if done else NOT_YET,
        state=CollectiveState.COMPLETED if done else state,
        retired=None, timeout_ms=None, stack=(),
    )  # fmt: skip


def _completed(operation: CollectiveOp) -> CollectiveOp:
    return operation._replace(state=CollectiveState.COMPLETED, missing_reason=LATER_ONE_DONE)


# A job has a few names, which stand in each operation.
@lru_cache(maxsize=1_024)
def _text(content: bytes) -> str:
    """Return a text that cannot steer a terminal."""
    return plain_text(content.split(b"\0", 1)[0].decode("utf-8", "replace"))
