"""Many heartbeats as columns: those that say nothing in words.

Whatever has a reason to tell, refuses a list or was displaced is a record of its own, as is
what the shared kernel does not read (`schemas.columns.records`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from localizer.network.trace_reader import Places
from schemas import topics
from schemas.codec import Codec
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.interpreter import NULL
from schemas.columns.records import RecordColumns, RecordReader, numbers_or_none
from schemas.enums import AgentState, ProbingState
from schemas.records import Heartbeat

# Fields that are kept as numbers; of an enum the number of its member.
NUMBERS: Final = (
    "incarnation", "seq", "sent_at", "interval_ns", "state", "pinglist_version", "endpoints",
    "targets_active", "targets_waiting", "rounds_sent", "results_sent", "rounds_dropped",
    "replies_duplicate", "replies_late", "replies_foreign", "packets_malformed",
    "records_undecodable", "broker_away", "host_delay_ns", "probing", "flows_active",
    "lists_refused", "registrations_refused", "clock_offset_ns", "clock_error_ns",
    "packets_filtered",
)  # fmt: skip
# Fields that are null in each of them. Other texts nobody reads, and they are not kept.
_WORDS: Final = ("probing_reason", "list_refusal")
_ROWS: Final = {name: row for row, name in enumerate(NUMBERS)}
_STATES: Final = list(AgentState)
_PROBING: Final = list(ProbingState)
LEAVING: Final = _STATES.index(AgentState.LEAVING)
_DISPLACED: Final = _PROBING.index(ProbingState.DISPLACED)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatBatch:
    """Heartbeats of one cluster.

    Attributes
    ----------
    cluster
        Its name.
    agents, hosts
        By heartbeat, whose it is and where that one runs.
    at_ns : (n,) int64
        Effective times.
    partition, offset : (n,) int64
        Places in the log.
    fields : (NUMBERS, n) int64
        The fields, `NULL` where there is none.
    """

    cluster: str
    agents: list[str]
    hosts: list[str]
    at_ns: Int64s
    partition: Int64s
    offset: Int64s
    fields: Int64s

    @classmethod
    def of_records(cls, beats: Sequence[Heartbeat], places: Places) -> "HeartbeatBatch":
        """Return heartbeats of a cluster that say nothing in words, one at least."""
        return cls(
            cluster=beats[0].cluster,
            agents=[beat.agent_id for beat in beats],
            hosts=[beat.host_id for beat in beats],
            **places._asdict(),
            fields=np.array(
                [[_number(getattr(beat, name)) for beat in beats] for name in NUMBERS], np.int64
            ),
        )

    def __len__(self) -> int:
        return len(self.agents)

    def numbers(self, name: str) -> Int64s:
        """Return a field of all heartbeats, `NULL` where there is none."""
        found: Int64s = self.fields[_ROWS[name]]
        return found

    def select(self, rows: Int64s) -> "HeartbeatBatch":
        """Return some of the heartbeats, in that order."""
        numbers = rows.tolist()
        return HeartbeatBatch(
            cluster=self.cluster,
            agents=[self.agents[row] for row in numbers],
            hosts=[self.hosts[row] for row in numbers],
            at_ns=self.at_ns[rows],
            partition=self.partition[rows],
            offset=self.offset[rows],
            fields=self.fields[:, rows],
        )

    def in_order(self) -> "HeartbeatBatch":
        """Return the heartbeats by effective time and place in the log."""
        order = np.lexsort((self.offset, self.partition, self.at_ns))
        return self if (np.diff(order) > 0).all() else self.select(order)

    def records(self, rows: Int64s) -> Iterator[Heartbeat]:
        """Yield some of the heartbeats as records, without the texts that are not kept."""
        columns: dict[str, Iterable[Any]] = {
            name: numbers_or_none(column)
            for name, column in zip(NUMBERS, self.fields[:, rows], strict=True)
        }
        columns["state"] = map(_STATES.__getitem__, columns["state"])
        columns["probing"] = map(_PROBING.__getitem__, columns["probing"])
        columns["broker_away"] = map(bool, columns["broker_away"])
        for row, *values in zip(rows.tolist(), *columns.values(), strict=True):
            yield Heartbeat(
                cluster=self.cluster,
                agent_id=self.agents[row],
                host_id=self.hosts[row],
                **dict(zip(NUMBERS, values, strict=True)),
            )


def _number(value: AgentState | ProbingState | int | None) -> int:
    """Return a field as it stands in a batch."""
    match value:
        case None:
            return NULL
        case AgentState():
            return _STATES.index(value)
        case ProbingState():
            return _PROBING.index(value)
    return int(value)


def joined(batches: Sequence[HeartbeatBatch]) -> HeartbeatBatch:
    """Return the heartbeats of several batches of a cluster as one."""
    if len(batches) == 1:
        return batches[0]
    return HeartbeatBatch(
        cluster=batches[0].cluster,
        agents=[name for batch in batches for name in batch.agents],
        hosts=[name for batch in batches for name in batch.hosts],
        at_ns=np.concatenate([batch.at_ns for batch in batches]),
        partition=np.concatenate([batch.partition for batch in batches]),
        offset=np.concatenate([batch.offset for batch in batches]),
        fields=np.concatenate([batch.fields for batch in batches], axis=1),
    )


class HeartbeatReader:
    """Reads the heartbeats of one cluster."""

    def __init__(self, codec: Codec, cluster: str) -> None:
        self._reader = RecordReader(codec, topics.HEARTBEAT)
        self._cluster = cluster

    def read_batch(
        self, keys: Sequence[bytes], values: Sequence[bytes], arrivals_ns: Int64s, places: Places
    ) -> tuple[HeartbeatBatch | None, Bools]:
        """Return heartbeats as columns, and which messages are in them.

        The others somebody has to look at one by one.

        Parameters
        ----------
        keys, values
            Of the messages.
        arrivals_ns : (n,) int64
            When they arrived; `NO_ARRIVAL`: not known.
        places
            Where they stand, and when they take effect.
        """
        taken = np.zeros(len(values), np.bool_)
        batches: list[HeartbeatBatch] = []
        for block in self._reader.columns(values, arrivals_ns):
            numbers = block.first + np.flatnonzero(block.whole)
            agents = block.texts("agent_id")
            own = [keys[number] for number in numbers.tolist()]
            plain = _is_plain(block) & np.array(
                [
                    cluster == self._cluster and agent.encode() == key
                    for cluster, agent, key in zip(block.texts("cluster"), agents, own, strict=True)
                ],
                np.bool_,
            )
            if not plain.any():
                continue
            taken[numbers[plain]] = True
            batch = HeartbeatBatch(
                cluster=self._cluster,
                agents=agents,
                hosts=block.texts("host_id"),
                at_ns=places.at_ns[numbers],
                partition=places.partition[numbers],
                offset=places.offset[numbers],
                fields=np.array([block.numbers(name) for name in NUMBERS], np.int64),
            )
            batches.append(batch if plain.all() else batch.select(np.flatnonzero(plain)))
        return (joined(batches) if batches else None), taken


def _is_plain(block: RecordColumns) -> Bools:
    """Return which heartbeats say nothing in words."""
    plain: Bools = block.numbers("probing") != _DISPLACED
    plain &= block.numbers("displaced_by") == NULL
    for name in _WORDS:
        plain &= block.numbers(name) == NULL
    return plain
