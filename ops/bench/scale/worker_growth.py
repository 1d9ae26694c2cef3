"""Memory and CPU of a worker's core for a given number of 5-tuples.

`python -m ops.bench.scale.worker_growth AGENTS` feeds rounds of that many agents, 80 5-tuples each,
one a second of event time, to a core without Kafka, in a process of its own. Windows are encoded
and dropped. It prints one JSON object.
"""

import gc
import json
import os
import sys
import time
from typing import Final

from ops.bench.rig import process_cost
from ops.bench.rig.load import Load, LoadShape
from ops.bench.throughput.core import PARTITIONS, Core, Logs, append_interval
from schemas.codec import Codec
from schemas.process import memory
from streams.warm import warm

# In the first minute every 5-tuple is new, and the first window closes.
WARM_S: Final = 60
# Two windows more.
LASTS_S: Final = 60


def run(agents: int, warm_s: int = WARM_S, lasts_s: int = LASTS_S) -> dict[str, float]:
    """Return 5-tuples, results and seconds of CPU after the warm part, bytes that were added."""
    memory.return_large_arrays()
    warm(Codec())
    # Of bodies there are few: their values do not matter here, and their bytes are no state.
    load = Load(LoadShape(agents=agents, bodies=2))
    gc.collect()
    before = process_cost.memory(os.getpid()).rss_bytes
    core, results, cpu_s = Core(publish=True), 0, 0.0
    for number in range(warm_s + lasts_s):
        logs: Logs = [[] for _ in range(PARTITIONS)]
        came = append_interval(load, number, logs)
        begin_s = time.process_time()
        core.consume(logs)
        if number >= warm_s:
            cpu_s += time.process_time() - begin_s
            results += came
    del logs
    held = process_cost.memory(os.getpid()).rss_bytes - before
    return {"paths": load.shape.paths, "results": results, "cpu_s": cpu_s, "state_bytes": held}


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
