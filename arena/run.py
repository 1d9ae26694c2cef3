"""A world through the pure cores: transitions out, and what it cost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from arena.direct import DirectRun
from arena.simulation import SECOND_NS, World
from arena.timeline import Slice, timeline
from localizer.config_core import CoreConfig
from schemas.records import FaultEvent
from streams.config import DetectionConfig

MS_NS: Final = 10**6
US_PER_MS: Final = 1_000
PARTITIONS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Transitions in order, probes sent, anomaly records made."""

    events: tuple[FaultEvent, ...]
    probes: int
    anomalies: int


def feed(direct: DirectRun, part: Slice) -> list[FaultEvent]:
    """Take in a second of a world, and decide."""
    for rec in part.records:
        direct.record(rec.topic, rec.key, rec.record, timestamp_ms=rec.at_ns // MS_NS)
    for made in part.rounds:
        direct.round(
            made.host % PARTITIONS, made.header, timestamp_ms=made.started_at // US_PER_MS,
            columns=made.columns(),
        )  # fmt: skip
    return direct.decide(part.begin_ns + SECOND_NS)


def run_world(
    world: World,
    detection: DetectionConfig | None = None,
    core: CoreConfig | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Run a scenario through detection and localization; `progress` gets the seconds done."""
    direct = DirectRun(
        world.name, detection or DetectionConfig(), core or CoreConfig(cluster=world.name)
    )
    events: list[FaultEvent] = []
    probes = 0
    for number, part in enumerate(timeline(world)):
        events += feed(direct, part)
        probes += part.probes
        progress(number + 1)
    events += direct.finish()
    return Outcome(events=tuple(events), probes=probes, anomalies=direct.anomalies)
