"""What each suspect of an explanation accounts for, and what can be said of it. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from localizer.facts.anomalies import Family
from localizer.facts.bad_flows import BadFlow
from localizer.inference.causes import Cause, Reason
from localizer.inference.evidence import Evidence
from localizer.inference.search import Explanation, Suspect
from schemas.enums import AnomalyKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A suspect with what it explains; `open`: those of the bad ones that are bad now."""

    evidence: Evidence
    cause: Cause
    shares: tuple[tuple[Cause, float], ...]
    doubt: float
    bad: tuple[BadFlow, ...]
    open: tuple[BadFlow, ...]
    good: int

    @property
    def own(self) -> tuple[BadFlow, ...]:
        """Those that are bad now, and not perhaps by replies through another open fault."""
        return tuple(flow for flow in self.open if flow.key not in self.evidence.echoing)

    @property
    def onset_ns(self) -> int:
        """When it began: with what no open fault of another component accounts for."""
        others = self.evidence.known - {self.cause.name}
        own = [
            f.onset_ns
            for f in self.bad
            if f.passed_before.issuperset(others.intersection(f.components))
        ]
        return min(own or (flow.onset_ns for flow in self.bad))

    @property
    def share(self) -> float:
        """Share of the belief in the cause itself."""
        return dict(self.shares).get(self.cause, 0.0)


def cases(evidence: Evidence, explanation: Explanation) -> list[Case]:
    """Return what each suspect of an explanation accounts for."""
    # The best rival may be better than the chosen one by a hair: ties go by name.
    best = [s.shares[0][0] if s.shares else s.column for s in explanation.suspects]
    blamed = {c.name for c in (evidence.causes[b] for b in best) if c.reason is Reason.COMPONENT}
    through: defaultdict[str, list[BadFlow]] = defaultdict(list)
    for flow in evidence.bad if blamed else ():
        for component in flow.components:
            if component in blamed and component not in flow.passed_before:
                through[component].append(flow)
    return [
        _case(evidence, suspect, place, through)
        for suspect, place in zip(explanation.suspects, best, strict=True)
    ]


def _case(
    evidence: Evidence, suspect: Suspect, best: int, through: Mapping[str, list[BadFlow]]
) -> Case:
    causes = evidence.causes
    cause = causes[best]
    if cause.reason is Reason.COMPONENT:
        bad = tuple(through.get(cause.name, ()))
    else:
        bad = tuple(flow for flow in evidence.bad if _hits(cause, flow))
    return Case(
        evidence=evidence,
        cause=cause,
        shares=tuple((causes[column], share) for column, share in suspect.shares),
        doubt=suspect.doubt,
        bad=bad,
        open=tuple(flow for flow in bad if flow.open),
        good=int(evidence.good[best]),
    )


def _hits(cause: Cause, flow: BadFlow) -> bool:
    match cause.reason:
        case Reason.PROBER:
            return cause.name == flow.prober
        case Reason.RESPONDER:
            return cause.name == flow.responder
        case Reason.REPLY:
            return flow.replyless
        case _:
            return True


def common_agents(flows: tuple[BadFlow, ...]) -> set[str]:
    """Return the agents that every one of the 5-tuples has at an end."""
    found: set[str | None] = {flows[0].prober, flows[0].responder} if flows else set()
    for flow in flows:
        found &= {flow.prober, flow.responder}
        if not found:
            break
    return {agent for agent in found if agent is not None}


def loss_counts(case: Case) -> list[str]:
    """Say how many probes the lossy 5-tuples have lost of late."""
    lossy = [s for f in case.open for s in f.symptoms if s.kind is AnomalyKind.LOSS and s.sent > 0]
    if not lossy:
        return []
    sent, lost = sum(s.sent for s in lossy), sum(s.lost for s in lossy)
    return [f"{lost} of {sent} probes of the lossy ones were lost ({lost / sent:.1%})"]


def hop_facts(case: Case) -> list[str]:
    """Say what single probes of traces tell about the cause."""
    evidence = case.evidence
    hops = evidence.problem.hops
    rows = hops.rows[hops.columns == evidence.causes.index(case.cause)]
    if not len(rows):
        return []
    weights = hops.weight[rows]
    count, bad = round(weights.sum()), round(weights[hops.bad[rows]].sum())
    word = "lost" if evidence.family is Family.LOSS else "late"
    return [f"of {count} single probes of traces that crossed it, {bad} were {word}"]
