"""A fleet of agents that only send heartbeats, in front of merge and core."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from localizer.config import CoreConfig
from localizer.core import Core
from localizer.merge import Merge
from schemas import topics
from schemas.enums import AnomalyKind, ComponentKind
from schemas.records import FaultEvent
from schemas.units import MS_NS, SECOND_NS
from tests.unit.localizer.made import START, anomaly, component, endpoint, heartbeat, link

PARTITIONS = 4


class Fleet:
    """Agents a0, a1, … with an endpoint each; time passes by marks in one partition.

    Heartbeats arrive when they are sent, unless told otherwise.
    """

    def __init__(self, count: int, core: Core | None = None) -> None:
        self.core = core or Core(CoreConfig(cluster="lab"))
        self.merge = Merge()
        self.agents = [f"a{n}" for n in range(count)]
        self.now = START
        self.events: list[FaultEvent] = []
        self._offsets: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._seq: defaultdict[str, int] = defaultdict(int)
        for agent in self.agents:
            self.put(topics.ENDPOINT.name, f"e-{agent}", endpoint(f"e-{agent}", agent))

    def put(
        self, topic: str, key: str, record: Any, *, at: int = START, partition: int = 0
    ) -> None:
        """Append a record that arrives at a time."""
        offset = self._offsets[topic, partition]
        self._offsets[topic, partition] += 1
        for event in self.merge.accept_record(
            topic, key, record, partition=partition, offset=offset, timestamp_ms=at // MS_NS
        ):
            self.core.feed(event)

    def rack(self, leaf: str, agents: Iterable[str]) -> None:
        """Join the agents' hosts to a leaf switch."""
        self.part(component(leaf, ComponentKind.SWITCH))
        for agent in agents:
            self.part(component(f"h-{agent}", ComponentKind.HOST))
            self.part(component(f"r-{agent}", ComponentKind.RNIC, parent=f"h-{agent}"))
            self.part(component(agent, ComponentKind.AGENT, parent=f"h-{agent}"))
            self.part(link(f"r-{agent}", leaf))

    def part(self, record: Any) -> None:
        """Write a component."""
        self.put(topics.TOPOLOGY.name, record.component_id, record)

    def beat(self, agent: str, *, at: int | None = None, **more: Any) -> None:
        """Write a heartbeat that arrives at a time; `more` are its fields."""
        self._seq[agent] += 1
        at = self.now if at is None else at
        fields: dict[str, Any] = {"host_id": f"h-{agent}", **more}
        seq = fields.pop("seq", self._seq[agent])
        place = int(agent.strip("abcdefghijklmnopqrstuvwxyz-") or 0) % PARTITIONS
        self.put(
            topics.HEARTBEAT.name, agent, heartbeat(agent, at, seq, **fields), at=at,
            partition=place,
        )  # fmt: skip

    def mark(self, at: int, partition: int = 0) -> None:
        """Write a progress mark that arrives when it says."""
        record = anomaly(AnomalyKind.PROGRESS, at=at, onset=at)
        self.put(topics.ANOMALY.name, "~progress", record, at=at, partition=partition)

    def run(self, seconds: float, silent: Iterable[str] = ()) -> list[FaultEvent]:
        """Let time pass; all but the silent agents beat each second. Return the new transitions."""
        quiet, before = set(silent), len(self.events)
        for _ in range(round(seconds)):
            self.now += SECOND_NS
            for agent in self.agents:
                if agent not in quiet:
                    self.beat(agent)
            self.decide()
        return self.events[before:]

    def decide(self) -> None:
        """Mark the present in one partition, and decide."""
        self.mark(self.now)
        assert self.merge.watermark_ns is not None
        self.events += self.core.advance(self.merge.watermark_ns)
