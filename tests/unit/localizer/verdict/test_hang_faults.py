"""What a hang reaches in the network: made once, and again when something of it changes."""

from dataclasses import replace

import pytest

from localizer.config import CoreConfig
from localizer.network.topology import Topology
from localizer.verdict.hang_faults import HangFaults, Reach
from ops.lab.shape import LabShape
from ops.lab.topology import Topology as LabTopology
from schemas.enums import Certainty, FaultLifecycle, HangClass
from schemas.records import Hang
from schemas.units import SECOND_NS
from tests.unit.localizer.sources import sources

NOW_NS = 1_000 * SECOND_NS
SHAPE = LabShape(hosts=4, rails=2, pods=2, leaves=2, spines=2)


def hang(name: str, seq: int = 1) -> Hang:
    """Return a hang at two endpoints."""
    return Hang(
        cluster="c", hang_id=name, task_id=f"job-{name}", seq=seq, state=FaultLifecycle.OPEN,
        event_at=NOW_NS // 1_000, onset_at=NOW_NS // 1_000, hang_class=HangClass.NETWORK,
        certainty=Certainty.SURE, ranks=(0,), waiting_ranks=(1,),
        endpoint_ids=("job1-w0/r0", "job1-w1/r0"), stuck_flows=(), waited_ns=1,
        summary="hangs", evidence=(), next_steps=(),
    )  # fmt: skip


def test_what_a_hang_reaches_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each point of the grid: of ten thousand endpoints that is a tenth of a second."""
    made: list[str] = []
    own = HangFaults._made_reach

    def counted(self: HangFaults, one: Hang) -> Reach:
        made.append(one.hang_id)
        return own(self, one)

    monkeypatch.setattr(HangFaults, "_made_reach", counted)
    topology = Topology()
    held = sources(topology)
    faults = HangFaults(CoreConfig(cluster="c"), held)
    first, *others = LabTopology(SHAPE, cluster="c", addresses={}).components(0)
    for component in others:
        topology.set_component(component)

    def steps(count: int) -> list[str]:
        made.clear()
        for _ in range(count):
            faults.step([], [], [], NOW_NS)
        return list(made)

    held.hangs.set_hang("a", hang("a"), NOW_NS)
    assert steps(20) == ["a"]
    held.hangs.set_hang("b", hang("b"), NOW_NS)
    assert steps(20) == ["b"]
    held.hangs.set_hang("a", replace(hang("a", 2), endpoint_ids=()), NOW_NS)
    assert steps(20) == ["a"]
    topology.set_component(first)
    assert steps(20) == ["a", "b"]
    for name in ("a", "b"):
        held.hangs.set_hang(name, None, NOW_NS)
    steps(1)
    assert faults._reaches == {}
