"""An hour in which 500 containers a minute come and go: memory and CPU of the processes.

The containers are those of `scale --only localizer-life`; here real processes read them from Kafka,
and residents and containers also publish rounds and counters, one in `EVERY_S`. Times of arrival
are the bench's own (`log_time`): the hour passes in minutes, but not faster than the localizer
follows. A backlog would be the most that processes ever hold, and set their memory.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, Final

from ops.bench.resilience.log_time import Pace, TimedLog
from ops.bench.resilience.quiet import wait_quiet
from ops.bench.rig import process_cost
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.bench.scale.localizer_life import RESIDENTS, Containers
from ops.running.pipeline import LOCALIZER, SKELETON, WORKER, Pipeline, PipelineConfig
from schemas import topics
from schemas.enums import ClockSource, ProbeStatus, Transport
from schemas.records import CounterBatch, CounterSample, ProbeResult, ProbeRound
from schemas.units import SECOND_NS, US_NS

CLUSTER: Final = "churn"
PROCESSES: Final = (WORKER, LOCALIZER, SKELETON)
READY_S: Final = 240.0
MB: Final = 1e6
# 540 a minute.
PER_SECOND: Final = 9
# Seconds between two rounds of an agent, and between two batches of its counters.
EVERY_S: Final = 5
WARM_UP_S: Final = 600
HOUR_S: Final = 3_600
GROWTH_MB: Final = 1.0
# CPU of the second half against the first.
CPU_RATIO: Final = 1.2
# The localizer is looked after so often, and may be so far behind.
PACE_S: Final = 20
BEHIND_S: Final = 20


class LoggedContainers(Containers):
    """Containers that come and go in front of real processes."""

    def __init__(self, log: TimedLog, wait_until: Callable[[int], None]) -> None:
        self._log = log
        self._second = 0
        self._wait_until = wait_until
        super().__init__(CLUSTER, log.now_ns)

    def write(self, topic: str, key: str, record: Any) -> None:
        """Append a record to its topic."""
        self._log.now_ns = self.now_ns
        self._log.append(topic, key, record)

    def end_second(self) -> None:
        """Append the rounds and counters of those whose turn it is."""
        self._second += 1
        for number in range(RESIDENTS):
            other = (number + 1) % RESIDENTS
            self._probe(f"agent-{number}", f"ep:{number}", f"ep:{other}")
        for number in self.present:
            if number % EVERY_S == self._second % EVERY_S:
                agent, endpoint = f"agent-c{number}", f"ep:c{number}"
                self._probe(agent, endpoint, f"ep:{(number + 1) % RESIDENTS}")
                self._count(agent, endpoint)
        if self._second > BEHIND_S and self._second % PACE_S == 0:
            self._log.flush()
            self._wait_until(self.now_ns - BEHIND_S * SECOND_NS)

    def _probe(self, agent: str, src: str, dst: str) -> None:
        results = tuple(
            ProbeResult(
                src=src, dst=dst, flow=flow, sent_offset_ns=0, transport=Transport.UDP,
                status=ProbeStatus.OK, rtt_ns=20_000 + self._second % 7, prober_delay_ns=1_000,
                responder_delay_ns=1_000, clock=ClockSource.HARDWARE,
            )
            for flow in range(2)
        )  # fmt: skip
        started_at = (self.now_ns - SECOND_NS) // US_NS
        record = ProbeRound(
            cluster=CLUSTER, agent_id=agent, host_id="host:0", incarnation=1,
            round_seq=self._second, started_at=started_at, interval_ns=SECOND_NS, results=results,
        )  # fmt: skip
        self.write(topics.PROBE_ROUND.name, agent, record)

    def _count(self, agent: str, endpoint: str) -> None:
        samples = tuple(
            CounterSample(
                endpoint_id=endpoint, rail=0, tick_offset_ns=tick * SECOND_NS // 10,
                read_delay_ns=0, tx_bytes=self._second, rx_bytes=self._second, counter_bits=64,
            )
            for tick in range(10)
        )  # fmt: skip
        batch = CounterBatch(
            cluster=CLUSTER, agent_id=agent, host_id="host:0",
            started_at=(self.now_ns - SECOND_NS) // US_NS, tick_ns=SECOND_NS // 10,
            samples=samples,
        )  # fmt: skip
        self.write(topics.RNIC_COUNTERS.name, agent, batch)


@dataclass(slots=True)
class Course:
    """Resident bytes and seconds of CPU of a process after each stretch."""

    rss_bytes: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    @property
    def growth_mb(self) -> float:
        """Growth since the first stretch."""
        return (self.rss_bytes[-1] - self.rss_bytes[0]) / MB

    @property
    def cpu_ratio(self) -> float:
        """CPU of the last stretch against the one before."""
        first, middle, last = self.cpu_s
        return (last - middle) / max(1e-9, middle - first)


def measure(say: Say, warm_up_s: int = WARM_UP_S, hour_s: int = HOUR_S) -> dict[str, Course]:
    """Let the hour pass; return each process's course: after the warm-up, halfway, at the end."""
    courses = {name: Course() for name in PROCESSES}
    half_s = (hour_s - warm_up_s) // 2
    with (
        scratch_folder() as folder,
        Pipeline(
            PipelineConfig(folder=folder, cluster=CLUSTER, processes=PROCESSES, tables={})
        ) as pipeline,
        ExitStack() as stack,
    ):
        pipeline.wait_ready(READY_S)
        log = TimedLog(pipeline.settings)
        pace = stack.enter_context(closing(Pace(pipeline.settings)))
        containers = LoggedContainers(
            log, lambda at_ns: pace.wait_until_decided(at_ns, pipeline.group.check)
        )
        for seconds in (warm_up_s, half_s, half_s):
            containers.run(seconds, PER_SECOND)
            log.flush()
            for name, course in courses.items():
                pid = pipeline.group.child(name).pid
                wait_quiet(pid, pipeline.group.check)
                course.cpu_s.append(process_cost.cpu_s(pid))
                course.rss_bytes.append(process_cost.memory(pid).rss_bytes)
                say(
                    f"{containers.came:,} containers came; {name}: "
                    f"{course.rss_bytes[-1] / MB:.1f} MB, {course.cpu_s[-1]:.1f} s of CPU"
                )
    return courses


def churn(runs: int, say: Say) -> list[Figure]:
    """Measure growth and CPU over the hour."""
    courses = [measure(say) for _ in range(runs)]
    rows = []
    for name in PROCESSES:
        mine = [by_name[name] for by_name in courses]
        rows += [
            figure(
                f"{name}, an hour of 500 containers a minute: growth after 10 minutes",
                [c.growth_mb for c in mine], "MB", GROWTH_MB, worst=True,
            ),
            figure(
                f"… {name}: CPU of minutes 35 to 60 against 10 to 35",
                [c.cpu_ratio for c in mine], "×", CPU_RATIO, worst=True,
            ),
        ]  # fmt: skip
    return rows


PARTS: Final[Parts] = {"churn": churn}
