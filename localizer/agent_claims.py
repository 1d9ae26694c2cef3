"""Claims of agents that are silent: of the host layer, and no page."""

from collections import defaultdict

from localizer.anomalies import Family
from localizer.claims import Claim, make_claim
from localizer.kinds import KINDS
from localizer.paths import FlowKey
from localizer.suspicion import Sources
from localizer.units import SECOND_NS
from schemas.enums import ComponentKind

SILENCE_CONFIDENCE = 0.99


def dead_agents(sources: Sources) -> list[Claim]:
    """Claim the agents that sent no heartbeat when one was due."""
    if not sources.liveness.dead:
        return []
    failing: defaultdict[str, set[FlowKey]] = defaultdict(set)
    for key, _ in sources.board.family(Family.LOSS):
        agent = sources.roster.agent_of(key[1])
        if agent in sources.liveness.dead:
            failing[str(agent)].add(key)
    claims = []
    for agent_id, missed_ns in sorted(sources.liveness.dead.items()):
        known = sources.liveness.get(agent_id)
        facts = [f"{len(failing[agent_id])} 5-tuples to its endpoints are not answered"]
        if known is not None:
            every_s = known.interval_ns / SECOND_NS
            facts.insert(0, f"no heartbeat, though one is due every {every_s:g} s")
        claims.append(
            make_claim(
                sources,
                KINDS["agent_dead"],
                agent_id,
                decided=True,
                confidence=SILENCE_CONFIDENCE,
                candidates=[(agent_id, SILENCE_CONFIDENCE)],
                keys=frozenset(failing[agent_id]),
                good=0,
                onset_ns=missed_ns,
                evidence=facts,
                ready=True,
                component_kind=ComponentKind.AGENT,
                tasks=sources.roster.tasks_of_agent(agent_id),
            )
        )
    return claims
