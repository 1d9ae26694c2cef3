"""What the collector costs a host with eight ranks, and what the plugin for NCCL costs a job.

The ranks are stand-ins (`ops/bench/agent/recording_rank.py`), the broker is real. The collector
looks at their job alone, whatever else runs on the machine.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.bench.agent.plugin_calls import TASK, measure_calls, nccl_ranks
from ops.bench.rig.process_cost import Memory, cpu_s, memory
from ops.bench.rig.report import Figure, Say, figure, scratch_folder
from ops.broker.embedded import EmbeddedKafka
from ops.broker.ports import ClaimedPorts
from ops.running.processes import Child, ProcessGroup
from ops.topics.admin import apply_topics
from ops.topics.plan import Options
from schemas.kafka.connection import KafkaSettings

CPU_BAR_PERCENT: Final = 1.0
RSS_BAR_MB: Final = 60.0
RANKS: Final = 8
# Operations that a rank's dump holds.
RING: Final = 500
LASTS_S: Final = 60.0
MB: Final = 1e6
WARM_UP_S: Final = 15.0
RANK: Final = Path(__file__).with_name("recording_rank.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How often each rank launches, and whether the plugin's rings tell it instead of dumps."""

    rate_hz: int
    nccl: bool
    barred: bool

    @property
    def text(self) -> str:
        """Name of its rows."""
        kind = "rings of NCCL's plugin" if self.nccl else f"dumps of {RING}"
        return f"collector, {RANKS} ranks × {self.rate_hz} operations a second, {kind}"


LOADS: Final = (
    Load(rate_hz=20, nccl=False, barred=True),
    Load(rate_hz=20, nccl=True, barred=True),
    # As a job of tensor-parallel groups launches.
    Load(rate_hz=60, nccl=False, barred=False),
)


@contextmanager
def collecting(load: Load) -> Iterator[Child]:
    """Give a collector that has looked at ranks for a while."""
    with (
        scratch_folder() as folder,
        EmbeddedKafka(announce=False) as broker,
        ProcessGroup(folder) as group,
        nccl_ranks(folder, RANKS, load.rate_hz) if load.nccl else nullcontext(),
    ):
        apply_topics(KafkaSettings(bootstrap=broker.bootstrap), Options())
        claimed = ClaimedPorts()
        ports = ",".join(str(claimed.claim()) for _ in range(RANKS))
        for rank in range(0 if load.nccl else RANKS):
            group.start(
                f"rank{rank}",
                [sys.executable, str(RANK), ports, str(load.rate_hz), str(RING)],
                env=os.environ
                | {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(RANKS),
                    "SKELETONHUNTER_TASK_ID": TASK,
                    "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/rank_",
                },
            )
        collector = group.start(
            "collector",
            [
                *(sys.executable, "-m", "probers.collector", "--bootstrap", broker.bootstrap),
                *("--only-task", TASK, "--log-json"),
            ],
        )
        time.sleep(WARM_UP_S)
        group.check()
        yield collector
        group.check()
        claimed.release()
        group.stop(collector.name)
        check_seen(collector.events("collect.counts")[-1])


def check_seen(counts: Mapping[str, int]) -> None:
    """Raise RuntimeError if a collector, by its last counts, has not seen what ranks do."""
    if counts["ranks"] != RANKS or not counts["operations"]:
        raise RuntimeError(f"the collector has not seen what {RANKS} ranks do: {counts}")


def measure(
    runs: int, say: Say, *, seconds: float = LASTS_S, plugin_alone: bool = True
) -> list[Figure]:
    """Measure each load for some stretches, one after another, then the plugin's calls.

    Raises
    ------
    RuntimeError
        If a collector has not seen what the ranks do.
    """
    rows = []
    for load in LOADS:
        percents = []
        with collecting(load) as collector:
            for number in range(runs):
                begin, begin_s = cpu_s(collector.pid), time.monotonic()
                time.sleep(seconds)
                took_s = time.monotonic() - begin_s
                percents.append(100 * (cpu_s(collector.pid) - begin) / took_s)
                say(f"{load.text}, {number + 1}/{runs}: {percents[-1]:.2f} % of a core")
            held = memory(collector.pid)
        rows += figures(load, percents, held)
    if plugin_alone:
        with scratch_folder() as folder:
            rows += measure_calls(folder)
    return rows


def figures(load: Load, percents: list[float], held: Memory) -> list[Figure]:
    """Return the rows of a load: what was taken in each stretch, and the most memory."""
    cpu_bar, rss_bar = (CPU_BAR_PERCENT, RSS_BAR_MB) if load.barred else (None, None)
    return [
        figure(f"{load.text}: CPU", percents, "% of a core", cpu_bar),
        figure("… peak RSS", [held.peak_bytes / MB], "MB", rss_bar),
    ]
