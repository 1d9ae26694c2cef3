"""All 5-tuples that are probed now, by the components they cross: where good paths come from."""

from collections import defaultdict
from dataclasses import dataclass, field

from localizer.paths import FlowKey, PathBook
from localizer.roster import Roster


@dataclass(frozen=True, slots=True)
class Probed:
    """A 5-tuple with its path and the agents at its ends."""

    key: FlowKey
    components: tuple[str, ...]
    prober: str
    responder: str | None


@dataclass(slots=True)
class FlowIndex:
    """The 5-tuples on a ping list between registered endpoints whose path is known by trace.

    `at` maps components, `of` agents (at either end) to places in `flows`.
    """

    flows: list[Probed] = field(default_factory=list)
    by_key: dict[FlowKey, int] = field(default_factory=dict)
    at: dict[str, list[int]] = field(default_factory=dict)
    of: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def build(cls, roster: Roster, paths: PathBook) -> "FlowIndex":
        """Make the index anew."""
        index = cls()
        at: defaultdict[str, list[int]] = defaultdict(list)
        of: defaultdict[str, list[int]] = defaultdict(list)
        for agent_id, key in roster.probed():
            if key in index.by_key or not paths.is_traced(key):
                continue
            place = len(index.flows)
            responder = roster.agent_of(key[1])
            components = paths.path(key).components
            index.flows.append(Probed(key, components, agent_id, responder))
            index.by_key[key] = place
            for component in components:
                at[component].append(place)
            for agent in {agent_id, responder} - {None}:
                of[str(agent)].append(place)
        index.at, index.of = dict(at), dict(of)
        return index
