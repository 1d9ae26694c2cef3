"""What each suspect of an explanation accounts for, and the facts that support it.

In: `Evidence` and the `Explanation` found for it. Out: one `Case` per suspect.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from scipy.special import bdtrc

from localizer.facts.anomalies import LOSSY
from localizer.facts.bad_flows import BadFlow
from localizer.inference.causes import Cause, Reason
from localizer.inference.evidence import Evidence
from localizer.inference.search import Explanation, Suspect
from schemas.enums import AnomalyFamily
from schemas.ids import FlowId
from schemas.units import MS_NS

# What a fault hits shows within a round and its retries.
ROUND_NS: Final = 1_500 * MS_NS
# Level of the sign test of whether 5-tuples have risen by more than others: how often two faults
# are told where there is one.
CHANCE_OF_MORE: Final = 1e-3
Shares = tuple[tuple[Cause, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A suspect with the bad 5-tuples that it explains.

    Attributes
    ----------
    shares
        (cause, posterior probability) of the suspect and its rivals, best first.
    doubt
        Posterior probability that none of them is at fault.
    open
        Those of `bad` that are bad now.
    good
        Number of good 5-tuples that cross the cause.
    replies
        Bad 5-tuples that cross no suspect, but whose replies may cross this one.
    unseen
        Of a storm, 5-tuples that are bad now and cross the cause, or are the agent's, and were not
        looked at.
    """

    evidence: Evidence
    cause: Cause
    shares: Shares
    doubt: float
    bad: tuple[BadFlow, ...]
    open: tuple[BadFlow, ...]
    good: int
    replies: frozenset[FlowId] = frozenset()
    unseen: frozenset[FlowId] = frozenset()

    @property
    def count(self) -> int:
        """How many 5-tuples that cross the cause are bad now."""
        return len(self.open) + len(self.unseen)

    @property
    def own(self) -> tuple[BadFlow, ...]:
        """Those bad now whose replies cannot have been lost at another open fault."""
        return tuple(flow for flow in self.open if flow.key not in self.evidence.echoing)

    @property
    def onset_ns(self) -> int:
        """Onset of the fault, without 5-tuples that an open fault of another component explains."""
        others = self.evidence.known - {self.cause.name}
        own = [
            f.onset_ns
            for f in self.bad
            if f.passed_before.issuperset(others.intersection(f.components))
        ]
        return min(own or (flow.onset_ns for flow in self.bad))

    def grown_ns(self, count: int) -> int:
        """Return when so many 5-tuples were known to be bad; if there are fewer, when the first.

        What waits for more evidence counts from then: a single 5-tuple that has been bad by chance
        for long makes what joins it no older.
        """
        seen = sorted(flow.seen_ns for flow in self.bad)
        return seen[count - 1] if len(seen) >= count else seen[0]

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Between which times each bad 5-tuple became bad (ns)."""
        return tuple({(flow.onset_ns, max(flow.onset_ns, flow.seen_ns)) for flow in self.bad})

    @property
    def share(self) -> float:
        """Posterior probability of the cause."""
        return dict(self.shares).get(self.cause, 0.0)


def cases(evidence: Evidence, explanation: Explanation) -> list[Case]:
    """Return one case for each suspect of an explanation."""
    suspects: dict[Cause, tuple[Suspect, Shares]] = {}
    chosen = [evidence.causes[suspect.column] for suspect in explanation.suspects]
    faulty = {cause.name for cause in chosen if cause.reason is Reason.COMPONENT}
    for suspect, cause in zip(explanation.suspects, chosen, strict=True):
        believed = [(evidence.causes[column], belief) for column, belief in suspect.shares]
        shares = evidence.bonds.share_out(believed, faulty - {cause.name})
        best = shares[0][0] if shares else cause
        # The best rival may score marginally better than the chosen column: ties go by name. Of a
        # bond two may have been suspects: the surer one counts.
        if best not in suspects or suspect.doubt < suspects[best][0].doubt:
            suspects[best] = suspect, shares
    blamed = {cause.name for cause in suspects if cause.reason is Reason.COMPONENT}
    through: defaultdict[str, list[BadFlow]] = defaultdict(list)
    replies: defaultdict[str, set[FlowId]] = defaultdict(set)
    for flow in evidence.bad if blamed else ():
        met = blamed.intersection(flow.components) - flow.passed_before
        for component in met:
            through[component].append(flow)
        for component in () if met else blamed.intersection(evidence.replies.shares(*flow.key[:2])):
            replies[component].add(flow.key)
    if len(blamed) > 1:
        through = without_earlier(through)
    return [
        _case(evidence, cause, suspect.doubt, shares, through=through, replies=replies)
        for cause, (suspect, shares) in suspects.items()
    ]


def without_earlier(
    through: Mapping[str, list[BadFlow]],
) -> defaultdict[str, list[BadFlow]]:
    """Leave what was bad before a suspect shows to the earlier suspects that it crosses.

    A suspect shows from the first 5-tuple on that crosses no other suspect. What crosses it as well
    as an older fault, and is bad since that one began, makes the suspect neither older nor larger.
    """
    suspects: defaultdict[FlowId, list[str]] = defaultdict(list)
    for name, flows in through.items():
        for flow in flows:
            suspects[flow.key].append(name)
    since_ns: dict[str, int] = {}
    for name, flows in through.items():
        alone = [flow.onset_ns for flow in flows if len(suspects[flow.key]) == 1]
        if alone:
            since_ns[name] = min(alone) - ROUND_NS
    found: defaultdict[str, list[BadFlow]] = defaultdict(list)
    for name, flows in through.items():
        begin_ns = since_ns.get(name, 0)
        found[name] = [
            flow
            for flow in flows
            if flow.onset_ns >= begin_ns
            or all(since_ns.get(other, begin_ns) >= begin_ns for other in suspects[flow.key])
        ]
    return found


def without_parts(found: Sequence[Case]) -> list[Case]:
    """Leave out slow components whose delay is that of another one which all of theirs cross.

    Delays add up: what crosses two slow components rises by more than what crosses only one. Not
    all 5-tuples of a slow host show at once, and those of one RNIC may be the first.
    """
    return [case for case in found if not any(_is_part(case, o) for o in found if o is not case)]


def _is_part(case: Case, whole: Case) -> bool:
    causes = case.cause, whole.cause
    if any(cause.reason is not Reason.COMPONENT for cause in causes):
        return False
    if not all(whole.cause.name in flow.components for flow in case.open):
        return False
    mine = {flow.key for flow in case.open}
    others = rises_ns(flow for flow in whole.open if flow.key not in mine)
    rises = rises_ns(case.open)
    if not others or not rises:
        return False
    usual = median(others)
    more = sum(rise > usual for rise in rises)
    return float(bdtrc(more - 1, len(rises), 0.5)) > CHANCE_OF_MORE


def rises_ns(flows: Iterable[BadFlow]) -> list[int]:
    """Return by how much each 5-tuple has risen, where it is known."""
    rises = ([s.shift_ns for s in f.symptoms if s.shift_ns is not None] for f in flows)
    return [max(one) for one in rises if one]


def _case(
    evidence: Evidence,
    cause: Cause,
    doubt: float,
    shares: Shares,
    *,
    through: Mapping[str, list[BadFlow]],
    replies: Mapping[str, set[FlowId]],
) -> Case:
    if cause.reason is Reason.COMPONENT:
        bad = tuple(through.get(cause.name, ()))
    else:
        bad = tuple(flow for flow in evidence.bad if _hits(cause, flow, evidence.hosts))
    # What had been bad for long before is another fault's.
    since_ns = min((flow.onset_ns for flow in bad), default=0) - ROUND_NS
    return Case(
        evidence=evidence,
        cause=cause,
        shares=shares,
        doubt=doubt,
        bad=bad,
        open=tuple(flow for flow in bad if flow.open),
        good=int(evidence.good[evidence.causes.index(cause)]),
        replies=frozenset(replies.get(cause.name, ())),
        unseen=evidence.unseen.through(cause, since_ns),
    )


def _hits(cause: Cause, flow: BadFlow, hosts: Mapping[str, str]) -> bool:
    match cause.reason:
        case Reason.PROBER:
            return cause.name == flow.prober
        case Reason.RESPONDER:
            return cause.name == flow.responder
        case Reason.STARVED:
            return cause.name in (hosts.get(flow.prober), hosts.get(flow.responder or ""))
        case Reason.REPLY:
            return flow.replyless
        case _:
            return True


def common_agents(flows: tuple[BadFlow, ...]) -> set[str]:
    """Return the agents at an end of every one of the 5-tuples."""
    found: set[str | None] = {flows[0].prober, flows[0].responder} if flows else set()
    for flow in flows:
        found &= {flow.prober, flow.responder}
        if not found:
            break
    return {agent for agent in found if agent is not None}


def loss_counts(case: Case) -> list[str]:
    """Return a sentence on how many probes the lossy 5-tuples recently lost, if any did."""
    lossy = [s for f in case.open for s in f.symptoms if s.kind in LOSSY and s.sent > 0]
    if not lossy:
        return []
    sent, lost = sum(s.sent for s in lossy), sum(s.lost for s in lossy)
    return [f"{lost} of {sent} probes of the lossy ones were lost ({lost / sent:.1%})"]


def hop_facts(case: Case) -> list[str]:
    """Return a sentence on the single probes of traces that crossed the cause, if any did."""
    evidence = case.evidence
    hops = evidence.problem.hops
    rows = hops.rows[hops.columns == evidence.causes.index(case.cause)]
    if not len(rows):
        return []
    weights = hops.weight[rows]
    count, bad = round(weights.sum()), round(weights[hops.bad[rows]].sum())
    word = "lost" if evidence.family is AnomalyFamily.LOSS else "late"
    return [f"of {count} single probes of traces that crossed it, {bad} were {word}"]
