"""Before each decision: agents that have died, anomalies that nobody repeats or whose ends left."""

from localizer.facts.anomalies import FAMILY, Family
from localizer.facts.bad_flows import Sources
from localizer.facts.index_cache import IndexCache
from localizer.network.flow_index import NOTHING
from schemas.enums import AnomalyKind


class Tidier:
    """Keeps what decisions are made of up with the time."""

    def __init__(self, sources: Sources, index: IndexCache) -> None:
        self._sources = sources
        self._index = index
        # Of board and roster, when what has left was dropped last.
        self._tidied = (-1, -1)

    def tidy(self, now_ns: int) -> None:
        """Let agents die, and forget what nobody repeats or what left in order."""
        sources = self._sources
        # Whether or not it is asked for: a little at a time, and not all when something breaks.
        self._index.get()
        sources.liveness.declare(
            now_ns,
            self._witnesses() if sources.liveness.silent(now_ns) else frozenset(),
            sources.roster.deserted_agents(),
            lambda agent: self._answers(agent, now_ns),
        )
        sources.board.expire(now_ns, frozenset(sources.liveness.dead))
        versions = (sources.board.version, sources.roster.version)
        if versions != self._tidied:
            for key in sources.board.flows():
                if sources.roster.left(key[0]) or sources.roster.left(key[1]):
                    sources.board.drop(key)
            self._tidied = versions

    def _witnesses(self) -> frozenset[str]:
        """Return the agents to whose endpoints probes of others fail."""
        found = {
            self._sources.roster.agent_of(key[1])
            for key, symptoms in self._sources.board.family(Family.LOSS)
            if any(s.kind is AnomalyKind.CONNECTIVITY for s in symptoms)
        }
        return frozenset(agent for agent in found if agent is not None)

    def _answers(self, agent_id: str, now_ns: int) -> bool:
        """Say whether most of what other agents probe at this one is without loss."""
        sources, index = self._sources, self._index.get()
        failing = probed = 0
        for place in index.at(index.responders.get(agent_id, NOTHING)).tolist():
            key, prober = index.key(place), index.prober(place)
            if prober != agent_id and sources.liveness.heard(prober, now_ns):
                probed += 1
                failing += any(FAMILY[kind] is Family.LOSS for kind in sources.board.open(key))
        return bool(probed) and 2 * failing <= probed
