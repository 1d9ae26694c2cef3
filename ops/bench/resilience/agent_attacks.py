"""The attacks on agents of `make bench-agent`, which are bars of resilience, too."""

from functools import partial
from typing import Final

from ops.bench.agent import attack
from ops.bench.rig.report import Parts

PARTS: Final[Parts] = {
    "silent": partial(attack.silent, seconds=attack.SILENT_S),
    "flood": partial(attack.flood, seconds=attack.FLOOD_S),
}
