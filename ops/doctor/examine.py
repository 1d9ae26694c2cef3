"""Runs all checks, from the platform upwards."""

from typing import Final

from ops.doctor import agents, pipeline, platform
from ops.doctor.snapshot import Check, Snapshot, Status

CHECKS: Final = (
    platform.topics,
    platform.schemas,
    agents.silent_agents,
    agents.degraded_agents,
    agents.twins,
    agents.clocks,
    agents.clock_offsets,
    agents.probing,
    agents.drops,
    pipeline.rounds,
    pipeline.worker,
    pipeline.localizer,
    pipeline.leaders,
    platform.dead_letters,
    pipeline.unregistered_targets,
    pipeline.coverage,
    pipeline.skeletons,
)


def examine(snapshot: Snapshot) -> list[Check]:
    """Return all checks; only the first when there is no broker."""
    first = platform.broker(snapshot)
    if first.status is Status.FAIL:
        return [first]
    return [first, *(check(snapshot) for check in CHECKS)]
