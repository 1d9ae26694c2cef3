"""Windows: what is in them, and that they agree with the records by a slow count."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from arena.baselines.crossing import Crossing, slow_probes, symptom
from arena.baselines.observing import Observer, Window, joined, quantiles
from arena.scenarios.scenario import Scenario, ScenarioEvent, stage
from arena.simulation.timeline import Slice, timeline
from arena.world.cluster import JobPlan
from arena.world.fabric import FabricShape
from schemas.units import SECOND_NS, US_NS
from tests.unit.arena.baselines.made import (
    PATHS,
    UPLINK,
    Flow,
    network,
    window,
    window_from,
    with_fault,
)

SCENARIO = Scenario(
    name="small", seed=3, seconds=75,
    fabric=FabricShape(hosts=4, rails=2, segment_hosts=2, spines=2),
    jobs=(JobPlan(task_id="job", first_host=0, hosts=4),),
    faults=(ScenarioEvent(kind="crc_error", begin_s=20),),
)  # fmt: skip


@pytest.fixture(scope="module")
def parts() -> list[Slice]:
    """Return the scenario's seconds."""
    return list(timeline(stage(SCENARIO).world))


def windows(parts: list[Slice]) -> list[Window]:
    """Return the windows of these seconds."""
    observer = Observer()
    return [w for part in parts for w in observer.second(part)] + observer.finish()


def test_windows_follow_each_other_and_hold_all(parts: list[Slice]) -> None:
    """75 s are two windows and a half; every result is in one."""
    found = windows(parts)
    assert [(w.end_ns - w.begin_ns) // SECOND_NS for w in found] == [30, 30, 15]
    assert all(a.end_ns == b.begin_ns for a, b in pairwise(found))
    assert sum(int(w.sent.sum()) for w in found) == sum(part.probes for part in parts)


def test_counts_and_quartiles_are_those_of_the_records(parts: list[Slice]) -> None:
    """By a slow count over the rounds of the second window."""
    second = windows(parts)[1]
    sent: Counter[tuple[str, str, int]] = Counter()
    trips: dict[tuple[str, str, int], list[int]] = {}
    for part in parts[30:60]:
        for made in part.rounds:
            for r in made.datum()["results"]:
                key = (r["src"], r["dst"], r["flow"])
                sent[key] += 1
                if r["status"] == "OK":
                    trips.setdefault(key, []).append(r["rtt_ns"])
    assert int(second.lost.sum()) > 0
    for place, key in enumerate(second.flows):
        mine = trips.get(key, [])
        assert second.sent[place] == sent[key]
        assert second.lost[place] == sent[key] - len(mine)
        assert second.rtts_ns(place).tolist() == sorted(mine)
        if mine:
            wanted = np.quantile(mine, [0.25, 0.5, 0.75])
            assert second.quartiles_ns[place] == pytest.approx(wanted)


def test_paths_come_from_traces_and_are_right(parts: list[Slice]) -> None:
    """After 20 s nearly every 5-tuple is traced; almost every trace shows all that is crossed."""
    second = windows(parts)[1]
    cluster = stage(SCENARIO).world.cluster
    names, flows = cluster.names, cluster.flows
    truth = {
        (names[cluster.endpoint0 + s], names[cluster.endpoint0 + d], f): {
            names[c] for c in way if c >= 0 and c < cluster.endpoint0
        }
        for s, d, f, way in zip(
            flows.src.tolist(), flows.dst.tolist(), flows.flow.tolist(), flows.there.tolist(),
            strict=True,
        )
    }  # fmt: skip
    known = [(key, set(c)) for key, c in zip(second.flows, second.components, strict=True) if c]
    assert len(known) > 0.9 * len(second)
    assert all(c <= truth[key] for key, c in known)
    assert sum(c == truth[key] for key, c in known) > 0.9 * len(known)


def test_the_first_window_brings_the_topology(parts: list[Slice]) -> None:
    """And the flow tables; later ones only what has changed."""
    first, second, _ = windows(parts)
    assert len(first.new_components) == len(first.network.topology)
    assert len(first.new_tables) == SCENARIO.fabric.hosts
    assert not second.new_components


def test_nothing_is_known_before_its_time(parts: list[Slice]) -> None:
    """Slices lead the other topics' records; a window of one second has no later trace."""
    observer = Observer(1 * SECOND_NS)
    first = observer.second(parts[0])[0]
    early = {(r.record.src, r.record.dst, r.record.flow) for r in parts[0].records
             if r.topic == "path.trace.v1" and r.at_ns < first.told_ns}  # fmt: skip
    assert {k for k, c in zip(first.flows, first.components, strict=True) if c} <= early


def test_windows_are_whole_seconds() -> None:
    """Slices are: half a second cannot be told apart."""
    with pytest.raises(ValueError, match="whole seconds"):
        Observer(SECOND_NS // 2)


def test_quantiles_are_those_of_numpy() -> None:
    """Runs of any length, an empty one too."""
    rng = np.random.default_rng(1)
    runs = [np.sort(rng.integers(0, 1000, n)) for n in (1, 2, 0, 7, 30)]
    starts = np.concatenate([[0], np.cumsum([len(r) for r in runs])])
    found = quantiles(np.concatenate(runs), starts, (0.25, 0.5, 0.75))
    for row, run in zip(found, runs, strict=True):
        wanted = np.quantile(run, [0.25, 0.5, 0.75]) if len(run) else [np.nan] * 3
        assert row == pytest.approx(wanted, nan_ok=True)


def test_stragglers_are_no_slow_probes() -> None:
    """A tenth of the answers must be slow; then each slow one counts."""
    few = [16 * US_NS] * 28 + [200 * US_NS] * 2
    many = [16 * US_NS] * 20 + [200 * US_NS] * 10
    rows: list[tuple[Flow, list[int | None]]]
    rows = [(("a", "b", 0), [*few]), (("a", "b", 1), [*many, None])]
    found = slow_probes(window_from(rows, seconds=30, within=network()))
    assert found.tolist() == [0, 10]


def test_joined_windows_are_the_window_of_all() -> None:
    """Six slices of 5 s as one of 30 s."""
    parts = [window(with_fault([UPLINK], n, loss=0.3, count=5), n, seconds=5) for n in range(6)]
    whole = joined(parts)
    assert (whole.begin_ns, whole.end_ns) == (0, 30 * SECOND_NS)
    assert whole.flows == parts[0].flows
    assert whole.lost.tolist() == np.sum([p.lost for p in parts], axis=0).tolist()
    for place in range(len(whole)):
        trips = np.concatenate([p.rtts_ns(place) for p in parts])
        assert whole.rtts_ns(place).tolist() == sorted(trips.tolist())


def test_crossing_counts_what_paths_say() -> None:
    """Sums over 5-tuples, by the paths themselves; links are preferred."""
    crossing = Crossing(window(with_fault([UPLINK], loss=1.0)))
    paths = list(PATHS.values())
    bad = crossing.sums(crossing.bad > 0)
    for number, name in enumerate(crossing.names):
        assert bad[number] == sum(UPLINK in path and name in path for path in paths)
        alike = [set(crossing.flows_of(n).tolist()) for n in crossing.alike(number)]
        assert all(s == alike[0] for s in alike)
    assert crossing.names[0].startswith("link:")
    assert crossing.names[crossing.best(bad)[0]] == UPLINK


def test_symptoms() -> None:
    """All lost, some lost, slow."""
    assert symptom(10, 10, 0) == "connectivity"
    assert symptom(10, 2, 0) == "packet_loss"
    assert symptom(10, 1, 8) == "high_latency"
