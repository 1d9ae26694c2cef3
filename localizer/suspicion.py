"""Which 5-tuples are bad so that the network may be at fault for it."""

from dataclasses import dataclass, field, fields
from typing import Final

from localizer.anomalies import AnomalyBoard, Symptom
from localizer.liveness import Liveness
from localizer.paths import FlowKey, PathBook
from localizer.roster import Roster
from localizer.states import StateBook
from localizer.topology import Topology
from localizer.units import SECOND_NS
from schemas.enums import AnomalyKind

# A prober that took longer over its own work than half of the rise made it itself.
OWN_DELAY_SHARE: Final = 0.5
# Loss that began so long before is a share that is lost, and not the beginning of a cut.
EARLIER_NS: Final = 2 * SECOND_NS
# Open anomalies are repeated every 5 s. One that is not has lost its prober, or the prober
# its clock: it accuses nobody any more.
STALE_NS: Final = 8 * SECOND_NS
# A trace that ended so soon after the first lost probe may have begun before it.
TRACE_SLACK_NS: Final = SECOND_NS // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that observations are made of."""

    topology: Topology
    paths: PathBook
    roster: Roster
    liveness: Liveness
    board: AnomalyBoard
    states: StateBook


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFlow:
    """A 5-tuple that something is wrong with.

    `open`: now, not a moment ago. `replyless`: cut off, though every hop of its trace but the
    target answers. `traced`: since it is cut off. `late`: those of its components that are at
    fault for longer and had let it pass. `cut`: nothing gets through; `lossy`: some probes are
    lost and others not. `onset_ns`: when its first evidence was sent; `seen_ns`: when it was
    first known; `ended_ns`: when it was said last that it is bad, or that it is over.
    """

    key: FlowKey
    symptoms: tuple[Symptom, ...]
    components: tuple[str, ...]
    prober: str
    responder: str | None
    open: bool
    replyless: bool = False
    traced: bool = False
    late: frozenset[str] = frozenset()
    # Asked for again and again, of a hundred thousand of them: worked out once.
    cut: bool = field(init=False)
    lossy: bool = field(init=False)
    onset_ns: int = field(init=False)
    seen_ns: int = field(init=False)
    ended_ns: int = field(init=False)

    def __post_init__(self) -> None:
        """Work out what the symptoms say together."""
        symptoms, put = self.symptoms, object.__setattr__
        kinds = [s.kind for s in symptoms]
        cut = AnomalyKind.CONNECTIVITY in kinds
        put(self, "cut", cut)
        put(self, "lossy", not cut and AnomalyKind.LOSS in kinds)
        put(self, "onset_ns", min([s.onset_ns for s in symptoms]))
        put(self, "seen_ns", min([s.seen_ns for s in symptoms]))
        put(self, "ended_ns", max([s.last_ns for s in symptoms]))

    def cleared(self, components: tuple[str, ...], *, replyless: bool, traced: bool) -> "BadFlow":
        """Return the same with what its traces say; `replace` would work out all else anew."""
        made, put = object.__new__(BadFlow), object.__setattr__
        for name in KEPT:
            put(made, name, getattr(self, name))
        put(made, "components", components)
        put(made, "replyless", replyless)
        put(made, "traced", traced)
        return made


KEPT: Final = tuple(
    f.name for f in fields(BadFlow) if f.name not in {"components", "replyless", "traced"}
)
