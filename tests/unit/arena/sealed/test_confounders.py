"""Look-alikes: what they do, and that none of them breaks anything for good."""

import numpy as np
import pytest

from arena.sealed.confounders import CONFOUNDERS
from arena.sealed.draft import Draft, NoPlaceError
from arena.sealed.plan import Plan
from schemas.enums import AgentState, ProbeStatus
from schemas.topics import ENDPOINT, HEARTBEAT
from tests.unit.arena.sealed.small import (
    START_NS,
    bonded,
    cluster_where,
    draft_of,
    in_overlay,
    results_of,
    single,
    world_of,
)


def draft_with_one(name: str) -> Draft:
    """Return a draft with one look-alike, from second 20 on."""
    for seed in range(40):
        wanted = (in_overlay, bonded, single)[seed % 3]
        draft = draft_of(cluster_where(wanted), duration_s=400.0, seed=seed)
        try:
            CONFOUNDERS[name](draft, 20.0)
        except NoPlaceError:
            continue
        return draft
    raise AssertionError(name)


@pytest.mark.parametrize("name", sorted(set(CONFOUNDERS) - {"task_end"}))
def test_a_look_alike_costs_few_probes_and_is_no_fault(name: str) -> None:
    """Most probes of a world with nothing else are answered."""
    draft = draft_with_one(name)
    assert [injected.confounder for injected in draft.injected] == [True]
    world = world_of(draft.cluster, draft.plan, 70)
    statuses = [result.status is ProbeStatus.OK for _, result in results_of(world.records())]
    assert np.mean(statuses) > 0.9
    assert len(statuses) > 1_000


def test_a_broker_pause_holds_back_everything_and_loses_nothing() -> None:
    """Nothing arrives meanwhile; as much as usual is sent."""
    draft = draft_with_one("broker_pause")
    pause = draft.plan.broker_pauses[0]
    arrivals = [
        timed.arrival_ms / 1e3 - START_NS / 1e9
        for timed in world_of(draft.cluster, draft.plan, 60).records()
    ]
    assert not [at_s for at_s in arrivals if pause.begin_s <= at_s < pause.end_s - 0.01]
    calm = sum(1 for _ in world_of(draft.cluster, Plan(), 60).records())
    assert len(arrivals) == pytest.approx(calm, rel=0.02)


def test_a_container_that_restarts_says_that_it_leaves() -> None:
    """A last heartbeat, tombstones of its endpoints, and a new incarnation afterwards."""
    draft = draft_with_one("container_restart")
    outage = draft.plan.outages[0]
    group = draft.cluster.agents[outage.agent]
    world = world_of(draft.cluster, draft.plan, int(outage.end_s) + 10)
    own = {draft.cluster.sites[endpoint].name for endpoint in group.endpoints}
    beats, registrations = [], []
    for timed in world.records():
        if timed.topic == HEARTBEAT.name and timed.key == group.name:
            beats.append(timed.record)
        elif timed.topic == ENDPOINT.name and timed.key in own:
            registrations.append(timed.record)
    states = [beat.state for beat in beats]
    assert states.count(AgentState.LEAVING) == 1
    assert AgentState.STARTING in states[states.index(AgentState.LEAVING) :]
    assert len({beat.incarnation for beat in beats}) == 2
    assert [record is None for record in registrations].count(True) == len(own)
    assert registrations[-1] is not None


def test_a_starved_host_shows_in_delays_not_in_round_trips() -> None:
    """The RNICs' clocks do not see the CPU."""
    draft = draft_with_one("starved_host")
    starvation = draft.plan.starving[0]
    names = {
        draft.cluster.sites[endpoint].name
        for endpoint in draft.cluster.hosts[starvation.host].endpoints
    }
    usual: list[tuple[int, int]] = []
    starved: list[tuple[int, int]] = []
    for at_s, result in results_of(world_of(draft.cluster, draft.plan, 50).records()):
        if result.dst in names and result.rtt_ns is not None:
            assert result.responder_delay_ns is not None
            into = starved if 20.5 < at_s < starvation.over.end_s else usual
            into.append((result.responder_delay_ns, result.rtt_ns))
    delay, calm_delay = (np.mean([d for d, _ in rows]) for rows in (starved, usual))
    rtt, calm_rtt = (np.median([r for _, r in rows]) for rows in (starved, usual))
    assert delay > 1.5 * calm_delay
    assert rtt == pytest.approx(calm_rtt, rel=0.15)
