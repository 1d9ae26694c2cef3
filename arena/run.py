"""A world through the pure cores: transitions out, and what it cost."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from arena.direct import DirectRun
from arena.simulation import SECOND_NS, Second, Simulation, World
from localizer.config_core import CoreConfig
from schemas.records import FaultEvent
from streams.config import DetectionConfig

MS_NS: Final = 10**6
PARTITIONS: Final = 8
# A round reaches up to two timeouts beyond its second, and a trace after a loss is done
# two timeouts later: what all that is decided by must be there before.
LEAD_S: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Transitions in order, probes sent, anomaly records made."""

    events: tuple[FaultEvent, ...]
    probes: int
    anomalies: int


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
    waiting: deque[Second] = deque()
    events: list[FaultEvent] = []
    probes = 0
    for number, second in enumerate(Simulation(world).run()):
        for rec in second.records:
            direct.record(rec.topic, rec.key, rec.record, timestamp_ms=rec.at_ns // MS_NS)
        probes += second.probes
        waiting.append(second)
        if len(waiting) > LEAD_S:
            events += _decide(direct, waiting.popleft())
        progress(number + 1)
    while waiting:
        events += _decide(direct, waiting.popleft())
    events += direct.finish()
    return Outcome(events=tuple(events), probes=probes, anomalies=direct.anomalies)


def _decide(direct: DirectRun, second: Second) -> list[FaultEvent]:
    for host, datum in sorted(second.rounds, key=lambda r: (r[1]["started_at"], r[0])):
        direct.round(host % PARTITIONS, datum, timestamp_ms=datum["started_at"] // 1000)
    return direct.decide(second.begin_ns + SECOND_NS)
