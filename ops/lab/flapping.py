"""Faults that come and go by themselves, as those of a loose cable do."""

from collections.abc import Callable, Container
from typing import Final

from ops.lab.events import EventLoop
from ops.lab.faults import FaultSpec
from ops.lab.truth import Action
from schemas.units import MS_NS

# Kinds that flap; they have a period, `ms`.
FLAPPING: Final = frozenset({"link-flap"})

Change = Callable[[str, FaultSpec], object]


class Flapping:
    """Takes faults out and puts them in by turns, half a period each, while they are in force.

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
        if spec.kind in FLAPPING:
            self._plan(fault_id, spec, down=False)

    def _plan(self, fault_id: str, spec: FaultSpec, *, down: bool) -> None:
        half_ns = round(spec.params["ms"] * MS_NS / 2)
        self._loop.call_later(half_ns, lambda: self._flip(fault_id, spec, down=down))

    def _flip(self, fault_id: str, spec: FaultSpec, *, down: bool) -> None:
        if fault_id not in self._active:
            return  # healed meanwhile
        if down:
            self._put(fault_id, spec)
        else:
            self._take(fault_id, spec)
        self._record("down" if down else "up", fault_id, spec)
        self._plan(fault_id, spec, down=not down)
