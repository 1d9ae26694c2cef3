"""Settings of the collector."""

from dataclasses import dataclass
from typing import Final

from schemas.process.settings import setting

SECTION: Final = "collect"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectConfig:
    """All settings of a collector."""

    host_id: str = setting("", "name of the host, as in task.v1; default its host name")
    task_id: str = setting("", "training job of ranks whose environment names none")
    only_task: str = setting("", "look at ranks of this training job alone; default all")
    dumps: str = setting("", "beginning of the dumps' paths of ranks whose environment names none")
    interval_ms: int = setting(2_000, "distance of two looks at each rank", (500, 60_000))
    sockets: int = setting(1, "1: the ranks' TCP connections are read; 0: not", (0, 1))
    ras_s: int = setting(
        60,
        "distance of two questions to NCCL's RAS, longer for jobs of more than 600 ranks; 0: none",
        (0, 86_400),
    )
    max_ranks: int = setting(
        64, "ranks on this host at most; further ones are left out", (1, 1_024)
    )
    procfs: str = setting("/proc", "where the host's procfs is mounted")
    queue_kbytes: int = setting(4_096, "what waits, packed, while the broker is away", (64, 65_536))
