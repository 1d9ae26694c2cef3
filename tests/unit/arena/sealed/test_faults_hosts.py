"""Hard faults of hosts, containers, virtual switches and agents."""

from collections import Counter

import numpy as np
import pytest

from arena.sealed import faults_hosts as hosts
from schemas.enums import ProbingState
from schemas.topics import HEARTBEAT, OVERLAY_FLOWS, PROBE_ROUND
from tests.unit.arena.sealed.small import (
    BEGIN_S,
    END_S,
    START_NS,
    Build,
    draft_with,
    hit_by,
    measured,
    world_of,
)

CUTS = [
    hosts.host_down,
    hosts.container_crash,
    hosts.vswitch_down,
    hosts.flow_missing,
    hosts.flow_loop,
    hosts.agent_dead,
    hosts.agent_unresponsive,
]


@pytest.mark.parametrize("build", CUTS, ids=lambda build: build.__name__)
def test_a_cut_hits_its_5_tuples_while_it_lasts(build: Build) -> None:
    """Each affected 5-tuple loses probes, no other does, and none before or after."""
    draft = draft_with(build)
    (_, _, affected) = draft.affected[0]
    hit = hit_by(draft)
    outside = np.array([i not in hit for i in range(len(draft.cluster.flows))])
    during, _ = measured(draft, BEGIN_S, END_S)
    assert affected
    if build is not hosts.agent_unresponsive:
        assert (during[sorted(affected)] == 1.0).all()
    assert during.max() == 1.0
    assert during[outside].sum() == 0.0
    assert measured(draft, 0.0, BEGIN_S)[0].sum() == 0.0
    assert measured(draft, END_S + 2.0, END_S + 30.0)[0].sum() == 0.0


def beats_of(build: Build) -> tuple[frozenset[str], Counter[str], Counter[str], set[ProbingState]]:
    """Return the right answers, heartbeats and rounds of each agent during a fault, and states."""
    draft = draft_with(build)
    beats: Counter[str] = Counter()
    rounds: Counter[str] = Counter()
    states = set()
    named = draft.injected[0].components
    for timed in world_of(draft.cluster, draft.plan, 100).records():
        at_s = timed.arrival_ms / 1e3 - START_NS / 1e9
        if not BEGIN_S + 5.0 <= at_s <= 95.0:
            continue
        if timed.topic == HEARTBEAT.name:
            beats[timed.key] += 1
            if timed.key in named:
                states.add(timed.record.probing)
        rounds[timed.key] += timed.topic == PROBE_ROUND.name
    return named, beats, rounds, states


@pytest.mark.parametrize("build", [hosts.agent_dead, hosts.host_down, hosts.agents_silent])
def test_dead_and_cut_off_agents_send_nothing(build: Build) -> None:
    """All others send on."""
    named, beats, rounds, _ = beats_of(build)
    assert not [name for name in beats if name in named]
    assert not [name for name in rounds if name in named and rounds[name]]
    assert min(beats.values()) >= 57


@pytest.mark.parametrize(
    ("build", "state"),
    [
        (hosts.agent_displaced, ProbingState.DISPLACED),
        (hosts.probing_stopped, ProbingState.NO_LIST),
        (hosts.list_refused, ProbingState.PROBING),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_agent_in_trouble_says_so(build: Build, state: ProbingState) -> None:
    """Its heartbeats go on; it probes only where it still has a list in force."""
    named, beats, rounds, states = beats_of(build)
    mine = [name for name in beats if name in named]
    assert len(mine) == 1
    assert states == {state}
    assert (rounds[mine[0]] > 50) is (state is ProbingState.PROBING)


def test_tables_lose_an_entry_and_vanish_with_their_switch() -> None:
    """A missing entry has no next hop; tables that cannot be read end in a tombstone."""
    missing = draft_with(hosts.flow_missing)
    drops = [
        entry
        for timed in world_of(missing.cluster, missing.plan, 80).records()
        if timed.topic == OVERLAY_FLOWS.name
        for entry in timed.record.entries
        if entry.next_hop is None
    ]
    assert drops
    assert {entry.node for entry in drops} == missing.injected[0].components
    down = draft_with(hosts.vswitch_down)
    gone = {
        timed.key
        for timed in world_of(down.cluster, down.plan, 130).records()
        if timed.topic == OVERLAY_FLOWS.name and timed.record is None
    }
    assert len(gone) == 1
    assert gone <= down.injected[0].components
