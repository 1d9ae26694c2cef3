"""Scenarios through one process and through several."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from arena.detecting import PublishedAnomaly
from arena.direct import Localization
from arena.run import Outcome, run_world
from arena.scenarios.scenario import stage
from arena.scenarios.suites import scenarios
from arena.simulation.world import World

# A port that goes down, and two faults at once in a cluster of several jobs.
SMALL = next(s for s in scenarios("smoke", 1) if "switch_port_down" in s.name)


@pytest.fixture(scope="module")
def world() -> World:
    """Return that scenario until after the fault's onset."""
    return stage(replace(SMALL, seconds=240)).world


@pytest.fixture(scope="module")
def alone(world: World) -> Outcome:
    """Return what one process says of it."""
    return run_world(world)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_processes_do_not_change_what_is_said(world: World, alone: Outcome, processes: int) -> None:
    """One process or more: the same transitions, probes, anomalies."""
    done: list[int] = []
    shared = run_world(world, progress=done.append, processes=processes)
    assert alone.events
    assert shared == alone
    assert done == list(range(1, 241))


@pytest.mark.slow
def test_watermarks_do_not_depend_on_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is heard each second, and in which order: the same, also while partitions wake."""
    heard: list[list[tuple[int, str, int]]] = [[]]
    hear = Localization.consume_anomalies

    def listen(self: Localization, records: Iterable[PublishedAnomaly]) -> None:
        found = list(records)
        heard[-1] += [(t.partition, t.key, t.record.event_at) for t in found]
        hear(self, found)

    monkeypatch.setattr(Localization, "consume_anomalies", listen)
    (crash,) = scenarios("healthy-month", 1, first_seed=29_000_001)
    world = stage(replace(crash, seconds=120)).world
    run_world(world)
    heard.append([])
    run_world(world, processes=3)
    assert len(heard[0]) > 1_000
    assert heard[0] == heard[1]


@pytest.mark.parametrize("processes", [0, 9])
def test_as_many_processes_as_partitions_at_most(processes: int) -> None:
    """A partition is the least that a process can hold."""
    with pytest.raises(ValueError, match=f"processes={processes}: 1 to 8"):
        run_world(stage(SMALL).world, processes=processes)
