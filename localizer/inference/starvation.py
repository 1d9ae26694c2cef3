"""Hosts whose software, starved of CPU, loses probes that the network has passed.

An answer that a host holds up beyond the agent's timeout is lost. A process that does not run for a
while holds up whatever comes meanwhile, so some answers are held up for nearly as long and still
count: the share of late answers bounds the share of losses that starvation explains. The workers
count the late ones of each prober and of each target, and report them with every anomaly that is a
loss (`streams.detectors.late_answers`).

In: the bad 5-tuples. Out: the starved agents, each with its host and its log-likelihood ratio
against a healthy one, and which of the bad 5-tuples its lateness explains. Agents of one host that
are late together, one a container, have one cause.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log
from typing import Final

from scipy.special import pdtrc

from localizer.facts.anomalies import NO_LATE, LateCount, Symptom
from localizer.facts.bad_flows import BadFlow

# Lost answers for each late one, at most. A process that does not run for L loses what comes in the
# first L - T of that time, T being the timeout; a late answer is one that waited for T/4 to T. Six
# belong to pauses of 5.5 T, 2.75 s with the agents' default. Longer ones show in heartbeats.
LOST_PER_LATE: Final = 6.0
# Share of late answers of a host that lacks no CPU.
USUAL_LATE: Final = 2e-4
# Fewer late answers are no evidence.
LEAST_LATE: Final = 3
# Below this log-likelihood ratio the late answers are chance.
LEAST_EVIDENCE: Final = 6.0
# The evidence may outweigh any prior, and not everything else.
MOST_EVIDENCE: Final = 20.0
# Few answers of one side say little of its share: that of both sides counts as so many more.
SHARED_ANSWERS: Final = 50.0
# Losses that are less probable than this with the share that lateness explains have another cause.
# Bad 5-tuples are those that lost most, and the losses of one pause come together.
LEAST_CHANCE: Final = 1e-4


@dataclass(frozen=True, slots=True)
class StarvedAgent:
    """An agent that lacks CPU.

    Attributes
    ----------
    host
        Its host; where that is not known, the agent itself.
    evidence
        Log-likelihood ratio of its late answers, starved against healthy.
    prober_share, responder_share
        Most of the probes from and to it whose loss its lateness explains, 0 to 1.
    """

    host: str
    evidence: float
    prober_share: float
    responder_share: float


def starved_agents(
    bad: Iterable[BadFlow], host_of: Callable[[str], str | None]
) -> dict[str, StarvedAgent]:
    """Return the agents that lack CPU, by the late answers that symptoms report.

    `host_of` gives the host of an endpoint, None if it is not known.
    """
    probers: dict[str, LateCount] = {}
    targets: dict[str, dict[str, LateCount]] = defaultdict(dict)
    endpoints: dict[str, str] = {}
    for flow in bad:
        for symptom in flow.symptoms:
            if symptom.prober_late != NO_LATE:
                endpoints[flow.prober] = flow.key[0]
                known = probers.get(flow.prober, NO_LATE)
                probers[flow.prober] = max(known, symptom.prober_late)
            if symptom.responder_late != NO_LATE and flow.responder is not None:
                # A partition counts the probes of its agents only. Whose counts are the same is
                # not known here, so of each target those of one partition count.
                counts = targets[flow.responder]
                target = endpoints[flow.responder] = flow.key[1]
                counts[target] = max(counts.get(target, NO_LATE), symptom.responder_late)
    found = {}
    for agent in sorted(probers.keys() | targets.keys()):
        own = probers.get(agent, NO_LATE)
        ends = targets.get(agent, {}).values()
        answered = sum(late for late, _ in ends), sum(answers for _, answers in ends)
        late, answers = own[0] + answered[0], own[1] + answered[1]
        evidence = late_evidence((late, answers))
        if evidence >= LEAST_EVIDENCE:
            both = late / answers
            found[agent] = StarvedAgent(
                host_of(endpoints[agent]) or agent,
                min(evidence, MOST_EVIDENCE),
                _explained(own, both),
                _explained(answered, both),
            )
    return found


def late_evidence(count: LateCount) -> float:
    """Return the log-likelihood ratio of late answers, starved against healthy; 0: too few.

    Examples
    --------
    >>> [round(late_evidence(count), 1) for count in ((2, 40), (4, 40), (4, 20_000))]
    [0.0, 20.9, 0.0]
    """
    late, answers = count
    usual = USUAL_LATE * answers
    if late < LEAST_LATE or late <= usual:
        return 0.0
    return late * log(late / usual) - (late - usual)


def explains(starved: dict[str, StarvedAgent], flow: BadFlow) -> tuple[str | None, str | None]:
    """Return the prober and the responder of a bad 5-tuple, where its lateness explains it."""
    prober, responder = starved.get(flow.prober), starved.get(flow.responder or "")
    return (
        flow.prober if prober and _fits(flow.symptoms, prober.prober_share) else None,
        flow.responder if responder and _fits(flow.symptoms, responder.responder_share) else None,
    )


def _explained(count: LateCount, both: float) -> float:
    """Return the share of probes whose loss late answers explain at most."""
    late, answers = count
    share = (late + SHARED_ANSWERS * both) / (answers + SHARED_ANSWERS)
    lost = LOST_PER_LATE * share
    return lost / (1.0 + lost)


def _fits(symptoms: Iterable[Symptom], share: float) -> bool:
    """Return whether so many losses are likely if this share of the probes is lost."""
    return all(s.lost == 0 or pdtrc(s.lost - 1, s.sent * share) >= LEAST_CHANCE for s in symptoms)
