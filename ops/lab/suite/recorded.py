"""What the labelled recordings of a lab hold: faults, and what only looks like one. Data.

A case is in force for its `timeout_s`. Where it can be found at all, that is long enough at a
stated mechanism: losses of 1 % on one cable are a handful in three minutes of the lab's probes,
and a delay that is there for a fifth of the time needs some windows of 30 s.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ops.lab.fault_kinds import KINDS
from ops.lab.suite.cases import LINK, SUITE, Case
from schemas.enums import Layer

RNIC_LINK: Final = "link:leaf:p1-0--rnic:h3/r0"
# Long enough for verdict and second thoughts.
HARD_S: Final = 20.0
QUEUE: Final = ("high_latency", "packet_loss", "congestion", "buffer_loss")


def _gray(
    name: str,
    kind: str,
    kinds: tuple[str, ...],
    seconds: float,
    component_ids: tuple[str, ...] = (LINK,),
    **params: float,
) -> Case:
    return Case(
        name=name, kind=kind, target=component_ids[0], params=params, fault_kinds=kinds,
        component_ids=component_ids, layer=Layer.UNDERLAY, timeout_s=seconds,
    )  # fmt: skip


def _benign(name: str, kind: str, target: str, seconds: float, **params: float) -> Case:
    return Case(
        name=name, kind=kind, target=target, params=params, component_ids=(target,),
        layer=KINDS[kind].layer, timeout_s=seconds, excused=True,
    )  # fmt: skip


HARD: Final = (
    *(
        replace(case, timeout_s=HARD_S if case.hard else 2 * HARD_S)
        for case in SUITE
        if case.name
        in (
            "link cut", "switch off", "flow-table hole", "agent killed", "port shut",
            "flapping port", "RNIC's cable cut", "wrong MTU", "blackhole route",
            "container killed",
        )
    ),
    Case(
        # Its light is on and its state is up; what it should send does not leave it.
        name="silent port", kind="link-cut", target=RNIC_LINK, params={"sender": "leaf:p1-0"},
        hard=True, fault_kinds=("connectivity", "rnic_unreachable", "port_down"),
        component_ids=(RNIC_LINK, "rnic:h3/r0"), layer=Layer.UNDERLAY, timeout_s=HARD_S,
    ),
)  # fmt: skip

GRAY: Final = (
    _gray("3 % loss", "link-loss", ("packet_loss",), 120.0, percent=3.0),
    _gray("+5 ms delay", "link-delay", ("high_latency",), 90.0, ms=5.0),
    _gray("1 % loss", "link-loss", ("packet_loss",), 180.0, percent=1.0),
    _gray("5 ms jitter", "link-jitter", ("high_latency",), 90.0, ms=5.0),
    _gray(
        "+5 ms for a fifth of the time", "link-delay", ("high_latency",), 180.0,
        ms=5.0, duty=20.0, period_s=10.0,
    ),
)  # fmt: skip

QUEUES: Final = (
    # At an RNIC: between switches ECMP may send none of the job's few 5-tuples through the port,
    # and then nothing waits there. An RNIC sends some 6 Mbit/s on average, a megabyte at a time.
    _gray(
        "slow port under the job", "link-rate", QUEUE, 120.0, (RNIC_LINK, "rnic:h3/r0"),
        mbit=10.0, ms=50.0,
    ),
    _gray("full queue of a slow port", "link-rate", QUEUE, 120.0, mbit=10.0, ms=50.0, cross=95.0),
    _gray(
        "fair queue of a slow port", "link-rate-fair", QUEUE, 120.0, mbit=10.0, ms=5.0, cross=95.0
    ),
)  # fmt: skip

CONFOUNDERS: Final = (
    _benign("burst of 15 s", "cross-traffic", LINK, 15.0, mbit=50.0),
    _benign("starved agent", "agent-starve", "agent-h1", 60.0, percent=20.0),
    # An idle lab's agent needs some 2 % of a processor: with 5 % it is held up by nothing.
    _benign("agent with a quota", "agent-quota", "agent-h2", 60.0, percent=1.0),
    _benign("burst of 60 s", "cross-traffic", RNIC_LINK, 60.0, mbit=50.0),
    _benign("agent beside busy processes", "agent-crowd", "agent-h0", 60.0, count=3.0),
    _benign("drained host", "agent-drain", "agent-h3", 60.0),
    # The last one: with the job all probes end.
    _benign("task ends", "task-end", "job1", 60.0),
)

RECORDED: Final[Mapping[str, tuple[Case, ...]]] = {
    "hard": HARD,
    "gray": GRAY,
    "queues": QUEUES,
    "confounders": CONFOUNDERS,
}
