"""Faults that come and go by themselves, as those of a loose cable do."""

from collections.abc import Callable, Container
from typing import Final

from ops.lab.events import EventLoop
from ops.lab.faults import FaultSpec
from ops.lab.truth import Action
from schemas.units import MS_NS, SECOND_NS

FLAP: Final = "link-flap"
ALWAYS: Final = 100.0

Change = Callable[[str, FaultSpec], object]


def turns_ns(spec: FaultSpec) -> tuple[int, int] | None:
    """Return for how long a fault is there and then gone, by turns; None: it stays.

    A flapping link is down for half of its period `ms`; others are there for the share `duty`
    (in per cent) of `period_s`, and stay where that is all of it.
    """
    if spec.kind == FLAP:
        half_ns = round(spec.params["ms"] * MS_NS / 2)
        return half_ns, half_ns
    duty = spec.params.get("duty", ALWAYS)
    if duty >= ALWAYS:
        return None
    period_ns = round(spec.params["period_s"] * SECOND_NS)
    there_ns = round(period_ns * duty / ALWAYS)
    return there_ns, period_ns - there_ns


class Flapping:
    """Takes faults out and puts them in by turns while they are in force.

    `put` and `take` are given a fault's id and what it is; `record` is told of each
    change; `active` holds the faults in force: one that was healed flaps no more.
    """

    def __init__(
        self,
        loop: EventLoop,
        active: Container[str],
        *,
        put: Change,
        take: Change,
        record: Callable[[Action, str, FaultSpec], object],
    ) -> None:
        self._loop = loop
        self._active = active
        self._put = put
        self._take = take
        self._record = record

    def start(self, fault_id: str, spec: FaultSpec) -> None:
        """Let a fault that was just put in flap, if its kind does."""
        turns = turns_ns(spec)
        if turns is not None:
            self._plan(fault_id, spec, turns, down=False)

    def _plan(self, fault_id: str, spec: FaultSpec, turns: tuple[int, int], *, down: bool) -> None:
        there_ns, gone_ns = turns
        self._loop.call_later(
            gone_ns if down else there_ns, lambda: self._flip(fault_id, spec, turns, down=down)
        )

    def _flip(self, fault_id: str, spec: FaultSpec, turns: tuple[int, int], *, down: bool) -> None:
        if fault_id not in self._active:
            return  # healed meanwhile
        if down:
            self._put(fault_id, spec)
        else:
            self._take(fault_id, spec)
        self._record("down" if down else "up", fault_id, spec)
        self._plan(fault_id, spec, turns, down=not down)
