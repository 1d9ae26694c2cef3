"""Kills the stream worker again and again under load, and counts what its windows hold."""

import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from ops.log.watch import Watch
from ops.running.pipeline import WORKER, Pipeline, PipelineConfig
from schemas import topics
from schemas.codec import Codec
from schemas.enums import ClockSource, ProbeStatus, Transport
from schemas.ids import path_id
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.records import PathWindow, ProbeResult, ProbeRound

AGENTS: Final = 16
TARGETS: Final = 20
ROUND_INTERVAL_US: Final = 1_000_000
# Event time runs this much faster than the clock, so that windows close while
# the worker is being killed.
SPEED: Final = 4.0
WINDOW_S: Final = 5
LATENESS_S: Final = 2
# Between a worker's being ready and its death: random, so that deaths fall on every phase.
LIFE_S: Final = (0.2, 3.0)
DRAIN_TIMEOUT_S: Final = 60.0
SEED: Final = 20251


@dataclass(frozen=True, slots=True, kw_only=True)
class KillOutcome:
    """What the windows say against what was sent."""

    kills: int
    sent: int
    lost: int
    double: int
    seconds: float


class Load:
    """Publishes rounds of made agents and remembers how many results each 5-tuple has."""

    def __init__(self, settings: KafkaSettings, seed: int) -> None:
        self._settings = settings
        self._codec: Codec = codec_for(settings)
        self._random = random.Random(seed)  # noqa: S311 - a load needs no secrecy
        self._producer = Producer(
            {
                **settings.librdkafka(),
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                # Without it a retried batch is overtaken by the next: rounds would come late.
                "enable.idempotence": True,
            }
        )
        self._start_us = int(time.time() * 1e6) - 3_600_000_000
        self._started = time.monotonic()
        self._seq = 0
        self._failed = 0
        self.truth: Counter[tuple[str, int]] = Counter()

    def pump(self) -> None:
        """Publish all rounds that are due."""
        due = int((time.monotonic() - self._started) * SPEED * 1e6 / ROUND_INTERVAL_US)
        while self._seq < due:
            self._round(count=True)
        self._producer.poll(0)

    def close_windows(self) -> None:
        """Publish rounds without results until every window of the load must have closed."""
        for _ in range(WINDOW_S + LATENESS_S + 2):
            self._round(count=False)
        # A load that did not arrive must not look like a result that was lost.
        left = self._producer.flush(DRAIN_TIMEOUT_S)
        if left or self._failed:
            raise RuntimeError(f"the load is incomplete: {left} waiting, {self._failed} failed")

    def _round(self, *, count: bool) -> None:
        started_at = self._start_us + self._seq * ROUND_INTERVAL_US
        for agent in range(AGENTS):
            self._publish(f"agent-{agent}", started_at + agent * 1000, count=count)
        self._seq += 1

    def _publish(self, agent: str, started_at: int, *, count: bool) -> None:
        results = tuple(
            ProbeResult(
                src=f"{agent}/r0",
                dst=f"peer-{target}/r0",
                flow=0,
                sent_offset_ns=target * 1_000_000,
                transport=Transport.UDP,
                status=ProbeStatus.OK,
                rtt_ns=int(self._random.lognormvariate(9.7, 0.2)),
                responder_delay_ns=20_000,
                clock=ClockSource.KERNEL,
            )
            for target in range(TARGETS if count else 1)
        )
        record = ProbeRound(
            cluster=self._settings.cluster,
            agent_id=agent,
            host_id=agent,
            incarnation=1,
            round_seq=self._seq,
            started_at=started_at,
            interval_ns=ROUND_INTERVAL_US * 1000,
            results=results if count else (),
        )
        if count:
            self.truth.update((path_id(r.src, r.dst), r.flow) for r in results)
        self._producer.produce(
            self._settings.topic(topics.PROBE_ROUND.name),
            key=agent,
            value=self._codec.encode(topics.PROBE_ROUND, record),
            timestamp=started_at // 1000,
            on_delivery=self._delivered,
        )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._failed += error is not None


def run(folder: Path, kills: int, bootstrap: str | None = None, seed: int = SEED) -> KillOutcome:
    """Kill the worker `kills` times under load and compare its windows with the load."""
    started = time.monotonic()
    chance = random.Random(seed)  # noqa: S311 - a schedule needs no secrecy
    config = PipelineConfig(
        folder=folder,
        bootstrap=bootstrap,
        processes=(WORKER,),
        tables={WORKER: {"window_s": WINDOW_S, "allowed_lateness_s": LATENESS_S}},
    )
    with Pipeline(config) as pipeline:
        load = Load(pipeline.settings, seed)
        for _ in range(kills):
            _wait_ready(pipeline, load)
            alive_until = time.monotonic() + chance.uniform(*LIFE_S)
            while time.monotonic() < alive_until:
                load.pump()
                time.sleep(0.02)
            pipeline.group.kill(WORKER)
            (folder / "logs" / f"{WORKER}.log").unlink()
            pipeline.start(WORKER)
        _wait_ready(pipeline, load)
        load.close_windows()
        counted, double = _windows(pipeline.settings, load.truth)
    return KillOutcome(
        kills=kills,
        sent=load.truth.total(),
        lost=(load.truth - counted).total(),
        double=double + (counted - load.truth).total(),
        seconds=time.monotonic() - started,
    )


def _wait_ready(pipeline: Pipeline, load: Load) -> None:
    while not any(e.get("event") == f"{WORKER}.ready" for e in pipeline.events(WORKER)):
        pipeline.group.check()
        load.pump()
        time.sleep(0.02)


def _windows(
    settings: KafkaSettings, truth: Counter[tuple[str, int]]
) -> tuple[Counter[tuple[str, int]], int]:
    """Return the results counted per 5-tuple, and those of windows published twice."""
    counted: Counter[tuple[str, int]] = Counter()
    known: set[tuple[str, int, int]] = set()
    double = 0
    quiet_since = time.monotonic()
    with Watch(settings, [topics.PROBE_WINDOW], from_start=True) as watch:
        while time.monotonic() < quiet_since + DRAIN_TIMEOUT_S:
            for seen in watch.poll(0.2):
                window: PathWindow = seen.record
                key = (window.path_id, window.flow, window.window_start_at)
                if key in known:
                    double += window.sent
                    continue
                known.add(key)
                counted[window.path_id, window.flow] += window.sent
            if counted.total() >= truth.total():
                # All is there; a little longer, for what may come twice.
                quiet_since = min(quiet_since, time.monotonic() - DRAIN_TIMEOUT_S + 3.0)
    return counted, double
