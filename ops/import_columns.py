"""Which column of a probe CSV holds what: the published names, others' names, and `--map`."""

from collections.abc import Mapping, Sequence
from typing import Final

# Our names, and the headers under which each is found, the published one first.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "src_container": ("src_node_id", "src_container", "src_container_id"),
    "src_address": ("src_ip", "src_address"),
    "src_host": ("src_node_sn", "src_host", "src_host_id", "src_real_ip", "host_ip"),
    "src_port": ("src_port",),
    "dst_container": ("dst_node_id", "dst_container", "dst_container_id"),
    "dst_address": ("dst_ip", "dst_address"),
    "sent_at": ("ping_time", "sent_at", "timestamp"),
    "task_type": ("task_type",),
    "success": ("dial", "success"),
    "rtt_us": ("latency", "rtt_us", "latency_us"),
    "loss_rate": ("loss_rate",),
}
# Published columns that say nothing a round could hold.
IGNORED: Final = frozenset(
    {"agent_type", "dscp", "extra_stats", "host_ip", "ptp_ts", "route", "task_start_time",
     "dst_port", "src_security_domain"}
    | {
        f"{side}_{name}"
        for side in ("src", "dst")
        for name in ("asw", "cluster_id", "cluster_name", "dsw", "idc", "logic_site", "node_sn",
                     "pod", "real_ip", "region_id", "region_name", "tenant_id", "zone_id")
    }
)  # fmt: skip


class HeaderError(ValueError):
    """The header lacks a column that is needed, or a mapping names one that is not there."""


class Columns:
    """Which column of this file holds what.

    Parameters
    ----------
    header
        Names of the columns.
    mapping
        Our name to theirs, before the known names.

    Raises
    ------
    HeaderError
        Naming all that is missing or wrong at once.
    """

    def __init__(self, header: Sequence[str], mapping: Mapping[str, str]) -> None:
        names = [name.strip() for name in header]
        wrong = [f"no field {ours!r}; there are {', '.join(COLUMNS)}"
                 for ours in mapping if ours not in COLUMNS]  # fmt: skip
        wrong += [f"no column {theirs!r}" for theirs in mapping.values() if theirs not in names]
        self.width = len(names)
        self._at: dict[str, int] = {}
        self._names: dict[str, str] = {}
        for ours, known in COLUMNS.items():
            theirs = mapping.get(ours) or next((n for n in known if n in names), None)
            if theirs in names:
                self._at[ours] = names.index(theirs)
                self._names[ours] = theirs
        for needed in (("sent_at",), ("src_container", "src_address"),
                       ("dst_container", "dst_address"), ("rtt_us",)):  # fmt: skip
            if not any(ours in self._at for ours in needed):
                theirs = " or ".join(COLUMNS[ours][0] for ours in needed)
                wrong.append(f"no column {theirs}; name yours by --map {needed[0]}=COLUMN")
        if wrong:
            raise HeaderError("; ".join(wrong))
        used = set(self._names.values())
        self.unknown = [n for n in names if n not in used and n not in IGNORED]

    def name(self, ours: str) -> str:
        """Return the column's name in the file."""
        return self._names.get(ours, ours)

    def get(self, row: Sequence[str], ours: str) -> str:
        """Return the field; empty where there is no such column."""
        at = self._at.get(ours)
        return "" if at is None else row[at].strip()
