"""Pairs on ping lists for which no flow table has an entry: a wrong list, not a fault."""

from collections.abc import Callable

import pytest

from localizer.config import CoreConfig
from localizer.core import Core
from ops.lab.shape import EndpointSpec, LabShape
from schemas import topics
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent, FlowTable
from schemas.units import MS_NS, SECOND_NS
from tests.unit.localizer import simlab
from tests.unit.localizer.simlab import CountedOverlay, SimLab, localize

LINK = "link:leaf:p0-0--spine:0"
Key = tuple[str, str]
LOGS = {t.name for t in (topics.ANOMALY, topics.HEARTBEAT, topics.PATH_TRACE)}


def across_rails(shape: LabShape) -> Callable[[Key], bool]:
    """Return whether an entry is an endpoint's own, for an endpoint on another rail."""
    rail_of = {e.endpoint_id: e.rail for e in shape.endpoints}
    return lambda key: key[0] in rail_of and rail_of[key[0]] != rail_of[key[1]]


class UnlistedWays(CountedOverlay):
    """Packets cross rails, but no table says so, as in the lab of network namespaces."""

    def __init__(self, shape: LabShape) -> None:
        self.across = across_rails(shape)
        super().__init__(shape)

    def table(self, host: int, *, cluster: str, captured_at: int) -> FlowTable:
        """Return a host's tables without the entries across rails."""
        whole = super().table(host, cluster=cluster, captured_at=captured_at)
        kept = tuple(e for e in whole.entries if not self.across((e.node, e.dst)))
        return FlowTable(
            cluster=cluster, host_id=whole.host_id, captured_at=captured_at, entries=kept
        )


class BlockedLab(SimLab):
    """A lab in which an endpoint's own entry counts: probes of some pairs get lost there."""

    blocked: Callable[[Key], bool] = staticmethod(lambda _: False)

    def _probe(self, src: EndpointSpec, dst: EndpointSpec, flow: int) -> int | None:
        rtt_ns = super()._probe(src, dst, flow)
        return None if self.blocked((src.endpoint_id, dst.endpoint_id)) else rtt_ns


def a_pair_across(a: EndpointSpec, b: EndpointSpec) -> bool:
    """Return whether a pair is on the list: those of a rail, and those of rails 0 and 1."""
    return a.rail == b.rail or a.rail + b.rail == 1


def opened(lab: SimLab) -> list[FaultEvent]:
    """Return the faults that were opened."""
    return [e for e in lab.verdicts() if e.state is FaultLifecycle.OPEN]


def test_a_cut_cable_is_one_fault_where_tables_lack_ways_that_packets_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Probes got through without the entries: the entries are not what the cut took.

    Found live: one cut cable gave a right verdict and sixteen of `flow_missing`.
    """
    monkeypatch.setattr(simlab, "CountedOverlay", UnlistedWays)
    lab = SimLab(pairs=a_pair_across)
    lab.run(45)
    lab.effects.links[LINK] = (1.0, 0)
    lab.run(12)
    del lab.effects.links[LINK]
    lab.run(20)
    assert [(e.component_id, e.fault_kind) for e in opened(lab)] == [(LINK, "connectivity")]
    assert lab.verdicts()[-1].state is FaultLifecycle.RESOLVED


def test_pairs_that_never_had_a_way_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are named for the log; a real cut beside them is found, and resolved."""
    monkeypatch.setattr(simlab, "CountedOverlay", UnlistedWays)
    lab = BlockedLab(pairs=a_pair_across)
    lab.blocked = across_rails(lab.shape)
    lab.run(45)
    lab.effects.links[LINK] = (1.0, 0)
    lab.run(12)
    del lab.effects.links[LINK]
    lab.run(20)
    assert [(e.component_id, e.fault_kind) for e in opened(lab)] == [(LINK, "connectivity")]
    assert lab.verdicts()[-1].state is FaultLifecycle.RESOLVED
    rail_of = {e.endpoint_id: e.rail for e in lab.shape.endpoints}
    config = CoreConfig(cluster=simlab.CLUSTER)
    core = Core(config)
    localize(lab.log, config, core)
    without_way = core.without_way
    assert without_way
    assert all(rail_of[src] != rail_of[dst] for src, dst in without_way)


def test_an_entry_that_was_there_and_is_gone_is_a_fault_also_across_rails() -> None:
    """History decides, not the rails."""
    lab = BlockedLab(pairs=a_pair_across)
    lab.run(45)
    lab.blocked = ("job1-w0/r0", "job1-w2/r1").__eq__
    lab.publish_tables(lab.overlay.apply("f", lab.overlay.hole("job1-w0/r0", "job1-w2/r1")))
    lab.run(10)
    found = {(e.component_id, e.fault_kind) for e in opened(lab)}
    assert found == {("job1-w0/r0", "flow_missing")}


def test_a_lost_entry_stays_a_fault_over_a_restart_that_reads_only_the_latest_tables() -> None:
    """Compaction took the table that had it; the open fault says that it was there."""
    lab = BlockedLab(pairs=a_pair_across)
    lab.run(45)
    lab.blocked = ("job1-w0/r0", "job1-w2/r1").__eq__
    lab.publish_tables(lab.overlay.apply("f", lab.overlay.hole("job1-w0/r0", "job1-w2/r1")))
    lab.run(10)
    (found,) = opened(lab)
    decided_ns = lab.now - SECOND_NS
    last = {r.key: r.offset for r in lab.log if r.topic == topics.OVERLAY_FLOWS.name}
    kept = [
        r
        for r in lab.log
        if (r.topic in LOGS and r.timestamp_ms * MS_NS >= decided_ns - 5 * SECOND_NS)
        or (r.topic not in LOGS and last.get(r.key, r.offset) == r.offset)
    ]
    config = CoreConfig(cluster=simlab.CLUSTER)
    core = Core(config, [found], begin_ns=decided_ns - 5 * SECOND_NS, decided_ns=decided_ns)
    assert localize(kept, config, core) == []
    assert [i.event.fault_id for i in core.lifecycle.open_faults()] == [found.fault_id]


def test_an_entry_missing_from_the_first_table_on_is_a_fault_on_a_rail() -> None:
    """All pairs of a rail have a way: without history, a missing one is a fault still."""
    lab = SimLab()
    lab.publish_tables(lab.overlay.apply("f", lab.overlay.hole("vsw:h1", "job1-w0/r0")))
    lab.run(20)
    found = {(e.component_id, e.fault_kind) for e in opened(lab)}
    assert found == {("vsw:h1", "flow_missing")}
