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


# Not frozen: making one would take half as long again, and a storm makes a hundred thousand.
@dataclass(slots=True, kw_only=True, eq=False)
class BadFlow:
    """A 5-tuple that something is wrong with; nobody changes it.

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
        symptoms = self.symptoms
        if len(symptoms) == 1:
            # As nearly all of a storm.
            only = symptoms[0]
            self.cut = only.kind is AnomalyKind.CONNECTIVITY
            self.lossy = only.kind is AnomalyKind.LOSS
            self.onset_ns, self.seen_ns = only.onset_ns, only.seen_ns
            self.ended_ns = only.last_ns
            return
        kinds = [s.kind for s in symptoms]
        self.cut = AnomalyKind.CONNECTIVITY in kinds
        self.lossy = not self.cut and AnomalyKind.LOSS in kinds
        self.onset_ns = min([s.onset_ns for s in symptoms])
        self.seen_ns = min([s.seen_ns for s in symptoms])
        self.ended_ns = max([s.last_ns for s in symptoms])

    def cleared(self, components: tuple[str, ...], *, replyless: bool, traced: bool) -> "BadFlow":
        """Return the same with what its traces say; `replace` would work out all else anew."""
        made = object.__new__(BadFlow)
        for name in FIELDS:
            setattr(made, name, getattr(self, name))
        made.components, made.replyless, made.traced = components, replyless, traced
        return made


FIELDS: Final = tuple(f.name for f in fields(BadFlow))
