"""The protocol that every transport implements, and the results it returns.

A transport belongs to one RNIC: it sends probes from it and answers probes to it.
tests/contract/test_transport.py holds every transport to this contract:

* `send` never blocks and never raises for what the network does;
* every probe sent yields exactly one `Completion`, at the latest one `poll` after its timeout,
  whatever is lost, delayed, doubled, reordered or forged;
* a probe that is OK was answered by its target, intact, within its timeout;
* a packet that is not the reply to a probe under way is counted and never reported.

For RDMA the descriptor is that of the completion channel, `send` posts to the UD queue pair, and
`poll` reads the completion queue. A probe is complete when its reply and, where the responder's
RNIC stamps completions, the follow-up with the hold (t4 - t3) are in.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple, Protocol

from probers.packet import UNSEALED, Packets
from probers.transports.rtt import Timestamps
from schemas.enums import ClockSource, ProbeStatus
from schemas.enums import Transport as TransportKind


class Reason(StrEnum):
    """The reason behind a status, for logs and traces."""

    NONE = "NONE"
    TTL_EXCEEDED = "TTL_EXCEEDED"
    CORRUPT = "CORRUPT"
    IMPLAUSIBLE = "IMPLAUSIBLE"
    ARRIVED_LATE = "ARRIVED_LATE"
    NOT_SENT = "NOT_SENT"
    REPORTED = "REPORTED"
    # The target was still being resolved: nothing was learnt about it.
    PENDING = "PENDING"
    # A probe of a trace over a transport that nodes do not answer.
    UNTRACED = "UNTRACED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """What all probes of an agent have in common.

    Attributes
    ----------
    probe_bytes : size of a probe and of its reply
    packets : seals and reads packets
    flows : 5-tuples that a pair has at most
    """

    probe_bytes: int
    packets: Packets = UNSEALED
    flows: int = 4


class Probe(NamedTuple):
    """One probe to send; a tuple, as is `Completion`: that is built in a quarter of the time.

    `token` is the caller's name for it. `flow` chooses the 5-tuple and `entropy`
    the flow number of an encapsulation; `ttl` None means the system's default.
    For RDMA `address` is the GID, `port` the number of the queue pair, `qkey` its Q_Key.
    """

    token: int
    address: str
    port: int
    flow: int
    entropy: int
    timeout_ns: int
    ttl: int | None = None
    qkey: int | None = None


class Completion(NamedTuple):
    """The end of one probe.

    `times` are there when a packet came back: the target's reply (status OK or
    BAD_REPLY), or a node's report, for which received - sent is the round trip to
    that node. `reporter` is the address of who answered, as topology.v1 has it.
    """

    token: int
    status: ProbeStatus
    reason: Reason = Reason.NONE
    clock: ClockSource = ClockSource.SOFTWARE
    times: Timestamps | None = None
    reporter: str | None = None


@dataclass(slots=True)
class PacketCounts:
    """Packets that were not the first, timely and intact reply to a probe; and probes answered."""

    duplicate: int = 0
    late: int = 0
    foreign: int = 0
    malformed: int = 0
    # Intact, but not sealed with the cluster's key.
    forged: int = 0
    answered: int = 0
    # Probes not answered because more came than the responder's budget.
    unanswered: int = 0
    # Dropped by the kernel: by the socket's filter, or because the socket was full.
    filtered: int = 0

    def add(self, other: "PacketCounts") -> None:
        """Add the counts of another transport."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Transport(Protocol):
    """Sends probes from one RNIC and answers those of others."""

    kind: TransportKind

    @property
    def counts(self) -> PacketCounts:
        """Packets and probes so far."""
        ...

    @property
    def address(self) -> str:
        """Where the responder listens, as endpoint.v1 carries it."""
        ...

    @property
    def port(self) -> int:
        """Its port; for RDMA, the number of its queue pair."""
        ...

    @property
    def qkey(self) -> int | None:
        """The Q_Key that a probe must have; None where there is none."""
        ...

    @property
    def untraced(self) -> str | None:
        """Why probes with a TTL do not name the node where it ran out; None: they do."""
        ...

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when `poll` has something to do."""
        ...

    def packets_per_probe(self, timeout_ns: int) -> int:
        """Return how many packets a probe with that timeout sends at most."""
        ...

    def send(self, probe: Probe) -> bool:
        """Send a probe; return whether it is under way for certain.

        What failed at once is completed by the next `poll`.
        """
        ...

    def poll(self) -> list[Completion]:
        """Process what has arrived, answer probes, and return all probes that are over.

        To be called when the descriptor is readable and when a timeout has passed.
        """
        ...

    def is_current(self) -> bool:
        """Return whether it still answers where `address` and `port` say.

        Raises
        ------
        OSError
            If it cannot answer anywhere now.
        """
        ...

    def close(self) -> None:
        """Close the sockets; probes under way are forgotten."""
        ...
