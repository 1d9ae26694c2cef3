"""Scenarios through one process and through several."""

from dataclasses import replace

import pytest

from arena.run import run_world
from arena.scenario import stage
from arena.suites import scenarios

# A port that goes down, and two faults at once in a cluster of several jobs.
SMALL = next(s for s in scenarios("smoke", 1) if "switch_port_down" in s.name)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("processes", [2, 3])
def test_processes_do_not_change_what_is_said(processes: int) -> None:
    """One process or more: the same transitions, probes, anomalies."""
    world = stage(replace(SMALL, seconds=240)).world
    done: list[int] = []
    alone = run_world(world)
    shared = run_world(world, progress=done.append, processes=processes)
    assert alone.events
    assert shared == alone
    assert done == list(range(1, 241))


@pytest.mark.parametrize("processes", [0, 9])
def test_as_many_processes_as_partitions_at_most(processes: int) -> None:
    """A partition is the least that a process can hold."""
    with pytest.raises(ValueError, match=f"processes={processes}: 1 to 8"):
        run_world(stage(SMALL).world, processes=processes)
