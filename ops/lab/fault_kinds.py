"""The kinds of fault that labs can put in, as data."""

from dataclasses import dataclass
from typing import Final

from schemas.enums import Layer

MAX_MS: Final = 60_000.0
LOOPBACK_LAB: Final = "loopback"
NETNS_LAB: Final = "netns"
RXE_LAB: Final = "rxe"
ALL_LABS: Final = (LOOPBACK_LAB, NETNS_LAB, RXE_LAB)
RANK: Final = "rank"
"""Target of the faults of a real job."""
KERNEL_LABS: Final = (NETNS_LAB, RXE_LAB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A parameter of a fault: a number with unit and bounds, a word, or a component.

    `choices` are the words, `unit` None otherwise means a component.
    """

    name: str
    doc: str
    unit: str | None = None
    default: float | str | None = None
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0


PERCENT: Final = Param(
    name="percent", doc="share of the packets", unit="%", default=10.0, low=0.001, high=100.0
)
SENDER: Final = Param(
    name="sender", doc="end of the link whose packets suffer; both ends unless given"
)
SHUT: Final = Param(name="sender", doc="end of the link that is shut; its first unless given")
DST: Final = Param(name="dst", doc="endpoint whose traffic suffers; every destination unless given")
TO: Final = Param(name="dst", doc="endpoint whose RNIC is meant; every RNIC unless given")
ACL_PERCENT: Final = Param(
    name="percent", doc="share of the source ports", unit="%", default=50.0, low=1.0, high=100.0
)
CPU_PERCENT: Final = Param(
    name="percent", doc="share of the time that it runs", unit="%", default=10.0, low=1.0, high=90.0
)
BUSY: Final = Param(
    name="count", doc="processes that compete with it", default=3.0, unit="processes",
    low=1.0, high=32.0,
)  # fmt: skip
QUOTA: Final = Param(
    name="percent", doc="of one processor, at most", unit="%", default=5.0, low=1.0, high=100.0
)
LIMITED: Final = Param(
    name="sender", doc="end of the link whose port is limited; its first unless given"
)
# Slow enough for the lab's own job to fill it at times: bursts of a megabyte.
RATE: Final = Param(
    name="mbit", doc="what the port sends at most", unit="Mbit/s", default=20.0, low=1.0,
    high=10_000.0,
)  # fmt: skip
CROSS: Final = Param(
    name="cross", doc="cross traffic, as a share of that rate", unit="%", default=0.0, low=0.0,
    high=200.0,
)  # fmt: skip
# Made frame by frame by one process: some ten thousand frames a second are what it can do.
TRAFFIC: Final = Param(
    name="mbit", doc="rate of the traffic", unit="Mbit/s", default=50.0, low=1.0, high=200.0
)
# A fault that comes and goes; by default it is there all the time.
DUTY: Final = Param(
    name="duty", doc="share of each period in which it is there", unit="%", default=100.0, low=1.0,
    high=100.0,
)  # fmt: skip
PERIOD: Final = Param(
    name="period_s", doc="length of a period", unit="s", default=10.0, low=0.1, high=600.0
)

HOW: Final = Param(
    name="how", doc="what is different of its gradients", default="size", choices=("size", "order")
)


def _ms(doc: str, default: float, low: float = 0.01) -> Param:
    return Param(name="ms", doc=doc, unit="ms", default=default, low=low, high=MAX_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """A kind of fault: on what, with which parameters, what it does, in which kinds of lab.

    A `benign` one is no fault of the network: nobody may be paged for it.
    """

    name: str
    layer: Layer
    target: str
    doc: str
    params: tuple[Param, ...] = ()
    example: str
    labs: tuple[str, ...] = ALL_LABS
    benign: bool = False


KINDS: Final[dict[str, FaultKind]] = {
    kind.name: kind
    for kind in (
        FaultKind(
            name="link-cut", layer=Layer.UNDERLAY, target="link", params=(SENDER,),
            doc="Nothing crosses the link.",
            example="link-cut link:leaf:p0-0--spine:0",
        ),
        FaultKind(
            name="link-loss", layer=Layer.UNDERLAY, target="link",
            params=(PERCENT, SENDER, DUTY, PERIOD),
            doc="A share of the packets is lost, in each direction by itself.",
            example="link-loss link:leaf:p0-0--rnic:h0/r0 --percent 10",
        ),
        FaultKind(
            name="link-delay", layer=Layer.UNDERLAY, target="link",
            params=(_ms("added to each crossing, so twice to a round trip", 5.0), SENDER,
                    DUTY, PERIOD),
            doc="Every packet crosses later.",
            example="link-delay link:leaf:p0-0--spine:0 --ms 5",
        ),
        FaultKind(
            name="link-jitter", layer=Layer.UNDERLAY, target="link",
            params=(_ms("at most added to each crossing, evenly from 0", 5.0), SENDER),
            doc="Packets cross later by a random time, and may overtake each other.",
            example="link-jitter link:leaf:p0-0--spine:0 --ms 2",
        ),
        FaultKind(
            name="link-corrupt", layer=Layer.UNDERLAY, target="link", params=(PERCENT, SENDER),
            doc="Bytes of the payload of a share of the packets change.",
            example="link-corrupt link:leaf:p0-0--spine:0 --percent 20",
        ),
        FaultKind(
            name="link-flap", layer=Layer.UNDERLAY, target="link",
            params=(_ms("period: down for its first half, up for its second", 4000.0, 10.0),
                    SENDER),
            doc="The link is cut and joined by turns.",
            example="link-flap link:leaf:p0-0--spine:0 --ms 4000",
        ),
        FaultKind(
            name="link-rate", layer=Layer.UNDERLAY, target="link", labs=(NETNS_LAB,),
            params=(RATE, _ms("longest wait in its queue; what would wait longer is dropped", 50.0),
                    CROSS, LIMITED),
            doc="A port is too slow: packets wait in a queue of the kernel (tbf).",
            example="link-rate link:leaf:p0-0--spine:0 --mbit 10 --cross 90",
        ),
        FaultKind(
            name="link-rate-fair", layer=Layer.UNDERLAY, target="link", labs=(NETNS_LAB,),
            params=(RATE, _ms("wait that the queue aims at", 5.0), CROSS, LIMITED),
            doc="As link-rate, but the queue is fair to each 5-tuple (fq_codel, if the kernel "
            "has it).",
            example="link-rate-fair link:leaf:p0-0--spine:0 --mbit 10 --cross 90",
        ),
        FaultKind(
            name="cross-traffic", layer=Layer.UNDERLAY, target="link", labs=(NETNS_LAB,),
            params=(TRAFFIC, SENDER), benign=True,
            doc="Other traffic crosses the link, which has room for it: a legitimate burst.",
            example="cross-traffic link:leaf:p0-0--spine:0 --mbit 50",
        ),
        FaultKind(
            name="switch-off", layer=Layer.UNDERLAY, target="switch",
            doc="A leaf or spine neither forwards nor answers.",
            example="switch-off spine:0",
        ),
        FaultKind(
            name="flow-hole", layer=Layer.OVERLAY, target="virtual node", params=(DST,),
            labs=(LOOPBACK_LAB, NETNS_LAB),
            doc="Entries vanish from a flow table; their packets are dropped without a word.",
            example="flow-hole vsw:h1 --dst job1-w1/r0",
        ),
        FaultKind(
            name="link-down", layer=Layer.UNDERLAY, target="link", params=(SHUT,),
            labs=KERNEL_LABS,
            doc="A port is shut: its own switch routes around it, the other end does not know.",
            example="link-down link:leaf:p0-0--spine:0",
        ),
        FaultKind(
            # Not where agents speak RDMA: those of Soft-RoCE behind it stopped for good.
            name="link-mtu", layer=Layer.UNDERLAY, target="link", params=(SENDER,),
            labs=(NETNS_LAB,),
            doc="The MTU of the receiving end is too small: it drops large frames without a word.",
            example="link-mtu link:leaf:p0-0--spine:0",
        ),
        FaultKind(
            name="route-withdraw", layer=Layer.UNDERLAY, target="switch", params=(TO,),
            labs=KERNEL_LABS,
            doc="A switch loses its route to an RNIC, and says so of each packet.",
            example="route-withdraw spine:0 --dst job1-w0/r0",
        ),
        FaultKind(
            name="route-hole", layer=Layer.UNDERLAY, target="switch", params=(TO,),
            labs=KERNEL_LABS,
            doc="A switch has a blackhole route to an RNIC: its packets are dropped silently.",
            example="route-hole spine:0 --dst job1-w0/r0",
        ),
        FaultKind(
            name="acl-drop", layer=Layer.UNDERLAY, target="switch", params=(ACL_PERCENT, TO),
            labs=(NETNS_LAB,),
            doc="An access list of a switch drops a share of the 5-tuples, always the same.",
            example="acl-drop spine:0 --percent 50",
        ),
        FaultKind(
            name="container-kill", layer=Layer.OVERLAY, target="container", labs=(NETNS_LAB,),
            doc="A container's interfaces are gone; its host and the agent stay.",
            example="container-kill job1-w1",
        ),
        FaultKind(
            name="flow-loop", layer=Layer.OVERLAY, target="virtual node", params=(DST,),
            labs=(LOOPBACK_LAB,),
            doc="A virtual switch and an RNIC of its host send traffic to each other.",
            example="flow-loop rnic:h0/r0 --dst job1-w1/r0",
        ),
        FaultKind(
            name="gid-change", layer=Layer.UNDERLAY, target="RNIC", labs=(RXE_LAB,),
            doc="The RNIC's address is replaced by another: the GID that it registered is gone.",
            example="gid-change rnic:h0/r0",
        ),
        FaultKind(
            name="qkey-stale", layer=Layer.HOST, target="endpoint", labs=(RXE_LAB,),
            doc="Somebody registers it with another Q_Key, again and again: RNICs drop the probes.",
            example="qkey-stale job1-w0/r0",
        ),
        FaultKind(
            name="agent-kill", layer=Layer.HOST, target="agent",
            doc="The agent ends by SIGKILL; healing starts it again.",
            example="agent-kill agent-h0",
        ),
        FaultKind(
            name="agent-stop", layer=Layer.HOST, target="agent",
            doc="The agent is stopped by SIGSTOP; healing continues it.",
            example="agent-stop agent-h0",
        ),
        FaultKind(
            name="agent-starve", layer=Layer.HOST, target="agent", params=(CPU_PERCENT,),
            benign=True,
            doc="The agent gets the processor for a part of each second only.",
            example="agent-starve agent-h0 --percent 10",
        ),
        FaultKind(
            name="agent-quota", layer=Layer.HOST, target="agent", params=(QUOTA,),
            labs=(LOOPBACK_LAB, NETNS_LAB), benign=True,
            doc="A control group limits the agent's processor time, as a container's limit does.",
            example="agent-quota agent-h0 --percent 5",
        ),
        FaultKind(
            name="agent-crowd", layer=Layer.HOST, target="agent", params=(BUSY,),
            labs=(LOOPBACK_LAB, NETNS_LAB), benign=True,
            doc="Busy processes compete with the agent for its one processor.",
            example="agent-crowd agent-h0 --count 3",
        ),
        FaultKind(
            name="agent-drain", layer=Layer.HOST, target="agent",
            labs=(LOOPBACK_LAB, NETNS_LAB), benign=True,
            doc="The agent ends by SIGTERM and takes its registrations back: a drained host.",
            example="agent-drain agent-h0",
        ),
        FaultKind(
            name="rank-stop", layer=Layer.JOB, target=RANK, labs=(NETNS_LAB,),
            doc="The process of a rank is stopped by SIGSTOP; healing continues it.",
            example="rank-stop 3",
        ),
        FaultKind(
            name="rank-stall", layer=Layer.JOB, target=RANK, labs=(NETNS_LAB,),
            doc="A rank hangs in Python, and never launches its next collective.",
            example="rank-stall 3",
        ),
        FaultKind(
            name="rank-slow", layer=Layer.JOB, target=RANK, labs=(NETNS_LAB,),
            params=(_ms("longer in each iteration", 300.0),),
            doc="A rank computes longer than the others.",
            example="rank-slow 3 --ms 300",
        ),
        FaultKind(
            name="rank-desync", layer=Layer.JOB, target=RANK, labs=(NETNS_LAB,), params=(HOW,),
            doc="A rank reduces other gradients than its peers (not with JAX); healing restarts "
            "the job.",
            example="rank-desync 3 --how order",
        ),
        FaultKind(
            name="rank-exit", layer=Layer.JOB, target=RANK, labs=(NETNS_LAB,),
            doc="The process of a rank ends; healing restarts the job.",
            example="rank-exit 3",
        ),
        FaultKind(
            name="task-end", layer=Layer.HOST, target="task", benign=True,
            doc="The training job ends on `task.v1`; healing submits it again.",
            example="task-end job1",
        ),
    )
}  # fmt: skip
