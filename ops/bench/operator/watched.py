"""A large cluster as the operator's server folds it: topology, endpoints, windows, faults.

Fabric, names and routes are those of the localizer's bench (`ops.bench.scale.localizer_world`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from arena.simulation.setup import Rec
from arena.world.topology import agent_id
from ops.bench.scale.localizer_world import NAME, World
from ops.log.decoding import SeenRecord
from ops.log.windows import SeenWindows, columns_of
from ops.view.cluster import ClusterView
from schemas import topics
from schemas.columns.arrays import Int64s
from schemas.enums import AnomalyKind, AnomalyState, FaultLifecycle, Layer, TraceCause, Transport
from schemas.ids import path_id
from schemas.records import Anomaly, Candidate, FaultEvent, PathWindow
from schemas.topics import BY_NAME
from schemas.units import US_NS

# The published window.
WINDOW_US: Final = 30_000_000
PROBES: Final = 30
# As many as a reader takes at once.
BATCH: Final = 1_000
BEGIN_US: Final = 1_700_000_010_000_000
# Round trips of a RoCE fabric, as published.
P50_NS: Final = 16_000


@dataclass(frozen=True, slots=True)
class Harm:
    """What a sick component does to the 5-tuples that cross it: lost probes of a window, delay."""

    lost: int = 0
    late_ns: int = 0


@dataclass
class WatchedCluster:
    """A cluster and the records that its agents, worker and localizer write.

    Attributes
    ----------
    segments
        Of 16 hosts with 8 RNICs each.
    harms
        Sick components by name.
    """

    segments: int
    harms: Mapping[str, Harm] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = World(self.segments)
        self._offsets: dict[str, int] = {}
        self.harm_of: dict[int, Harm] = {
            self.world.cluster.fabric.number_of[name]: harm for name, harm in self.harms.items()
        }

    def harmed(self, number: int) -> Int64s:
        """Return the 5-tuples that cross a component."""
        return np.flatnonzero((self.world.cluster.flows.there == number).any(axis=1))

    def setup(self) -> Iterator[SeenRecord]:
        """Yield what stands in the state topics."""
        for rec in self.world.setup(BEGIN_US * US_NS):
            yield self.seen(rec)

    def windows(self, turn: int) -> Iterator[SeenWindows]:
        """Yield a window of each 5-tuple, many at a time; harms begin at the fifth turn."""
        records = self._windows(turn)
        while batch := list(islice(records, BATCH)):
            first = self._offsets.get(topics.PROBE_WINDOW.name, 0)
            self._offsets[topics.PROBE_WINDOW.name] = first + len(batch)
            yield SeenWindows(
                partition=0,
                offsets=np.arange(first, first + len(batch)),
                timestamps_ms=np.array([w.window_end_at // 1_000 for w in batch]),
                windows=columns_of(batch),
            )

    def _windows(self, turn: int) -> Iterator[PathWindow]:
        lost, late_ns = self._suffered(turn)
        end_us = BEGIN_US + (turn + 1) * WINDOW_US
        noise = np.random.default_rng(turn).integers(0, 600, len(lost))
        for flow in range(self.world.paths):
            src, dst, index = self.world.key(flow)
            gone = int(lost[flow])
            p50_ns = None if gone >= PROBES else P50_NS + int(noise[flow]) + int(late_ns[flow])
            yield PathWindow(
                cluster=NAME, path_id=path_id(src, dst), src=src, dst=dst, flow=index,
                agent_id=agent_id(int(self.world.src_host[flow])), transport=Transport.RDMA_UD,
                window_start_at=end_us - WINDOW_US, window_end_at=end_us, sent=PROBES,
                ok=PROBES - gone, lost=gone, duplicate_results=0, p50_ns=p50_ns,
                p99_ns=None if p50_ns is None else p50_ns + 3_000,
                host_delay_p50_ns=1_200, responder_delay_p50_ns=900,
            )  # fmt: skip

    def _suffered(self, turn: int) -> tuple[Int64s, Int64s]:
        lost = np.zeros(self.world.paths, np.int64)
        late_ns = np.zeros(self.world.paths, np.int64)
        if turn >= FIRST_SICK:
            for number, harm in self.harm_of.items():
                flows = self.harmed(number)
                lost[flows] = np.maximum(lost[flows], harm.lost)
                late_ns[flows] += harm.late_ns
        return lost, late_ns

    def symptoms(self, component: str, at_us: int, most: int = 500) -> Iterator[SeenRecord]:
        """Yield traces of 5-tuples through a component, and anomalies of every second of them."""
        flows = self.harmed(self.world.cluster.fabric.number_of[component])[:most]
        for place, flow in enumerate(flows):
            yield self.seen(self.world.trace(int(flow), at_us * US_NS, TraceCause.LOSS))
            src, dst, index = self.world.key(int(flow))
            if place % 2:
                continue
            anomaly = Anomaly(
                cluster=NAME, anomaly_id=f"a-{flow}", kind=AnomalyKind.LOSS,
                state=AnomalyState.ONSET, path_id=path_id(src, dst), src=src, dst=dst, flow=index,
                agent_id=agent_id(int(self.world.src_host[int(flow)])), event_at=at_us,
                onset_at=at_us, detector="loss", value=0.2, threshold=0.1, unit="share",
                sent=PROBES, lost=6,
            )  # fmt: skip
            yield self.seen(Rec(at_us * US_NS, topics.ANOMALY.name, anomaly.path_id, anomaly))

    def fault(
        self, component: str, kind: str, at_us: int, candidates: Mapping[str, float] | None = None
    ) -> SeenRecord:
        """Return a fault of a component that is open since a time."""
        likely = candidates or {component: 0.97}
        event = FaultEvent(
            cluster=NAME, fault_id=f"f-{component}", seq=1, state=FaultLifecycle.OPEN,
            event_at=at_us, onset_at=at_us - 4_000_000, opened_at=at_us, layer=Layer.UNDERLAY,
            component_kind=kind, component_id=component, decided=candidates is None,
            fault_kind="packet_loss", severity="critical", confidence=max(likely.values()),
            summary=f"{component} loses packets", bad_paths=4, good_paths=12,
            unexplained_paths=0, flaps=0, tasks=("job",),
            candidates=tuple(Candidate(component_id=n, score=s) for n, s in likely.items()),
            evidence=("bad 5-tuples cross it",),
        )  # fmt: skip
        return self.seen(Rec(at_us * US_NS, topics.FAULT_EVENT.name, event.fault_id, event))

    def seen(self, rec: Rec) -> SeenRecord:
        """Return a record as the next of its topic."""
        offset = self._offsets.get(rec.topic, 0)
        self._offsets[rec.topic] = offset + 1
        return SeenRecord(
            topic=BY_NAME[rec.topic], partition=0, offset=offset,
            timestamp_ms=rec.at_ns // 10**6, key=rec.key, record=rec.record,
        )  # fmt: skip

    def view(self, turns: int) -> tuple[ClusterView, int]:
        """Return the view after some windows of each 5-tuple, and the time, milliseconds."""
        view = ClusterView()
        for seen in self.setup():
            view.apply(seen)
        for turn in range(turns):
            for windows in self.windows(turn):
                view.apply(windows)
        return view, (BEGIN_US + turns * WINDOW_US) // 1_000 + 2_000


# Before it all is well: that is what is usual.
FIRST_SICK: Final = 5
