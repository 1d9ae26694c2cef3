"""What happens to a cluster, in terms of the mechanisms that the simulation knows."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from arena.sealed.fabric import Fabric
from arena.sealed.hosts import Starvation
from arena.sealed.queues import Load
from arena.sealed.schedule import Schedule
from schemas.enums import ProbeStatus

KEEP: Final = "(as it is)"


class Place(Enum):
    """Where on a one-way trip an effect sits."""

    WIRE = auto()
    SOURCE = auto()
    SINK = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which one-way trips an effect hits, and at which of their hops.

    Attributes
    ----------
    dlinks : WIRE: directed links that it sits on; of a switch's inside, those that leave it
    srcs, dsts : endpoints of the trips that it hits; None: any
    pairs : source and destination of the trips that it hits; None: any
    replies : whether it hits replies only, or probes only; None: both
    """

    place: Place = Place.WIRE
    dlinks: frozenset[int] = frozenset()
    srcs: frozenset[int] | None = None
    dsts: frozenset[int] | None = None
    pairs: frozenset[tuple[int, int]] | None = None
    replies: bool | None = None

    def position(self, src: int, dst: int, hops: tuple[int, ...], *, reply: bool) -> int | None:
        """Return the number of directed links that a packet has behind it there; None: not hit."""
        if (
            (self.replies is not None and self.replies is not reply)
            or (self.srcs is not None and src not in self.srcs)
            or (self.dsts is not None and dst not in self.dsts)
            or (self.pairs is not None and (src, dst) not in self.pairs)
        ):
            return None
        if self.place is Place.SOURCE:
            return 0
        if self.place is Place.SINK:
            return len(hops)
        return next((i for i, dlink in enumerate(hops) if dlink in self.dlinks), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Time that an effect adds.

    Attributes
    ----------
    share : of the packets that are late at all
    fixed_ns, spread_ns : each of these is late by the one, and by an exponential time of the
        other's mean
    """

    share: float = 1.0
    fixed_ns: float = 0.0
    spread_ns: float = 0.0

    @property
    def mean_ns(self) -> float:
        """Mean over all packets."""
        return self.share * (self.fixed_ns + self.spread_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What happens to packets somewhere.

    Attributes
    ----------
    loss : probability while the schedule is on
    status : what the prober at the trip's source reports, if that knows more than a timeout
    answers : whether the router in front of the place still answers traces: false where packets
        are dropped as they enter it
    """

    where: Where
    schedule: Schedule
    loss: float = 0.0
    delay: Delay | None = None
    status: ProbeStatus | None = None
    answers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reroute:
    """Routing withdraws a cable, or uses it again."""

    at_s: float
    cable: int
    up: bool


class Reader(Enum):
    """Who reads states."""

    AGENT = auto()
    COLLECTOR = auto()
    PLATFORM = auto()


Value = str | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSteps:
    """Values of an attribute of a component while something is wrong.

    Attributes
    ----------
    steps : times and values, in order; None: as when healthy; the empty text: unknown
    """

    component: str
    attribute: str
    steps: tuple[tuple[float, Value], ...]

    def value(self, at_s: float) -> Value:
        """Return the value at a time; None: as when healthy."""
        current: Value = None
        for since_s, value in self.steps:
            if since_s > at_s:
                break
            current = value
        return current


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A second reader that writes a value of its own under a key that another one writes."""

    component: str
    attribute: str
    value: str | float
    times_s: tuple[float, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An agent process that is not there.

    Attributes
    ----------
    end_s : when it starts again; infinite: never
    orderly : whether it says so and withdraws its registrations
    version : of the program that starts again; None: the same
    muted : the process lives and answers probes, but nothing that it sends reaches the broker
    """

    agent: int
    begin_s: float
    end_s: float
    orderly: bool
    version: str | None = None
    muted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockShift:
    """A host's clock is off by more from a moment on."""

    host: int
    at_s: float
    offset_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEdit:
    """New ping lists: without some endpoints, whoever probes them."""

    at_s: float
    without: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd:
    """A job ends."""

    at_s: float
    task: int


class AgentTrouble(Enum):
    """What an agent reports of itself without being gone."""

    DISPLACED = auto()
    NO_LIST = auto()
    LIST_REFUSED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubled:
    """An agent that reports trouble in its heartbeats for a while."""

    agent: int
    trouble: AgentTrouble
    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEdit:
    """Entries of a host's flow tables that are not what they should be.

    Attributes
    ----------
    node : whose entries
    dsts : endpoints that they match
    next_hop : where they lead; None: packets are dropped; KEEP: where they should
    offloaded : whether hardware has them
    """

    host: int
    node: str
    dsts: frozenset[int]
    schedule: Schedule
    next_hop: str | None = KEEP
    offloaded: bool | None = True


@dataclass(slots=True, kw_only=True)
class Plan:
    """Everything that happens in a world."""

    effects: list[Effect] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    reroutes: list[Reroute] = field(default_factory=list)
    states: list[StateSteps] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    starving: list[Starvation] = field(default_factory=list)
    clocks: list[ClockShift] = field(default_factory=list)
    lists: list[ListEdit] = field(default_factory=list)
    ends: list[TaskEnd] = field(default_factory=list)
    strays: list[Stray] = field(default_factory=list)
    troubled: list[Troubled] = field(default_factory=list)
    tables: list[TableEdit] = field(default_factory=list)
    tables_unread: list[tuple[int, Schedule]] = field(default_factory=list)
    broker_pauses: list[Schedule] = field(default_factory=list)
    fallbacks: list[tuple[int, Schedule]] = field(default_factory=list)
    reader_pauses: list[tuple[Reader, Schedule]] = field(default_factory=list)


def leaving(fabric: Fabric, node: int) -> frozenset[int]:
    """Return the directed links that leave a node."""
    return frozenset(d for d in range(fabric.dlinks) if fabric.tail(d) == node)


def entering(fabric: Fabric, node: int) -> frozenset[int]:
    """Return the directed links that enter a node."""
    return frozenset(d for d in range(fabric.dlinks) if fabric.head(d) == node)
