"""Closed sets on the wire. Every enum has UNKNOWN, the default for symbols of a later version."""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final


class Transport(StrEnum):
    """How a probe travels."""

    UNKNOWN = "UNKNOWN"
    UDP = "UDP"
    TCP = "TCP"
    RDMA_UD = "RDMA_UD"


class ProbeStatus(StrEnum):
    """What became of a probe; the reason when rtt_ns is null."""

    UNKNOWN = "UNKNOWN"
    OK = "OK"
    TIMEOUT = "TIMEOUT"
    UNREACHABLE = "UNREACHABLE"
    REFUSED = "REFUSED"
    NO_ROUTE = "NO_ROUTE"
    BAD_REPLY = "BAD_REPLY"
    LINK_DOWN = "LINK_DOWN"
    NO_GID = "NO_GID"
    NO_DEVICE = "NO_DEVICE"


class ClockSource(StrEnum):
    """Where the receive timestamps come from."""

    UNKNOWN = "UNKNOWN"
    SOFTWARE = "SOFTWARE"
    KERNEL = "KERNEL"
    HARDWARE = "HARDWARE"


class CollectiveState(StrEnum):
    """How far a collective operation of a rank came."""

    UNKNOWN = "UNKNOWN"
    SCHEDULED = "SCHEDULED"
    STARTED = "STARTED"
    COMPLETED = "COMPLETED"


class CollectiveSource(StrEnum):
    """What recorded operations."""

    UNKNOWN = "UNKNOWN"
    FLIGHT_RECORDER = "FLIGHT_RECORDER"
    RAS = "RAS"
    INSPECTOR = "INSPECTOR"
    PROFILER = "PROFILER"


class CommunicatorRole(StrEnum):
    """What a communicator is for: all ranks, or one of the kinds of parallelism."""

    UNKNOWN = "UNKNOWN"
    WORLD = "WORLD"
    DP = "DP"
    TP = "TP"
    PP = "PP"
    EP = "EP"
    CP = "CP"


class ProcessState(StrEnum):
    """What the kernel says of a process; DISK: it waits without a chance to be interrupted."""

    UNKNOWN = "UNKNOWN"
    RUNNING = "RUNNING"
    SLEEPING = "SLEEPING"
    DISK = "DISK"
    STOPPED = "STOPPED"
    ZOMBIE = "ZOMBIE"
    GONE = "GONE"


class HangClass(StrEnum):
    """Why a training job hangs or is slow."""

    UNKNOWN = "UNKNOWN"
    NETWORK = "NETWORK"
    PROCESS_STOPPED = "PROCESS_STOPPED"
    GPU_STOPPED = "GPU_STOPPED"
    NEVER_LAUNCHED = "NEVER_LAUNCHED"
    DESYNCHRONISED = "DESYNCHRONISED"
    RANK_MISSING = "RANK_MISSING"
    SLOW_COMPUTE = "SLOW_COMPUTE"
    SLOW_SENDER = "SLOW_SENDER"
    SLOW_RECEIVER = "SLOW_RECEIVER"
    UNDECIDED = "UNDECIDED"


class Certainty(StrEnum):
    """How sure a verdict on a training job is."""

    UNKNOWN = "UNKNOWN"
    SURE = "SURE"
    LIKELY = "LIKELY"
    UNDECIDED = "UNDECIDED"


class TraceCause(StrEnum):
    """Why a path was traced."""

    UNKNOWN = "UNKNOWN"
    DISCOVERY = "DISCOVERY"
    LOSS = "LOSS"
    LATENCY = "LATENCY"
    REQUEST = "REQUEST"


class AgentState(StrEnum):
    """Life of an agent."""

    UNKNOWN = "UNKNOWN"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    DEGRADED = "DEGRADED"
    LEAVING = "LEAVING"


class ProbingState(StrEnum):
    """Whether an agent probes, and if not, why."""

    UNKNOWN = "UNKNOWN"
    STARTING = "STARTING"
    PROBING = "PROBING"
    WAITING = "WAITING"
    NO_LIST = "NO_LIST"
    EMPTY_LIST = "EMPTY_LIST"
    DISPLACED = "DISPLACED"


class PingListPhase(StrEnum):
    """Which phase of the job the list serves."""

    UNKNOWN = "UNKNOWN"
    PRELOAD = "PRELOAD"
    RUNTIME = "RUNTIME"


class TargetOrigin(StrEnum):
    """Why a pair is on the list."""

    UNKNOWN = "UNKNOWN"
    BASIC = "BASIC"
    SKELETON = "SKELETON"
    EXPLORE = "EXPLORE"


class ComponentKind(StrEnum):
    """What a component is."""

    UNKNOWN = "UNKNOWN"
    HOST = "HOST"
    RNIC = "RNIC"
    SWITCH = "SWITCH"
    LINK = "LINK"
    VSWITCH = "VSWITCH"
    VTEP = "VTEP"
    ENDPOINT = "ENDPOINT"
    AGENT = "AGENT"
    RANK = "RANK"


class Layer(StrEnum):
    """Which layer a component belongs to."""

    UNKNOWN = "UNKNOWN"
    UNDERLAY = "UNDERLAY"
    OVERLAY = "OVERLAY"
    HOST = "HOST"
    JOB = "JOB"


class AnomalyKind(StrEnum):
    """What was seen; PROGRESS only says that a partition is decided up to event_at."""

    UNKNOWN = "UNKNOWN"
    CONNECTIVITY = "CONNECTIVITY"
    LOSS = "LOSS"
    LATENCY = "LATENCY"
    LATENCY_TREND = "LATENCY_TREND"
    PROGRESS = "PROGRESS"
    STRAY_LOSS = "STRAY_LOSS"
    WEAK_LATENCY = "WEAK_LATENCY"
    BRIEF_LATENCY = "BRIEF_LATENCY"


class AnomalyFamily(Enum):
    """Anomalies that may share a cause: probes are lost, or probes are late. Not on the wire."""

    LOSS = "loss"
    LATENCY = "latency"

    # Hash by identity: the hash of `Enum` is a Python call, and each anomaly needs several.
    __hash__ = object.__hash__


# The localizer ignores a kind without a family.
ANOMALY_FAMILY: Final[Mapping[AnomalyKind, AnomalyFamily]] = {
    AnomalyKind.CONNECTIVITY: AnomalyFamily.LOSS,
    AnomalyKind.LOSS: AnomalyFamily.LOSS,
    AnomalyKind.STRAY_LOSS: AnomalyFamily.LOSS,
    AnomalyKind.LATENCY: AnomalyFamily.LATENCY,
    AnomalyKind.WEAK_LATENCY: AnomalyFamily.LATENCY,
    AnomalyKind.BRIEF_LATENCY: AnomalyFamily.LATENCY,
    AnomalyKind.LATENCY_TREND: AnomalyFamily.LATENCY,
}


class AnomalyState(StrEnum):
    """Life of an anomaly; IDLE on a PROGRESS record means a partition without input."""

    UNKNOWN = "UNKNOWN"
    ONSET = "ONSET"
    ONGOING = "ONGOING"
    CLEARED = "CLEARED"
    IDLE = "IDLE"


class NoteAction(StrEnum):
    """What a note on a fault does."""

    UNKNOWN = "UNKNOWN"
    COMMENT = "COMMENT"
    ACKNOWLEDGE = "ACKNOWLEDGE"
    CLOSE = "CLOSE"


class FaultLifecycle(StrEnum):
    """Life of a fault."""

    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    UPDATED = "UPDATED"
    RESOLVED = "RESOLVED"
