"""Who probes whom, and what the packets cross."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import NOWHERE, Fabric, FabricShape
from tests.unit.arena.worlds import cluster


def names(on: Cluster, row: np.ndarray) -> list[str]:
    """Return the ids of a path."""
    return [on.names[n] for n in row.tolist() if n != NOWHERE]


@given(
    st.integers(2, 9), st.integers(1, 3), st.integers(1, 5), st.booleans(), st.sampled_from([2, 3])
)
def test_paths_lead_from_endpoint_to_endpoint(
    hosts: int, rails: int, targets: int, symmetric: bool, tiers: int
) -> None:
    """Endpoint, virtual switch, RNIC, …, RNIC, virtual switch, endpoint; replies likewise."""
    on = cluster(hosts=hosts, rails=rails, targets=targets, symmetric=symmetric, tiers=tiers)
    flows = on.flows
    for place in range(len(flows)):
        src, dst = int(flows.src[place]), int(flows.dst[place])
        for row, a, b in ((flows.there[place], src, dst), (flows.back[place], dst, src)):
            way = names(on, row)
            (h, r), (g, q) = divmod(a, rails), divmod(b, rails)
            assert way[:3] == [f"ep:h{h}/r{r}", f"vswitch:h{h}", f"rnic:h{h}/r{r}"]
            assert way[-3:] == [f"rnic:h{g}/r{q}", f"vswitch:h{g}", f"ep:h{g}/r{q}"]
            assert (row[len(way) :] == NOWHERE).all()
        if symmetric:
            assert names(on, flows.back[place]) == names(on, flows.there[place])[::-1]


@given(st.integers(2, 12), st.integers(1, 6))
def test_a_ping_list_names_nobody_twice_and_nobody_itself(hosts: int, targets: int) -> None:
    """As many targets as asked for, or all there are; always on the own rail."""
    on = cluster(hosts=hosts, targets=targets)
    pairs = list(on.pairs(0))
    assert len(set(pairs)) == len(pairs) == hosts * 2 * min(targets, hosts - 1)
    assert all(a != b and a % 2 == b % 2 for a, b in pairs)


def test_flows_of_an_agent_stand_together() -> None:
    """The rounds are cut by it."""
    jobs = (
        JobPlan(task_id="a", first_host=3, hosts=3),
        JobPlan(task_id="b", first_host=0, hosts=3),
    )
    on = cluster(jobs=jobs)
    hosts = on.host_of(on.flows.src)
    assert (np.diff(hosts) >= 0).all()
    assert set(on.flows.job[hosts < 3].tolist()) == {1}


def test_a_job_beyond_the_fabric_is_refused() -> None:
    """The message names job and hosts."""
    with pytest.raises(ValueError, match=r"job big: hosts 2 to 9 of 4"):
        Cluster(Fabric(FabricShape(hosts=4)), (JobPlan(task_id="big", first_host=2, hosts=8),))
