"""Runs a simulated cluster through the pure cores and returns the transitions of faults."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final

from arena.detecting import Detection, PublishedAnomaly, published_anomalies
from arena.direct import DirectRun, Localization
from arena.simulation.timeline import Slice, timeline
from arena.simulation.world import World
from localizer.config import CoreConfig
from schemas.records import FaultEvent
from schemas.units import MS_NS, SECOND_NS
from streams.config import DetectionConfig

PARTITIONS: Final = 8
EVERY: Final = frozenset(range(PARTITIONS))
# Objects made until cycles are looked for: next to nothing makes any, and the interpreter's
# looking after 700 cost a tenth of the time.
COLLECT_AFTER: Final = 100_000


class LostHelperError(RuntimeError):
    """A helping process ended before its work was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Transitions in order, probes sent, anomaly records agent_round."""

    events: tuple[FaultEvent, ...]
    probes: int
    anomalies: int


def feed(direct: DirectRun, part: Slice) -> list[FaultEvent]:
    """Feed one second of a world, and return what is decided."""
    _consume_records(direct, part)
    direct.consume_anomalies(_detect(direct.detection, part, EVERY))
    return direct.decide()


def run_world(
    world: World,
    detection: DetectionConfig | None = None,
    core: CoreConfig | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    processes: int = 1,
) -> Outcome:
    """Run a scenario through detection and localization.

    Parameters
    ----------
    progress
        Gets the seconds done.
    processes
        Each simulates the world for itself and holds the stream workers of some partitions, as
        the workers of a group do; the first is the localizer as well. The transitions are the
        same for any number. They are spawned: a script that calls this needs the usual
        `if __name__ == "__main__"`.

    Raises
    ------
    ValueError
        If there are more processes than partitions, or none.
    LostHelperError
        If another process ends too early.
    """
    if not 1 <= processes <= PARTITIONS:
        raise ValueError(f"processes={processes}: 1 to {PARTITIONS}, the number of partitions")
    detection, core = detection or DetectionConfig(), core or CoreConfig(cluster=world.name)
    mine, *others = _shares(processes)
    spawn = get_context("spawn")
    pipes = [spawn.Pipe(duplex=False) for _ in others]
    helpers = [
        spawn.Process(target=_help, args=(out, world, detection, share), daemon=True)
        for share, (_, out) in zip(others, pipes, strict=True)
    ]
    seldom = gc.get_threshold()
    try:
        gc.set_threshold(COLLECT_AFTER)
        for helper, (_, out) in zip(helpers, pipes, strict=True):
            helper.start()
            out.close()
        return _lead(world, detection, core, progress, mine=mine, others=[i for i, _ in pipes])
    finally:
        gc.set_threshold(*seldom)
        for helper in helpers:
            if helper.pid is not None:
                helper.kill()
                helper.join()


def _lead(
    world: World,
    detection: DetectionConfig,
    core: CoreConfig,
    progress: Callable[[int], None],
    *,
    mine: frozenset[int],
    others: list[Connection],
) -> Outcome:
    """Localize, and detect in the partitions `mine`; `others` are the other processes' pipes."""
    localization = Localization(core)
    workers = Detection(world.name, detection)
    events: list[FaultEvent] = []
    probes = 0
    for number, part in enumerate(timeline(world)):
        _consume_records(localization, part)
        localization.consume_anomalies(_in_order(_detect(workers, part, mine), others))
        events += localization.decide()
        probes += part.probes
        progress(number + 1)
    localization.consume_anomalies(_in_order(workers.finish(), others))
    events += localization.decide()
    return Outcome(events=tuple(events), probes=probes, anomalies=localization.anomalies)


def _help(out: Connection, world: World, detection: DetectionConfig, mine: frozenset[int]) -> None:
    """Send what the partitions `mine` say, second by second; the pipe's size is the lead."""
    gc.set_threshold(COLLECT_AFTER)
    workers = Detection(world.name, detection)
    try:
        for part in timeline(world, rounds_only=True):
            out.send(_detect(workers, part, mine))
        out.send(workers.finish())
    except (KeyboardInterrupt, BrokenPipeError):
        # The leader has stopped, or will.
        return


def _in_order(mine: list[PublishedAnomaly], others: list[Connection]) -> list[PublishedAnomaly]:
    """Return what all workers say of a second in the order in which one process says it."""
    every = [*mine, *(one for pipe in others for one in _from(pipe))]
    return sorted(every, key=lambda one: one.order)


def _from(pipe: Connection) -> list[PublishedAnomaly]:
    try:
        found: list[PublishedAnomaly] = pipe.recv()
    except (EOFError, OSError) as error:
        raise LostHelperError("a helping process has ended; was it out of memory?") from error
    return found


def _detect(workers: Detection, part: Slice, mine: frozenset[int]) -> list[PublishedAnomaly]:
    found: list[PublishedAnomaly] = []
    for agent_round in part.rounds:
        partition = agent_round.host % PARTITIONS
        if partition in mine:
            outputs = workers.round(
                partition, agent_round.header, timestamp_ms=agent_round.arrival_ms,
                columns=agent_round.columns(),
            )  # fmt: skip
            found += published_anomalies(
                partition, outputs, (agent_round.started_at, agent_round.host)
            )
    return found + workers.idle(part.begin_ns + SECOND_NS)


def _consume_records(localization: Localization, part: Slice) -> None:
    for rec in part.records:
        localization.consume_record(rec.topic, rec.key, rec.record, timestamp_ms=rec.at_ns // MS_NS)


def _shares(processes: int) -> list[frozenset[int]]:
    """Return each process's partitions; the first, which localizes as well, has the fewest."""
    first = PARTITIONS if processes == 1 else max(1, PARTITIONS // processes - 1)
    rest = (range(first + n, PARTITIONS, processes - 1) for n in range(processes - 1))
    return [frozenset(range(first)), *map(frozenset, rest)]
