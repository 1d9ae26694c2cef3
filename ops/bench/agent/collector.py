"""`python -m ops.bench.agent.collector`: what the collector costs a host with eight ranks.

The ranks are stand-ins (`ops/bench/agent/recording_rank.py`), the broker is real. `--calls`
measures the plugin for NCCL alone: what a call of it takes the job. The collector sees all ranks of
the machine: where others run, `unshare --pid --fork --mount-proc` hides them.
"""

import argparse
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from ops.bench.agent.plugin_calls import measure_calls, nccl_ranks
from ops.bench.rig.process_cost import cpu_s, memory
from ops.bench.rig.report import Figure, figure, print_table, scratch_folder
from ops.broker.embedded import EmbeddedKafka
from ops.broker.ports import ClaimedPorts
from ops.running.processes import ProcessGroup
from ops.topics.admin import apply_topics
from ops.topics.plan import Options
from schemas.kafka.connection import KafkaSettings

COMMAND: Final = "python -m ops.bench.agent.collector"
CPU_BAR_PERCENT: Final = 1.0
RSS_BAR_MB: Final = 60.0
MB: Final = 1e6
WARM_UP_S: Final = 15.0
RANK: Final = Path(__file__).with_name("recording_rank.py")


def measure(
    ranks: int, rate_hz: int, ring: int, seconds: float, *, nccl: bool = False
) -> list[Figure]:
    """Run ranks and a collector; return what the collector took.

    `nccl`: the ranks have the plugin's rings instead of dumps.
    """
    with (
        scratch_folder() as folder,
        EmbeddedKafka(announce=False) as broker,
        ProcessGroup(folder) as group,
        nccl_ranks(folder, ranks, rate_hz) if nccl else nullcontext(),
    ):
        settings = KafkaSettings(bootstrap=broker.bootstrap)
        apply_topics(settings, Options())
        claimed = ClaimedPorts()
        ports = ",".join(str(claimed.claim()) for _ in range(ranks))
        for rank in range(0 if nccl else ranks):
            group.start(
                f"rank{rank}",
                [sys.executable, str(RANK), ports, str(rate_hz), str(ring)],
                env=os.environ
                | {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "SKELETONHUNTER_TASK_ID": "bench",
                    "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/rank_",
                },
            )
        collector = group.start(
            "collector",
            [sys.executable, "-m", "probers.collector", "--bootstrap", broker.bootstrap],
        )
        time.sleep(WARM_UP_S)
        begin, begin_s = cpu_s(collector.pid), time.monotonic()
        time.sleep(seconds)
        percent = 100 * (cpu_s(collector.pid) - begin) / (time.monotonic() - begin_s)
        held = memory(collector.pid)
        claimed.release()
    kind = "rings of NCCL's plugin" if nccl else f"dumps of {ring}"
    what = f"{ranks} ranks × {rate_hz} operations a second, {kind}"
    return [
        figure(f"{what}: CPU", [percent], "% of a core", CPU_BAR_PERCENT, worst=True),
        figure(f"{what}: peak RSS", [held.peak_bytes / MB], "MB", RSS_BAR_MB, worst=True),
    ]


def main() -> int:
    """Print the table; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rate", type=int, default=20, help="operations of a rank a second")
    parser.add_argument("--ring", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nccl", action="store_true", help="rings of NCCL's plugin, no dumps")
    parser.add_argument("--calls", action="store_true", help="the plugin for NCCL alone")
    given = parser.parse_args()
    if given.calls:
        with scratch_folder() as folder:
            rows = measure_calls(folder)
    else:
        rows = measure(given.ranks, given.rate, given.ring, given.seconds, nccl=given.nccl)
    print_table("collector", rows)
    return int(any(not row.met for row in rows))


if __name__ == "__main__":
    sys.exit(main())
