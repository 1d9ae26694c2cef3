"""Whether an agent's endpoints answer the probes of others."""

from dataclasses import dataclass

from localizer.facts.anomalies import OpenAnomalies
from localizer.facts.index_cache import IndexCache
from localizer.facts.liveness import Liveness
from localizer.network.flow_index import NOTHING
from schemas.enums import ANOMALY_FAMILY, AnomalyFamily


@dataclass(frozen=True, slots=True)
class Reach:
    """5-tuples of others to an agent's endpoints: how many are probed, and fail."""

    probed: int
    failing: int

    @property
    def answers(self) -> bool:
        """Whether others probe it and most of their probes are answered."""
        return bool(self.probed) and 2 * self.failing <= self.probed

    @property
    def unreachable(self) -> bool:
        """Whether others probe it and most of their probes fail."""
        return 2 * self.failing > self.probed


class Reachability:
    """Counts the 5-tuples to agents' endpoints."""

    def __init__(self, index: IndexCache, liveness: Liveness, anomalies: OpenAnomalies) -> None:
        self._index = index
        self._liveness = liveness
        self._anomalies = anomalies

    def of_agent(self, agent_id: str, now_ns: int) -> Reach:
        """Return how others reach an agent's endpoints; probers that are silent do not count."""
        index, probed, failing = self._index.refresh(), 0, 0
        recent: dict[str, bool] = {agent_id: False}
        for place in index.rows_with(index.responders.get(agent_id, NOTHING)).tolist():
            key, prober = index.key(place), index.prober(place)
            if prober not in recent:
                recent[prober] = self._liveness.seen_recently(prober, now_ns)
            if recent[prober]:
                probed += 1
                failing += any(
                    ANOMALY_FAMILY[kind] is AnomalyFamily.LOSS for kind in self._anomalies.open(key)
                )
        return Reach(probed, failing)
