"""The worlds of `arena.sealed`, whose author has not read the detectors: diagnosed and scored.

A verdict about a host's agent pages nobody. It counts as found where it answers a fault, and is
never false: a host that was drained is worth a warning.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from typing import Final
from zlib import crc32

from arena.direct import DirectRun
from arena.faults.truth import TrueFault, Verdict, verdicts_of
from arena.run import PARTITIONS
from arena.scoring import Case, match
from arena.sealed.draw import FAMILIES, draw
from arena.sealed.stream import Injected, SealedWorld, Timed
from localizer.config import CoreConfig
from schemas.codec import Codec
from schemas.enums import Layer
from schemas.records import FaultEvent
from schemas.topics import PROBE_ROUND
from schemas.units import MS_NS, SECOND_NS
from streams.config import DetectionConfig
from streams.core.feed import LogMessage

# Nobody has looked at a world of these seeds. Once one was looked at, the next ones count: those
# from 1,000 to 1,149 were by 2026-11-28.
FIRST_SEED: Final = 1_150
# What arrives within so long is consumed at once: states and traces first, then rounds.
STEP_MS: Final = 250


def draws(runs: int) -> list[tuple[int, str]]:
    """Return the seed and family of so many worlds, the families in turns."""
    return [
        (FIRST_SEED + number // len(FAMILIES), FAMILIES[number % len(FAMILIES)])
        for number in range(runs)
    ]


def cases(wanted: Iterable[tuple[int, str]], *, workers: int = 1) -> Iterator[Case]:
    """Yield what our pipeline makes of worlds, in their order."""
    if workers <= 1:
        yield from map(case, wanted)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(case, wanted)


def case(drawn: tuple[int, str]) -> Case:
    """Draw and diagnose a world."""
    seed, family = drawn
    world = draw(seed, family)
    faults = tuple(_true_fault(one) for one in world.injected if not one.confounder)
    return Case(
        name=f"sealed-{family}-{seed}",
        faults=faults,
        verdicts=counted(faults, verdicts_of(diagnose(world))),
        duration_ns=world.duration_s * SECOND_NS,
    )


def counted(faults: tuple[TrueFault, ...], verdicts: list[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts that page, and of the others those that answer a fault."""
    found = {verdict.fault_id for _, verdict in match(faults, verdicts).pairs}
    return tuple(v for v in verdicts if v.pages or v.fault_id in found)


def diagnose(world: SealedWorld) -> list[FaultEvent]:
    """Return what our pipeline says of a world's records, in the order of their arrival."""
    direct = DirectRun(world.cluster, DetectionConfig(), CoreConfig(cluster=world.cluster))
    codec, offsets = Codec(), dict.fromkeys(range(PARTITIONS), 0)
    events: list[FaultEvent] = []
    for step, arrived in groupby(world.records(), lambda timed: timed.arrival_ms // STEP_MS):
        rounds: dict[int, list[LogMessage]] = {}
        for timed in arrived:
            if timed.topic != PROBE_ROUND.name:
                direct.consume_record(
                    timed.topic, timed.key, timed.record, timestamp_ms=timed.arrival_ms
                )
                continue
            partition = crc32(timed.key.encode()) % PARTITIONS
            rounds.setdefault(partition, []).append(_message(codec, timed, offsets[partition]))
            offsets[partition] += 1
        for partition, messages in sorted(rounds.items()):
            direct.messages(partition, messages, timestamp_ms=messages[-1].arrival_ms or 0)
        events += direct.pass_time((step + 1) * STEP_MS * MS_NS)
    return events + direct.finish()


def _message(codec: Codec, timed: Timed, offset: int) -> LogMessage:
    return LogMessage(codec.encode(PROBE_ROUND, timed.record), offset, timed.arrival_ms)


def _true_fault(one: Injected) -> TrueFault:
    also = one.also_kinds
    # The catalogue got `host_down` after the worlds were sealed: what lost a whole host, with its
    # containers, could only be called `connectivity`.
    if one.kind == "connectivity" and "container_crash" in also:
        also |= {"host_down"}
    return TrueFault(
        fault_id=one.name, kind=one.kind, layer=Layer.UNDERLAY, components=one.components,
        begin_ns=one.begin_ns, end_ns=one.end_ns, hard=one.hard, also_kinds=also,
    )  # fmt: skip
