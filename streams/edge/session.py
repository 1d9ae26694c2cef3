"""One partition while this worker owns it: its machine, its place in the log, what is published.

`Restorer` rebuilds it after a change of owner.

Exactly once, without transactions
----------------------------------
Outputs of source partition p go to partition p of the output topics, in an order
that the source log alone decides. They are confirmed by the broker before the
source offset is committed, and the commit says how far the output partitions
were then (`streams.core.checkpoint`). So after any crash the records beyond that
place are a beginning of what the machine makes of the rounds from the committed
offset on. The next owner of the partition reads them first, and leaves out what
is there already, recognised by its identity. Every reader sees every output
once, whatever its isolation level.

The former owner cannot write in between: it gives up what is not confirmed before its
session ends (`streams.edge.publisher`), and only then does the broker give the partition
away. On an orderly handover it has drained its queue. Two gaps remain. The process may be
stopped after it checked its session and before it sends. Or the network separates it from
the coordinator only, in the second in which the session ends.

One thing more: a broker that stands still for longer than an output may wait, and
comes back before the publisher's thread has given up what was sent later, may be
given that without the earlier. Then what is found has gaps, and the new owner writes
what is missing behind it. Each is still there once: nothing is committed before all
that was found has been made again (`streams.edge.session`). But not in order, and whoever
restarts within the look-back after that may take an anomaly for open that is not.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from confluent_kafka import Message

from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.enums import AnomalyState
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from schemas.topics import Topic
from schemas.units import MS_NS, SECOND_NS
from streams.config import REFRESH_STEP_NS, DetectionConfig
from streams.core.anchors import Anchor, agents_horizon_ns
from streams.core.checkpoint import Checkpoint
from streams.core.clock import ClockState
from streams.core.feed import Feed
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output, window_identity
from streams.core.partition import Identity
from streams.core.published import KernelReader
from streams.edge.earlier import Background, Beat, EarlierWindows, nothing
from streams.edge.lookback import LogReader


class LoggedOutput(NamedTuple):
    """An output that a predecessor published beyond the checkpoint; `at_ms`: its timestamp."""

    identity: str
    at_ms: int
    offset: int


@dataclass(slots=True)
class LoggedOutputs:
    """Outputs in the log beyond the checkpoint, which reprocessing the rounds produces again.

    Attributes
    ----------
    rounds_end
        End of the partition of rounds: a predecessor has seen none beyond.
    last_ms
        Latest timestamp of the outputs.
    """

    rounds_end: int = 0
    last_ms: int = 0
    _offsets: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, outputs: Iterable[LoggedOutput]) -> "LoggedOutputs":
        """Return the outputs by identity; the caller sets `rounds_end`."""
        logged = cls()
        for output in outputs:
            logged._offsets.setdefault(output.identity, []).append(output.offset)
            logged.last_ms = max(logged.last_ms, output.at_ms)
        return logged

    def __len__(self) -> int:
        return len(self._offsets)

    def remove(self, identity: str) -> int | None:
        """Remove an output that was produced again; return its offset, None if it is not logged."""
        offsets = self._offsets.get(identity)
        if not offsets:
            return None
        offset = offsets.pop(0)
        if not offsets:
            del self._offsets[identity]
        return offset

    def give_up(self, next_offset: int, arrival_ns: int) -> int:
        """Forget outputs that will never be produced again; return how many.

        Other settings or another version wrote them, for instance. What is produced of a round is
        not in the log before the round.

        Parameters
        ----------
        next_offset, arrival_ns
            How far the session is in the log of rounds.
        """
        late = arrival_ns > self.last_ms * MS_NS + REFRESH_STEP_NS
        if not late and next_offset < self.rounds_end:
            return 0
        gone, self._offsets = len(self._offsets), {}
        return gone


# Rounds of the look-back that go through the kernels together.
WARMED_AT_ONCE = 512
# Clocks of a cluster's brokers differ by less.
BROKERS_APART_NS = 60 * SECOND_NS
# The topics whose ends a checkpoint holds.
WINDOWS, ANOMALIES = topics.PROBE_WINDOW.name, topics.ANOMALY.name


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """Where a session stood after some batch, to be committed when its outputs are confirmed.

    Attributes
    ----------
    reached
        By topic, the end of the session's output partition as far as outputs of that batch are
        confirmed: what later ones have sent is not in it.
    """

    session: "Session"
    offset: int
    lookback: Anchor
    closed_ns: int
    reached: dict[str, int]

    def settle(self) -> None:
        """Let the session be committed up to here; all outputs until then are confirmed."""
        before = self.session.settled
        self.session.settled = Checkpoint(
            offset=self.offset,
            lookback=self.lookback,
            closed_ns=self.closed_ns,
            window_ns=self.session.machine.config.window_ns,
            window_offset=max(before.window_offset, self.reached.get(WINDOWS, 0)),
            anomaly_offset=max(before.anomaly_offset, self.reached.get(ANOMALIES, 0)),
        )


@dataclass(slots=True)
class Session:
    """State of one partition.

    Attributes
    ----------
    epoch
        Number of the assignment; batches of an earlier one are stale.
    settled
        What can be committed: all outputs of earlier rounds are confirmed.
    logged
        Outputs of rounds from the committed offset on that a predecessor published. While there
        are any, nothing is committed.
    earlier
        Windows of the long-term test, to be read beside the work.
    committed
        Offset of the checkpoint that was committed last, negative: none.
    next_offset
        Next round to process.
    """

    partition: int
    epoch: int
    machine: PartitionMachine
    feed: Feed
    settled: Checkpoint
    logged: LoggedOutputs = field(default_factory=LoggedOutputs)
    earlier: EarlierWindows | None = None
    committed: int = -1
    next_offset: int = field(init=False)
    _reached: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Go on where everything is confirmed."""
        self.next_offset = self.settled.offset

    def give_up(self) -> None:
        """End what goes on beside: the partition is another's from now on."""
        if self.earlier is not None:
            self.earlier.cancel()

    def commit_point(self) -> CommitPoint | None:
        """Return where the session stands; later outputs belong to the next commit point.

        None while logged outputs are left: what was sent so far belongs to the next one, too.
        """
        if self.logged:
            return None
        reached, self._reached = self._reached, {}
        return CommitPoint(
            self, self.next_offset, self.machine.lookback, self.machine.closed_ns, reached
        )

    def confirmed(self, topic: Topic) -> Callable[[int], None]:
        """Return a callback that notes the offset of a confirmed output of this batch."""
        reached = self._reached

        def note(offset: int) -> None:
            reached[topic.name] = max(reached.get(topic.name, 0), offset + 1)

        return note

    def is_published(self, output: Output) -> bool:
        """Return whether a predecessor has published it; then it counts as confirmed."""
        offset = self.logged.remove(output.identity)
        if offset is None:
            return False
        self.confirmed(output.topic)(offset)
        return True

    def give_up_logged(self) -> int:
        """Forget logged outputs that will never be produced again; return how many."""
        machine = self.machine
        return self.logged.give_up(self.next_offset, machine.clock.arrival_ns or 0)


@dataclass(frozen=True, slots=True)
class Restorer:
    """Rebuilds sessions from the log.

    Attributes
    ----------
    background
        Reads the windows that a worker can begin without.
    waiting
        Is called while a machine waits for these, and may raise.
    """

    settings: KafkaSettings
    config: DetectionConfig
    codec: Codec
    log: EventLog
    background: Background = field(default_factory=Background)
    waiting: Beat = nothing

    def restore(
        self, reader: LogReader, partition: int, epoch: int, committed: tuple[int, str | None]
    ) -> Session:
        """Return the partition's session as it was at the committed offset.

        It still lacks the windows of `read_earlier`.

        Parameters
        ----------
        committed
            Offset (negative: none) and its metadata.

        Raises
        ------
        SessionLostError
            If the broker does not answer.
        """
        point = self._point(reader, partition, committed)
        # Windows of another length may have the results of those that are open now.
        floor_ns = 0 if point.window_ns == self.config.window_ns else point.closed_ns
        machine = PartitionMachine(
            self.config, Identity(self.settings.cluster, partition), point.lookback, floor_ns
        )
        feed = Feed(machine, self.codec)
        warmed = self._warm(reader, feed, point, partition)
        earlier = self._rebuild(reader, machine, point)
        logged = LoggedOutputs.of(self._published(reader, partition, point))
        if logged:
            logged.rounds_end = reader.bounds(self._name(topics.PROBE_ROUND), partition)[1]
        session = Session(
            partition=partition,
            epoch=epoch,
            machine=machine,
            feed=feed,
            settled=point,
            logged=logged,
            earlier=earlier if self.config.trend_ns else None,
            committed=point.offset if Checkpoint.parse(*committed) == point else -1,
        )
        self.log.info(
            "partition.restored",
            partition=partition,
            offset=point.offset,
            lookback_offset=point.lookback.offset,
            rounds_reread=warmed,
            open_anomalies=machine.open_anomalies,
            outputs_found=len(session.logged),
        )
        return session

    def _point(
        self, reader: LogReader, partition: int, committed: tuple[int, str | None]
    ) -> Checkpoint:
        """Return the checkpoint, a made one where none was committed by us."""
        low, high = reader.bounds(self._name(topics.PROBE_ROUND), partition)
        ends = {
            topic.name: reader.bounds(self._name(topic), partition)[1]
            for topic in (topics.PROBE_WINDOW, topics.ANOMALY)
        }
        offset, metadata = committed
        point = Checkpoint.parse(offset, metadata)
        if (
            point is not None
            and low <= point.offset <= high
            and point.window_offset <= ends[WINDOWS]
            and point.anomaly_offset <= ends[ANOMALIES]
        ):
            if point.lookback.offset < low:
                self.log.warning("lookback.truncated", partition=partition, first_offset=low)
            return point
        if offset >= 0:
            # Set by an operator's tool, by another program, or the topics were made anew.
            self.log.warning("offset.foreign", partition=partition, offset=offset)
        begin = min(max(offset, low), high) if offset >= 0 else low
        return Checkpoint(
            offset=begin,
            lookback=Anchor(self._lookback_by_time(reader, partition, low, begin), ClockState()),
            closed_ns=0,
            window_ns=self.config.window_ns,
            window_offset=ends[WINDOWS],
            anomaly_offset=ends[ANOMALIES],
        )

    def _lookback_by_time(self, reader: LogReader, partition: int, low: int, begin: int) -> int:
        """Return where the look-back before a foreign offset begins, by the records' times.

        Then the state is that of a worker that began there: nearly, not exactly, that
        of one that never stopped.
        """
        topic = self._name(topics.PROBE_ROUND)
        if begin <= low:
            return begin
        for message in reader.read(topic, partition, begin - 1, begin):
            time_ms = int(message.timestamp()[1]) - agents_horizon_ns(self.config) // MS_NS
            return min(reader.offset_for_time(topic, partition, time_ms), begin)
        return begin

    def _warm(self, reader: LogReader, feed: Feed, point: Checkpoint, partition: int) -> int:
        """Take the rounds of the look-back; return how many."""
        rounds = reader.read(
            self._name(topics.PROBE_ROUND), partition, point.lookback.offset, point.offset
        )
        warmed = 0
        while messages := list(islice(rounds, WARMED_AT_ONCE)):
            reader.beat()
            feed.warm(messages)
            warmed += len(messages)
        return warmed

    def _rebuild(
        self, reader: LogReader, machine: PartitionMachine, point: Checkpoint
    ) -> EarlierWindows:
        """Rebuild what the published windows and anomalies say; the long-term test's later."""
        partition = machine.identity.partition
        name = self._name(topics.PROBE_WINDOW)
        long_ns, anomalies_ns = machine.history_starts_ns()
        # A window's timestamp is the arrival that closed it. An anomaly's is its own arrival, which
        # comes later, by another broker's clock perhaps.
        long_start, start, anomalies_start = (
            reader.offset_for_time(where, partition, max(time_ns, 0) // MS_NS)
            for where, time_ns in (
                (name, long_ns),
                (name, machine.lookback_start_ns),
                (self._name(topics.ANOMALY), anomalies_ns - BROKERS_APART_NS),
            )
        )
        windows = KernelReader(
            self.codec, self.settings.cluster, self._undecodable, machine.recent.known_key
        )
        machine.rebuild(
            (
                windows.read([m.value() or b"" for m in messages])
                for messages in reader.read_many(name, partition, start, point.window_offset)
            ),
            self._records(reader, topics.ANOMALY, partition, anomalies_start, point.anomaly_offset),
        )

        def read(offset: int, check: Beat) -> Iterator[list[Message]]:
            with LogReader(self.settings, check) as beside:
                yield from beside.read_many(name, partition, offset, point.window_offset)

        return EarlierWindows(machine, windows, read, long_start, beat=self.waiting, log=self.log)

    def read_earlier(self, session: Session) -> None:
        """Let the windows of the long-term test be read, as long as the session is wanted.

        Once there is nothing else to rebuild: to read them takes the time of the rest again.

        Raises
        ------
        SessionLostError
            If a decision needs them at once, and the broker does not answer.
        """
        if session.earlier is not None:
            self.background.start(session.earlier)
            session.machine.expect(session.earlier)

    def _undecodable(self, error: DecodeError) -> None:
        self.log.warning("output.undecodable", reason=str(error))

    def _published(
        self, reader: LogReader, partition: int, point: Checkpoint
    ) -> Iterator[LoggedOutput]:
        """Yield the outputs beyond the checkpoint."""
        for topic, start in (
            (topics.PROBE_WINDOW, point.window_offset),
            (topics.ANOMALY, point.anomaly_offset),
        ):
            name = self._name(topic)
            end = reader.bounds(name, partition)[1]
            for offset, at_ms, record in self._decoded(reader, topic, partition, start, end):
                if topic is topics.PROBE_WINDOW:
                    identity = window_identity(record)
                elif record.state is AnomalyState.IDLE:
                    # The clock's, not the machine's: waiting for it would never end.
                    continue
                else:
                    identity = record.anomaly_id
                yield LoggedOutput(identity, at_ms, offset)

    def _records(
        self, reader: LogReader, topic: Topic, partition: int, start: int, end: int
    ) -> Iterator[Any]:
        return (record for _, _, record in self._decoded(reader, topic, partition, start, end))

    def _decoded(
        self, reader: LogReader, topic: Topic, partition: int, start: int, end: int
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield offset, timestamp and record; what others wrote there is passed over."""
        for message in reader.read(self._name(topic), partition, start, end):
            offset = int(message.offset() or 0)
            try:
                record = self.codec.decode(
                    topic, message.value() or b"", partition=partition, offset=offset
                )
            except DecodeError as error:
                self._undecodable(error)
                continue
            if record.cluster == self.settings.cluster:
                yield offset, int(message.timestamp()[1]), record

    def _name(self, topic: Topic) -> str:
        return self.settings.topic(topic.name)
