"""The topic registry: what each topic holds, who writes and reads it, how long it is kept.

`ops` plans, creates and documents topics from here; no process names a topic
in any other way.
"""

from dataclasses import dataclass
from typing import Final

from schemas import records as rec
from schemas.units import HOUR_NS

DAY_NS: Final = 24 * HOUR_NS

# Enough for four workers; co-partitioned topics share it (see `partitioned_by`).
DEFAULT_PARTITIONS: Final = 4
DLQ_SUFFIX: Final = ".dlq"
# Two weeks: long enough to look into a poison record after a holiday.
DLQ_RETENTION_NS: Final = 14 * DAY_NS

# Largest message of a topic. The contract's bound for one value is as large
# (`schemas.avro.MAX_VALUE_BYTES`); the largest one that a writer makes is a round of 65,536
# results, some 4 MiB, so key, headers and the batch around it have room.
MAX_MESSAGE_BYTES: Final = 8 * 2**20
# A dead letter is the original message and headers on its origin, of a few KiB.
DLQ_MAX_MESSAGE_BYTES: Final = MAX_MESSAGE_BYTES + 2**16

# What the broker does with a record's timestamp (`message.timestamp.type`): it sets the time of
# arrival, or keeps what the producer gives.
LOG_APPEND_TIME: Final = "LogAppendTime"
CREATE_TIME: Final = "CreateTime"

AGENT, WORKER, SKELETON, LOCALIZER, OPS = (
    "agent",
    "worker",
    "skeleton job",
    "localizer",
    "ops",
)
# Beside training jobs: who reads what ranks recorded, and who says why a job hangs.
JOB_COLLECTOR, HANG_WATCHER = "job collector", "hang watcher"
# Outsiders: who starts jobs, who knows the network, who reads states of switches and the like.
SCHEDULER, INVENTORY, COLLECTOR = "scheduler", "inventory", "state reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic of the contract.

    `partitioned_by` says which id chooses the partition. Where it is not the
    key, the writer sets the partition itself: windows and anomalies stay in the
    partition of the rounds they come from, so that one worker owns a path and
    the progress marks in `anomaly.v1` cover it.

    `read_back`: its writer reads it at a start, to go on where a former process stopped.

    `personal`: each agent reads one partition, the one that its id chooses. How much it reads then
    depends on the number of agents a partition, and not on the size of the cluster.

    `timestamp_type` is LogAppendTime wherever a process acts on the time of a record: the arrival
    is the one time in the log that no writer can set.
    """

    name: str
    record: type
    key: str
    cleanup: str
    retention_ns: int | None
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    doc: str
    partitioned_by: str = "the key"
    partitions: int = DEFAULT_PARTITIONS
    timestamp_type: str = LOG_APPEND_TIME
    read_back: bool = False
    personal: bool = False

    @property
    def dlq(self) -> str:
        """Name of the dead-letter topic."""
        return self.name + DLQ_SUFFIX

    @property
    def key_field(self) -> str:
        """Name of the field of the record that is its key (but for marks in `anomaly.v1`)."""
        return self.key.replace(" ", "_")

    @property
    def compacted(self) -> bool:
        """Whether the latest record of each key is kept."""
        return "compact" in self.cleanup.split(",")


def _topic(
    name: str,
    record: type,
    key: str,
    policy: str,
    *,
    flow: tuple[tuple[str, ...], tuple[str, ...]],
    doc: str,
    days: int | None = None,
    partitioned_by: str = "the key",
    partitions: int = DEFAULT_PARTITIONS,
    timestamp_type: str = LOG_APPEND_TIME,
    read_back: bool = False,
    personal: bool = False,
) -> Topic:
    return Topic(
        name=name,
        record=record,
        key=key,
        cleanup=policy,
        retention_ns=None if days is None else days * DAY_NS,
        producers=flow[0],
        consumers=flow[1],
        doc=doc,
        partitioned_by=partitioned_by,
        partitions=partitions,
        timestamp_type=timestamp_type,
        read_back=read_back,
        personal=personal,
    )


PROBE_ROUND: Final = _topic(
    "probe.round.v1", rec.ProbeRound, "agent id", "delete",
    flow=((AGENT,), (WORKER,)),
    doc="Every probe's result, one message per agent and round.", days=3,
)  # fmt: skip
RNIC_COUNTERS: Final = _topic(
    "rnic.counters.v1", rec.CounterBatch, "agent id", "delete",
    flow=((AGENT,), (SKELETON,)),
    doc="Byte counters of the RNICs, one message per agent and second.", days=1,
)  # fmt: skip
PATH_TRACE: Final = _topic(
    "path.trace.v1", rec.PathTrace, "path id", "delete",
    flow=((AGENT,), (LOCALIZER,)),
    doc="Which components a 5-tuple crosses.", days=7,
)  # fmt: skip
TASK: Final = _topic(
    "task.v1", rec.Task, "task id", "compact",
    flow=((SCHEDULER,), (SKELETON, LOCALIZER)),
    doc="Training jobs: endpoints, submission, end.", partitions=1,
)  # fmt: skip
ENDPOINT: Final = _topic(
    "endpoint.v1", rec.Endpoint, "endpoint id", "compact",
    flow=((AGENT,), (AGENT, SKELETON, LOCALIZER)),
    doc="Registered endpoints; a tombstone when one leaves.",
)  # fmt: skip
HEARTBEAT: Final = _topic(
    "agent.heartbeat.v1", rec.Heartbeat, "agent id", "compact,delete",
    flow=((AGENT,), (LOCALIZER, OPS)),
    doc="Signs of life of the agents, and what they counted.", days=7,
)  # fmt: skip
PINGLIST: Final = _topic(
    "pinglist.v1", rec.PingList, "agent id", "compact",
    flow=((SKELETON,), (AGENT, LOCALIZER)),
    doc="Whom each agent probes.", read_back=True, personal=True,
)  # fmt: skip
TARGET: Final = _topic(
    "target.v1", rec.Endpoint, "endpoint id", "compact",
    flow=((SKELETON,), (AGENT,)),
    doc="Registrations of `endpoint.v1`, each copied to the partitions of the agents that need it: "
    "they probe the endpoint, or are on its host.",
    partitioned_by="id of the agent that needs it", read_back=True, personal=True,
)  # fmt: skip
# Header of a list in `pinglist.v1` whose targets' registrations stand in `target.v1`. Of a list
# without it an agent finds them in `endpoint.v1`, among all others. It is no field of the list, so
# that agents of earlier versions read such lists, too.
REGISTRATIONS_HEADER: Final = ("registrations", TARGET.name.encode())
SKELETON_TOPIC: Final = _topic(
    "skeleton.v1", rec.Skeleton, "task id", "compact",
    flow=((SKELETON,), (OPS,)),
    doc="Inferred traffic skeletons of the jobs.", partitions=1, read_back=True,
)  # fmt: skip
TOPOLOGY: Final = _topic(
    "topology.v1", rec.Component, "component id", "compact",
    flow=((INVENTORY,), (LOCALIZER,)),
    doc="Components of the network and how they are joined.", partitions=1,
)  # fmt: skip
OVERLAY_FLOWS: Final = _topic(
    "overlay.flows.v1", rec.FlowTable, "host id", "compact",
    flow=((AGENT, INVENTORY), (SKELETON, LOCALIZER)),
    doc="Forwarding tables of the hosts' virtual components.",
)  # fmt: skip
COMPONENT_STATE: Final = _topic(
    "component.state.v1", rec.ComponentState, "state id", "compact",
    flow=((AGENT, COLLECTOR), (LOCALIZER,)),
    doc="States of components as readers on the spot see them; open to any writer.",
)  # fmt: skip
PROBE_WINDOW: Final = _topic(
    "probe.window.v1", rec.PathWindow, "path id", "delete",
    flow=((WORKER,), (OPS,)),
    doc="Statistics per 5-tuple and window: the topic to tap first.", days=30,
    partitioned_by="agent id, as the rounds",
    # The worker looks windows up after a restart by the arrival that closed them, also in a replay.
    timestamp_type=CREATE_TIME, read_back=True,
)  # fmt: skip
ANOMALY: Final = _topic(
    "anomaly.v1", rec.Anomaly, "path id", "delete",
    flow=((WORKER,), (LOCALIZER,)),
    doc="What the detectors saw, and progress marks.", days=30,
    partitioned_by="agent id, as the rounds", read_back=True,
)  # fmt: skip
FAULT_EVENT: Final = _topic(
    "fault.event.v1", rec.FaultEvent, "fault id", "delete",
    flow=((LOCALIZER,), (OPS,)),
    doc="Every transition of every fault, append-only.", days=90, partitions=1,
    read_back=True,
)  # fmt: skip
FAULT_STATE: Final = _topic(
    "fault.state.v1", rec.FaultState, "fault id", "compact",
    flow=((LOCALIZER,), (OPS,)),
    doc="The latest state of every fault.", partitions=1,
)  # fmt: skip
SILENCE: Final = _topic(
    "silence.v1", rec.Silence, "silence id", "compact,delete",
    flow=((OPS,), (OPS,)),
    doc="Which faults page nobody, until when, and who said so.", days=365, partitions=1,
)  # fmt: skip
INCIDENT_NOTE: Final = _topic(
    "incident.note.v1", rec.IncidentNote, "fault id", "delete",
    flow=((OPS,), (OPS,)),
    doc="What people said and did about faults.", days=365, partitions=1,
)  # fmt: skip
COLLECTIVE_COMM: Final = _topic(
    "collective.comm.v1", rec.Communicator, "communicator id", "compact,delete",
    flow=((JOB_COLLECTOR,), (HANG_WATCHER, OPS)),
    doc="Communicators of training jobs and their members; written again each hour.", days=7,
)  # fmt: skip
COLLECTIVE_OP: Final = _topic(
    "collective.op.v1", rec.CollectiveBatch, "rank id", "delete",
    flow=((JOB_COLLECTOR,), (HANG_WATCHER, OPS)),
    doc="Collective operations of each rank and the state of its process, every 2 s.", days=1,
)  # fmt: skip
COLLECTIVE_FLOW: Final = _topic(
    "collective.flow.v1", rec.SocketBatch, "rank id", "delete",
    flow=((JOB_COLLECTOR,), (HANG_WATCHER,)),
    doc="Connections of each rank's process: bytes outstanding, unread and sent again.", days=1,
)  # fmt: skip
COLLECTIVE_HANG: Final = _topic(
    "collective.hang.v1", rec.Hang, "hang id", "compact,delete",
    flow=((HANG_WATCHER,), (LOCALIZER, OPS)),
    doc="The latest state of every hang of a training job.", days=90, partitions=1,
    read_back=True,
)  # fmt: skip

TOPICS: Final[tuple[Topic, ...]] = (
    PROBE_ROUND,
    RNIC_COUNTERS,
    PATH_TRACE,
    TASK,
    ENDPOINT,
    HEARTBEAT,
    PINGLIST,
    TARGET,
    SKELETON_TOPIC,
    TOPOLOGY,
    OVERLAY_FLOWS,
    COMPONENT_STATE,
    PROBE_WINDOW,
    ANOMALY,
    FAULT_EVENT,
    FAULT_STATE,
    SILENCE,
    INCIDENT_NOTE,
    COLLECTIVE_COMM,
    COLLECTIVE_OP,
    COLLECTIVE_FLOW,
    COLLECTIVE_HANG,
)
BY_NAME: Final[dict[str, Topic]] = {t.name: t for t in TOPICS}


def topic_named(name: str) -> Topic:
    """Return the topic of that name.

    Raises
    ------
    KeyError
        If the contract has no such topic; the message lists those it has.
    """
    try:
        return BY_NAME[name]
    except KeyError:
        raise KeyError(
            f"no topic {name!r} in the contract; there are {', '.join(BY_NAME)}"
        ) from None
