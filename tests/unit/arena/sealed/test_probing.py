"""Rounds: what effects do to the probes of 5-tuples that cross them, and to no others."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from arena.sealed.cluster import Cluster
from arena.sealed.plan import Delay, Effect, Place, Plan, Where
from arena.sealed.schedule import steady
from arena.sealed.truth import Geometry, geometry
from schemas.enums import ProbeStatus
from tests.unit.arena.sealed.small import (
    START_NS,
    bonded,
    cluster_where,
    in_overlay,
    results_of,
    single,
    world_of,
)

Key = tuple[str, str, int]


def names_of(cluster: Cluster, flows: frozenset[int]) -> set[Key]:
    """Return 5-tuples as results name them."""
    chosen = (cluster.flows[index] for index in flows)
    return {(cluster.sites[f.src].name, cluster.sites[f.dst].name, f.index) for f in chosen}


def busiest(geo: Geometry) -> int:
    """Return the directed link between switches that most probes cross."""
    inside = Counter(dlink for hops in geo.forward.values() for dlink in hops[1:-1])
    return inside.most_common(1)[0][0]


@pytest.mark.parametrize("loss", [0.02, 0.3])
@pytest.mark.parametrize("wanted", [in_overlay, bonded, single])
def test_loss_hits_what_crosses_the_cable_by_its_share(
    loss: float, wanted: Callable[[Cluster], bool]
) -> None:
    """The measured share lies within four standard deviations; all others lose nothing."""
    cluster = cluster_where(wanted)
    geo = geometry(cluster, Plan(), 0.0, 1.0)
    where = Where(dlinks=frozenset({busiest(geo)}))
    probes, replies = geo.hit(where)
    effect = Effect(where=where, schedule=steady(5.0), loss=loss)
    once, twice = names_of(cluster, probes ^ replies), names_of(cluster, probes & replies)
    sent: Counter[int] = Counter()
    lost: Counter[int] = Counter()
    for at_s, result in results_of(world_of(cluster, Plan(effects=[effect])).records()):
        key = (result.src, result.dst, result.flow)
        crossings = 2 if key in twice else int(key in once)
        if crossings and at_s >= 5.1:
            sent[crossings] += 1
            lost[crossings] += result.status is not ProbeStatus.OK
        elif not crossings or at_s < 4.9:
            assert result.status is ProbeStatus.OK
    for crossings in (1, 2):
        share = 1.0 - (1.0 - loss) ** crossings
        mean, count = share * sent[crossings], sent[crossings]
        assert abs(lost[crossings] - mean) <= 4.0 * np.sqrt(mean * (1.0 - share)) + 1.0, count
    assert sum(sent.values()) > 500


def test_delay_shifts_what_crosses_and_nothing_else() -> None:
    """The median round trip rises by what is injected."""
    cluster = cluster_where(single)
    geo = geometry(cluster, Plan(), 0.0, 1.0)
    where = Where(dlinks=frozenset({busiest(geo)}))
    probes, replies = geo.hit(where)
    slow = Effect(where=where, schedule=steady(30.0), delay=Delay(fixed_ns=9_000.0))
    plain = names_of(cluster, frozenset(geo.probed) - probes - replies)
    hit = names_of(cluster, probes - replies)
    before: dict[Key, list[int]] = {}
    after: dict[Key, list[int]] = {}
    for at_s, result in results_of(world_of(cluster, Plan(effects=[slow])).records()):
        key = (result.src, result.dst, result.flow)
        assert result.rtt_ns is not None
        (after if at_s >= 30.1 else before).setdefault(key, []).append(result.rtt_ns)
    shift = {key: float(np.median(after[key]) - np.median(before[key])) for key in before}
    assert np.median([shift[key] for key in hit]) == pytest.approx(9_000, abs=300)
    assert max(abs(shift[key]) for key in plain) < 2_500


def test_a_dead_rnic_says_why_and_its_peers_only_time_out() -> None:
    """The status of its own probes tells more than that of others."""
    cluster = cluster_where(single)
    rnic = cluster.flows[0].src
    members = frozenset({rnic})
    over = steady(10.0, 30.0)
    plan = Plan(
        effects=[
            Effect(where=Where(place=Place.SOURCE, srcs=members), schedule=over, loss=1.0,
                   status=ProbeStatus.NO_DEVICE),
            Effect(where=Where(place=Place.SINK, dsts=members), schedule=over, loss=1.0),
        ]
    )  # fmt: skip
    name = cluster.sites[rnic].name
    seen: dict[str, set[ProbeStatus]] = {"own": set(), "to": set(), "other": set(), "later": set()}
    for at_s, result in results_of(world_of(cluster, plan).records()):
        mine = name in (result.src, result.dst)
        own = "own" if result.src == name else "to"
        if mine and 10.1 < at_s < 29.9:
            seen[own].add(result.status)
        elif not mine or at_s > 30.1:
            seen["later" if mine else "other"].add(result.status)
    assert seen == {
        "own": {ProbeStatus.NO_DEVICE},
        "to": {ProbeStatus.TIMEOUT},
        "other": {ProbeStatus.OK},
        "later": {ProbeStatus.OK},
    }


def test_lost_probes_are_repeated_and_nothing_else_is() -> None:
    """A 5-tuple has one result a round, and with a loss as many more as the cluster confirms."""
    cluster = cluster_where(in_overlay)
    geo = geometry(cluster, Plan(), 0.0, 1.0)
    where = Where(dlinks=frozenset({busiest(geo)}))
    effect = Effect(where=where, schedule=steady(10.0, 20.0), loss=1.0)
    for timed in world_of(cluster, Plan(effects=[effect]), 30).records():
        if timed.topic != "probe.round.v1":
            continue
        offsets = [result.sent_offset_ns for result in timed.record.results]
        assert offsets == sorted(offsets)
        results = Counter((r.src, r.dst, r.flow) for r in timed.record.results)
        lost = {
            (r.src, r.dst, r.flow) for r in timed.record.results if r.status is not ProbeStatus.OK
        }
        for key, count in results.items():
            assert count == 1 or (key in lost and count == 1 + cluster.confirm)
        assert timed.arrival_ms > timed.record.started_at // 1000 - 1_000
        assert timed.record.started_at * 1000 > START_NS - 10**9
