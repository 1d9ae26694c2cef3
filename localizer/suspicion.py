"""Which 5-tuples are bad so that the network may be at fault for it."""

from dataclasses import dataclass, replace
from typing import Final

from localizer.anomalies import FAMILY, AnomalyBoard, Family, Symptom
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
    fault for longer and had let it pass.
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

    @property
    def cut(self) -> bool:
        """Whether nothing gets through."""
        return any(s.kind is AnomalyKind.CONNECTIVITY for s in self.symptoms)

    @property
    def lossy(self) -> bool:
        """Whether some probes are lost and others not."""
        return not self.cut and any(s.kind is AnomalyKind.LOSS for s in self.symptoms)

    @property
    def onset_ns(self) -> int:
        """When its first evidence was sent."""
        return min(s.onset_ns for s in self.symptoms)

    @property
    def seen_ns(self) -> int:
        """When it was first known."""
        return min(s.seen_ns for s in self.symptoms)

    @property
    def ended_ns(self) -> int:
        """When it was said last that it is bad, or that it is over."""
        return max(s.last_ns for s in self.symptoms)


def bad_flows(
    sources: Sources,
    family: Family,
    now_ns: int,
    explained: frozenset[FlowKey],
    leaky: frozenset[str] = frozenset(),
) -> list[BadFlow]:
    """Return the 5-tuples of a family that the network may be at fault for, sorted by key.

    Left out: what nobody repeats, what `explained` holds, what a dead or just returned agent
    accounts for, latency where probes are lost, and latency of the prober's own making.
    `leaky`: components that are known to lose a share of the packets.
    """
    found = []
    for key, symptoms in sources.board.family(family):
        kept = tuple(
            s
            for s in symptoms
            if now_ns - s.last_ns <= STALE_NS and _counts(sources, family, key, s, now_ns)
        )
        if kept and key not in explained:
            found.append(_bad_flow(sources, key, kept, is_open=True))
    if family is Family.LOSS:
        for key, symptom in sources.board.brief_cuts():
            if key not in explained and _counts(sources, family, key, symptom, now_ns):
                found.append(_bad_flow(sources, key, (symptom,), is_open=False))
    if family is Family.LOSS:
        lossy = [flow for flow in found if flow.lossy]
        found = [_exonerated(sources, flow, lossy, leaky) for flow in found]
    return sorted(found, key=lambda flow: flow.key)


def _exonerated(
    sources: Sources, flow: BadFlow, lossy: list[BadFlow], leaky: frozenset[str]
) -> BadFlow:
    """Take out of a 5-tuple that is cut off what its lost probes have passed.

    Replies may come another way, and be lost there. But what loses a share of the packets
    lets some pass, and cuts 5-tuples off by chance: where others lost some before, nothing is
    taken out. (At a cut, some lose their first probes for a moment, too.)
    """
    if not flow.cut or not flow.open:
        return flow
    since_ns = flow.onset_ns + TRACE_SLACK_NS
    paths = sources.paths
    traced = paths.traced_after(flow.key, since_ns)
    passed = paths.passed(flow.key, since_ns)
    before_ns = flow.onset_ns - EARLIER_NS
    if not passed.isdisjoint(leaky) or any(
        o.onset_ns < before_ns and not passed.isdisjoint(o.components) for o in lossy
    ):
        return replace(flow, traced=traced)
    return replace(
        flow,
        components=tuple(c for c in flow.components if c not in passed),
        replyless=paths.only_target_silent(flow.key, since_ns),
        traced=traced,
    )


def _bad_flow(
    sources: Sources, key: FlowKey, symptoms: tuple[Symptom, ...], *, is_open: bool
) -> BadFlow:
    onset_ns = min(s.onset_ns for s in symptoms)
    return BadFlow(
        key=key,
        symptoms=symptoms,
        components=sources.paths.path(key, before_ns=onset_ns).components,
        prober=symptoms[0].agent_id,
        responder=sources.roster.agent_of(key[1]),
        open=is_open,
    )


def _counts(sources: Sources, family: Family, key: FlowKey, symptom: Symptom, now_ns: int) -> bool:
    liveness = sources.liveness
    responder = sources.roster.agent_of(key[1])
    for agent in (symptom.agent_id, responder):
        # What is over cannot be cleared any more: it is the agent's as long as it is remembered.
        long = symptom.kind is AnomalyKind.LOSS or symptom.over_ns is not None
        if agent is not None and liveness.excused(agent, symptom.onset_ns, now_ns, loss=long):
            return False
    if family is Family.LOSS:
        return True
    kinds = sources.board.open(key)
    if any(FAMILY[kind] is Family.LOSS for kind in kinds):
        return False
    shift_ns = symptom.shift_ns
    if shift_ns is None:
        return True
    delay_ns = symptom.host_delay_ns or 0
    return shift_ns > 0 and delay_ns < OWN_DELAY_SHARE * shift_ns
