"""`make bench-resilience`: what wrong clocks, absurd records, garbage, kills and floods do.

Every module below measures one attack and has `PARTS` of its own.
"""

from types import ModuleType
from typing import Final

from ops.bench.resilience import clocks, kills, outage, parsers
from ops.bench.rig.report import Parts

COMMAND: Final = "make bench-resilience"
RUNS: Final = 1
DEFAULT_RUNS: Final[dict[str, int]] = {"outage": outage.OUTAGES, "kills": kills.KILLS}
NOTES: Final = (
    "Clocks: others' windows and onsets are compared record by record with a run in which all "
    "clocks are right; own faults by kind and 5-tuple.",
    "Outage and kills: windows are compared with the rounds in Kafka, each result once; verdicts "
    "with the links that were cut: one opening and one end each, nothing else.",
    "Measured elsewhere: an agent's packets to silent targets, and its loss under a flood, on "
    "[agent](agent.md); result → anomaly at 1 M results/s on [performance](performance.md).",
)

# A further part is a module with `PARTS` and a row here.
MODULES: Final[tuple[ModuleType, ...]] = (clocks, parsers, outage, kills)
PARTS: Final[Parts] = {name: part for module in MODULES for name, part in module.PARTS.items()}
