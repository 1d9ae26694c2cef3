"""The candidate causes of bad observations, and their column numbers in the inference.

A cause is a component of the network, or a source of noise that is not the network's fault: a busy
prober, a stalled responder, a starved host, a lost reply, a cluster-wide disturbance. Each cause is
one column of the observation tables in `localizer.inference.tables`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

# A storm makes a hundred thousand components candidates, and the same ones again at the next step.
REMEMBERED: Final = 1 << 18
# Sets of causes whose columns are remembered: while all stays, decisions of both families have the
# same candidates each time.
REMEMBERED_COLUMNS: Final = 2
# Pairs (column, probability that the observation crosses it).
PossibleColumns = tuple[tuple[int, float], ...]


class Reason(Enum):
    """Why an observation can be bad."""

    COMPONENT = "a component of the network is at fault"
    PROBER = "an agent is too busy to probe well"
    RESPONDER = "an agent is too busy to answer well"
    STARVED = "late answers show that an agent's host lacks CPU"
    REPLY = "the reply is lost on a way that no trace shows"
    GLOBAL = "all is bad at once: this machine, this cluster"

    # Hash by identity: the hash of `Enum` is a Python call, and each cause needs several.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, order=True)
class Cause:
    """One candidate cause, that is one column.

    `name` is the id of a component, of an agent or, of a starved one, of its host; or empty.
    """

    order: int
    name: str
    reason: Reason

    @classmethod
    @lru_cache(maxsize=REMEMBERED)
    def of(cls, reason: Reason, name: str = "") -> "Cause":
        """Return the cause; sorting by cause breaks ties."""
        return cls(ORDER[reason], name, reason)


ORDER = {reason: order for order, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class Columns:
    """Column numbers of the causes, grouped by reason."""

    components: dict[str, int]
    probers: dict[str, int]
    responders: dict[str, int]
    global_cause: int | None
    reply: int | None = None
    starved: dict[str, int] = field(default_factory=dict)
    # What `certain_columns` has returned.
    _certain: dict[tuple[tuple[str, ...], str, str | None], tuple[int, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    @lru_cache(maxsize=REMEMBERED_COLUMNS)
    def of(cls, causes: tuple[Cause, ...], starved: tuple[tuple[str, str], ...] = ()) -> "Columns":
        """Return the columns of causes that are numbered in the given order.

        `starved`: agents that lack CPU, each with its host.
        """
        found: dict[Reason, dict[str, int]] = {reason: {} for reason in Reason}
        for place, cause in enumerate(causes):
            found[cause.reason][cause.name] = place
        return cls(
            found[Reason.COMPONENT],
            found[Reason.PROBER],
            found[Reason.RESPONDER],
            found[Reason.GLOBAL].get(""),
            found[Reason.REPLY].get(""),
            {agent: found[Reason.STARVED][host] for agent, host in starved},
        )

    def possible_columns(
        self, returns: Mapping[str, float], crossed: tuple[int, ...]
    ) -> PossibleColumns:
        """Return the columns that a reply may cross, without those crossed for certain."""
        places = self.components
        return tuple(
            (places[c], chance)
            for c, chance in returns.items()
            if c in places and places[c] not in crossed
        )

    def certain_columns(
        self, components: tuple[str, ...], prober: str, responder: str | None
    ) -> tuple[int, ...]:
        """Return the columns of everything that can make an observation with this path bad."""
        key = components, prober, responder
        known = self._certain.get(key)
        if known is None:
            known = self._certain[key] = self._columns(components, prober, responder)
        return known

    def _columns(
        self, components: tuple[str, ...], prober: str, responder: str | None
    ) -> tuple[int, ...]:
        places = self.components
        found = [places[c] for c in components if c in places]
        if prober in self.probers:
            found.append(self.probers[prober])
        if responder is not None and responder in self.responders:
            found.append(self.responders[responder])
        for agent in (prober, responder) if self.starved else ():
            if agent in self.starved:
                found.append(self.starved[agent])
        if self.global_cause is not None:
            found.append(self.global_cause)
        return tuple(found)
