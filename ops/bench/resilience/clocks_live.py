"""Wrong clocks before a real broker and real workers: one wrong agent in each partition.

The same rounds are published to two sets of topics at the same time, once with right clocks.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from ops.bench.resilience.clock_world import WRONG_CLOCKS, ClockWorld, Round
from ops.bench.resilience.clocks import Published
from ops.bench.rig.publisher import Publisher
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.bench.rig.waiting import wait_until
from ops.bench.rig.windows import log_messages
from ops.bench.throughput.rig import START_TIMEOUT_S, Rig, wait_ready
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.murmur2 import partition_of
from schemas.topics import ANOMALY, DEFAULT_PARTITIONS, PROBE_ROUND, PROBE_WINDOW
from schemas.units import MS_NS, SECOND_NS, US_NS
from streams.config import WorkerConfig
from streams.edge.lookback import LogReader

# One in each partition.
CLOCKS: Final = ("+40 s", "+50 min", "+30 d", "-1 h")
AGENTS: Final = 4
WINDOW_S: Final = 5
LATENESS_S: Final = 2
OPTIONS: Final = (
    "--window-s", str(WINDOW_S), "--allowed-lateness-s", str(LATENESS_S),
    "--loss-clear-probes", "10",
)  # fmt: skip
SECONDS: Final = 90
HEALTHY_S: Final = 40
FAULT_S: Final = 15
STEP_S: Final = 5
# Workers stand ready, and windows begin with the load.
LEAD_S: Final = 5
DRAIN_S: Final = 60.0
POLL_S: Final = 0.01


def worlds(begin_ns: int, seconds: int = SECONDS) -> list[ClockWorld]:
    """Return a world for each partition: its agents' keys are hashed there."""
    names: defaultdict[int, list[str]] = defaultdict(list)
    number = 0
    while len(names) < DEFAULT_PARTITIONS or min(map(len, names.values())) < AGENTS:
        name = f"agent-{number}"
        names[partition_of(name.encode(), DEFAULT_PARTITIONS)].append(name)
        number += 1
    return [
        ClockWorld(
            begin_ns=begin_ns, agents=tuple(names[partition][:AGENTS]), seconds=seconds,
            healthy_s=HEALTHY_S, fault_s=FAULT_S, step_s=STEP_S, seed=partition,
        )
        for partition in range(DEFAULT_PARTITIONS)
    ]  # fmt: skip


def clocks_live(runs: int, say: Say) -> list[Figure]:
    """Publish the rounds of all partitions in real time, with right and with wrong clocks."""
    del runs  # One run has all clocks.
    with scratch_folder() as folder, Rig(folder, join_ms=0) as rig:
        right, wrong = rig.settings("right."), rig.settings("wrong.")
        workers = [rig.start_worker(s.topic_prefix, s, *OPTIONS) for s in (right, wrong)]
        wait_ready(workers, START_TIMEOUT_S, check=rig.group.check)
        window_ns = WINDOW_S * SECOND_NS
        begin_ns = (time.time_ns() + LEAD_S * SECOND_NS) // window_ns * window_ns
        found = worlds(begin_ns)
        rounds = [world.rounds() for world in found]
        clocks = [next(c for c in WRONG_CLOCKS if c.name == name) for name in CLOCKS]
        misdated = [w.with_clock(r, c) for w, r, c in zip(found, rounds, clocks, strict=True)]
        _publish(
            (Publisher(right), [one for each in rounds for one in each]),
            (Publisher(wrong), [one for each in misdated for one in each]),
        )
        for settings in (right, wrong):
            _drain(rig, settings)
        rows = []
        for partition, (world, clock) in enumerate(zip(found, clocks, strict=True)):
            ours, theirs = (_published(s, partition, world) for s in (wrong, right))
            others = ours.differences(theirs)
            own = ours.own_differences(theirs, world.refused_paths(misdated[partition]))
            say(f"clock {clock.name}, live: {others} of {len(theirs.others)} windows and onsets of "
                f"others differ; own onsets {len(ours.own)} of {len(theirs.own)}")  # fmt: skip
            what = f"live, clock {clock.name}"
            rows += [
                figure(f"{what}: others' windows and onsets that differ", [float(others)], "", 0.0),
                figure(f"{what}: own faults not found, or false", [float(own)], "", 0.0),
            ]
    return rows


def _publish(*loads: tuple[Publisher, Sequence[Round]]) -> None:
    codec = Codec()
    due = sorted(
        (
            (one.arrival_ns, n, one.agent, codec.encode_datum(PROBE_ROUND, one.datum))
            for n, (_, rounds) in enumerate(loads)
            for one in rounds
        ),
    )
    publishers = [publisher for publisher, _ in loads]
    for at_ns, number, agent, value in due:
        while time.time_ns() < at_ns:
            for publisher in publishers:
                publisher.serve()
            time.sleep(POLL_S)
        publishers[number].publish(PROBE_ROUND.name, agent, value, at_ns // MS_NS)
    for publisher in publishers:
        publisher.finish()


def _drain(rig: Rig, settings: KafkaSettings) -> None:
    place = rig.positions(settings, PROBE_ROUND.name, WorkerConfig().group)
    wait_until(
        lambda: (place.done() or 0) >= place.end, DRAIN_S, "the worker is behind",
        check=rig.group.check,
    )  # fmt: skip


def _published(settings: KafkaSettings, partition: int, world: ClockWorld) -> Published:
    # The last windows of a load may be open.
    until_us = (world.begin_ns + (world.seconds - 2 * WINDOW_S) * SECOND_NS) // US_NS
    found, codec = Published(world.wrong, until_us), Codec()
    with LogReader(settings) as reader:
        for topic in (PROBE_WINDOW, ANOMALY):
            for message in log_messages(reader, settings, topic):
                if message.partition() == partition:
                    found.observe(codec.decode(topic, message.value() or b""))
    return found


PARTS: Final[Parts] = {"clocks-live": clocks_live}
