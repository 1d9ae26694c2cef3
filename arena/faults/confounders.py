"""Events of healthy clusters that are no network fault: a diagnosis must not report them.

Crashed agents are reported (as `agent_dead`), but page nobody: a warning of the host layer is no
page. Everything else here must leave no verdict at all.
"""

from collections.abc import Callable
from typing import Final

from arena.faults.effects import Effect
from arena.faults.injection import Injection
from arena.faults.kinds import Draw
from arena.faults.truth import TrueFault
from arena.world.hosts import HostEvent, HostTrouble
from arena.world.topology import agent_id
from schemas.enums import Layer
from schemas.units import MS_NS, SECOND_NS, US_NS

Build = Callable[[Draw, int], Injection]


def _crash(draw: Draw, host: int) -> Injection:
    span = draw.span
    event = HostEvent(
        host=host, trouble=HostTrouble.CRASH, begin_ns=span.begin_ns, end_ns=span.end_ns
    )
    truth = TrueFault(
        fault_id=f"agent-{host}", kind="agent_dead", layer=Layer.HOST,
        components=frozenset({agent_id(host)}), begin_ns=span.begin_ns, end_ns=span.end_ns,
        hard=True,
    )  # fmt: skip
    return Injection(hosts=[event], truth=[truth])


def _maintenance(draw: Draw, host: int) -> Injection:
    span = draw.span
    return Injection(
        hosts=[HostEvent(host=host, trouble=HostTrouble.LEAVE, begin_ns=span.begin_ns,
                         end_ns=span.end_ns)]
    )  # fmt: skip


def _starved(draw: Draw, host: int) -> Injection:
    """CPU starvation: own delays of milliseconds, and now and then nothing for a moment."""
    span = draw.span
    events = [
        HostEvent(host=host, trouble=HostTrouble.BUSY, begin_ns=span.begin_ns, end_ns=span.end_ns,
                  value_ns=round(draw.between(0.2, 4) * MS_NS))
    ]  # fmt: skip
    at_ns = span.begin_ns
    while span.end_ns is not None and at_ns < span.end_ns:
        at_ns += round(draw.between(8, 20) * SECOND_NS)
        events.append(
            HostEvent(host=host, trouble=HostTrouble.STALL, begin_ns=at_ns,
                      end_ns=at_ns + round(draw.between(0.3, 2.5) * SECOND_NS))
        )  # fmt: skip
    return Injection(hosts=events)


def _clock(draw: Draw, host: int) -> Injection:
    span = draw.span
    offset_ns = round(draw.between(0.5, 90) * SECOND_NS) * (1 if draw.rng.random() < 0.5 else -1)
    return Injection(
        hosts=[HostEvent(host=host, trouble=HostTrouble.CLOCK, begin_ns=span.begin_ns,
                         end_ns=span.end_ns, value_ns=offset_ns)]
    )  # fmt: skip


def _burst(draw: Draw, _: int) -> Injection:
    """Fill the queues of a few links for some seconds: a checkpoint, an all-to-all."""
    fabric = draw.cluster.fabric
    links = draw.places.watched(fabric.numbers(5))
    few = draw.rng.choice(links, min(len(links), int(draw.rng.integers(2, 8))), replace=False)
    begin_ns = draw.span.begin_ns
    return Injection(
        effects=[
            Effect(component=int(link), begin_ns=begin_ns,
                   end_ns=begin_ns + round(draw.between(2, 8) * SECOND_NS),
                   delay_ns=round(draw.between(10, 80) * US_NS))
            for link in few
        ]
    )  # fmt: skip


CONFOUNDERS: Final[dict[str, Build]] = {
    "agent_crash": _crash,
    "maintenance": _maintenance,
    "cpu_starvation": _starved,
    "clock_step": _clock,
    "burst": _burst,
}
