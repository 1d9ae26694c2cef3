"""Claims from states that are faults by themselves, whether or not probes show them.

A container that does not use RDMA though it is configured probes and answers by another transport.
Its round trips were never shorter since it started, or only those between two such are longer:
too few to say where the delay is.
"""

from typing import Final

from localizer.facts.inputs import Sources
from localizer.verdict.catalogue import KINDS
from localizer.verdict.claims import Claim, make_claim

# A reader may be wrong, but not often twice.
STATE_CONFIDENCE: Final = 0.95


def state_claims(sources: Sources, now_ns: int) -> list[Claim]:
    """Return the states that are faults by themselves as claims."""
    return [
        make_claim(
            sources,
            KINDS[finding.kind],
            finding.component_id,
            decided=True,
            confidence=STATE_CONFIDENCE,
            candidates=[(finding.component_id, STATE_CONFIDENCE)],
            keys=frozenset(),
            good=0,
            onset_ns=finding.since_ns,
            evidence=[f"{finding.component_id}: {finding.shown}, read twice or more"],
            ready=not sources.states.in_maintenance(finding.component_id),
        )
        for finding in sources.states.faults(now_ns)
    ]
