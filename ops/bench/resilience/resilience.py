"""`make bench-resilience`: what wrong clocks, absurd records, garbage, kills and floods do.

Every module below measures one attack and has `PARTS` of its own.
"""

from functools import partial
from typing import Final

from ops.bench.agent import attack
from ops.bench.resilience import (
    churn,
    clocks,
    clocks_live,
    floods,
    garbage,
    kills,
    outage,
    parsers,
    records,
    standby,
)
from ops.bench.rig.report import Parts

COMMAND: Final = "make bench-resilience"
RUNS: Final = 1
DEFAULT_RUNS: Final[dict[str, int]] = {
    "outage": outage.OUTAGES,
    "kills": kills.KILLS,
    "standby": standby.KILLS,
}
NOTES: Final = (
    "Clocks: others' windows and onsets are compared record by record with a run in which all "
    "clocks are right, and may come a second later; own faults are compared by kind and 5-tuple.",
    "Records: each field of a record about one host gets the extreme values of its type and of its "
    "bounds, a year more, NaN; afterwards a link elsewhere is cut.",
    "Garbage: from its append until the slowest reader refused a small piece behind it.",
    "Outage and kills: windows are compared with the rounds in Kafka, each result once; verdicts "
    "with the links that were cut: one opening and one end each, nothing else.",
    "Unknown names: each process alone, after a small flood of the same. There and in the hour of "
    "containers times of arrival are the bench's own, so that minutes pass within seconds; agents "
    "of containers publish rounds and counters every 5 s.",
    "Flood and silent targets: as on [agent](agent.md). Measured elsewhere: result → anomaly at "
    "1 M results/s, on [performance](performance.md).",
)

# The attacks on agents of `make bench-agent` are bars of resilience, too.
AGENT_PARTS: Final[Parts] = {
    "silent": partial(attack.silent, seconds=attack.SILENT_S),
    "flood": partial(attack.flood, seconds=attack.FLOOD_S),
}
PARTS: Final[Parts] = {
    **clocks.PARTS, **clocks_live.PARTS, **records.PARTS, **garbage.PARTS, **parsers.PARTS,
    **AGENT_PARTS, **floods.PARTS, **churn.PARTS, **outage.PARTS, **kills.PARTS, **standby.PARTS,
}  # fmt: skip
