"""The protocol of a diagnoser, and how its accusations window by window become verdicts."""

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from arena.baselines.observing import Window
from arena.faults.truth import Verdict
from localizer.network.topology import Topology
from schemas.enums import Layer
from schemas.units import SECOND_NS

# A verdict ends after two windows without: one may miss a fault that comes and goes.
END_NS: Final = 60 * SECOND_NS


class PluginError(RuntimeError):
    """A diagnoser that cannot be had, or that does not keep to the contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accusation:
    """A component that a diagnoser holds sick in one window.

    Attributes
    ----------
    component_id : as in topology.v1
    kind : name of a kind of fault (`localizer.verdict.catalogue.KINDS`)
    score : the greater, the surer; any scale
    also : components that the method cannot tell from it, best first
    """

    component_id: str
    kind: str
    score: float
    also: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """All components it names, the accused one first."""
        return (self.component_id, *self.also)


@runtime_checkable
class Diagnoser(Protocol):
    """Something that finds faults. One object per scenario; windows come in order.

    It may also have `window_ns`, the length of the windows that it wants (30 s
    otherwise), and `close()`, which is called after the last window.
    """

    @property
    def name(self) -> str:
        """What it is called in results and reports."""
        ...

    def observe(self, window: Window) -> list[Accusation]:
        """Return what is sick in a window: each component once, empty if nothing is."""
        ...


@dataclass(slots=True)
class _Open:
    accusation: Accusation
    opened_ns: int
    seen_ns: int


class VerdictBook:
    """Accusations of one diagnoser over a scenario, as verdicts.

    An accusation goes on with a verdict that is open if one names the accused component
    of the other. A verdict says what was last said of it (as for our own pipeline,
    `arena.faults.truth.verdicts_of`), counts from when its first window was had, and ends after
    `END_NS` without.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._verdicts: list[_Open] = []
        self._topology: Topology | None = None

    def record_window(self, window: Window, accusations: list[Accusation]) -> None:
        """Record the accusations of a window."""
        self._topology = window.network.topology
        free = [v for v in self._verdicts if window.begin_ns - v.seen_ns < END_NS]
        for said in sorted(accusations, key=lambda a: (-a.score, a.component_id)):
            known = next((v for v in free if said.component_id == v.accusation.component_id), None)
            known = known or next((v for v in free if _same(v.accusation, said)), None)
            if known is None:
                self._verdicts.append(_Open(said, window.told_ns, window.end_ns))
                continue
            free.remove(known)
            known.accusation, known.seen_ns = said, window.end_ns

    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdicts in the order in which they were opened."""
        return tuple(
            Verdict(
                fault_id=f"{self._name}-{number}",
                kind=v.accusation.kind,
                layer=(layer := self._layer(v.accusation.component_id)),
                candidates=v.accusation.named,
                opened_ns=v.opened_ns,
                decided=not v.accusation.also,
                pages=layer is not Layer.HOST,
            )
            for number, v in enumerate(self._verdicts)
        )

    def _layer(self, component_id: str) -> Layer:
        found = None if self._topology is None else self._topology.get(component_id)
        return Layer.UNKNOWN if found is None else found.layer


def _same(known: Accusation, said: Accusation) -> bool:
    return said.component_id in known.named or known.component_id in said.named
