"""How long the inference takes on a large capture, and how much memory."""

import resource
from time import perf_counter
from typing import Any, Final

from arena.workload.capture import CaptureSpec, capture
from arena.workload.spec import JobSpec
from skeleton_job.offline.meta import parse_meta
from skeleton_job.offline.table import infer_table

# 256 hosts of 8 RNICs.
LARGE: Final = JobSpec(dp=32, pp=8, period_s=10.0, microbatches=16)
SECONDS: Final = 300.0
HZ: Final = 10.0


def bench() -> dict[str, Any]:
    """Return seconds and peak memory of the inference, with and without knowledge of the task.

    The peak is the process's: it holds the table and what made it as well.
    """
    figures: dict[str, Any] = {}
    for known in (True, False):
        made = capture(CaptureSpec(jobs=(LARGE,), seconds=SECONDS, hz=HZ, tasks_known=known))
        begin, cpu = perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        found = infer_table(made.table, parse_meta(made.meta))
        used = resource.getrusage(resource.RUSAGE_SELF)
        figures["task known" if known else "task unknown"] = {
            "rnics": LARGE.hosts * LARGE.nics_per_host,
            "rows": made.table.height,
            "wall_s": round(perf_counter() - begin, 2),
            "cpu_s": round(used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime, 2),
            "peak_rss_mib": used.ru_maxrss // 1024,
            "dp": [t["dp"] for t in found["tasks"]],
            "pp": [t["pp"] for t in found["tasks"]],
        }
    return figures
