"""Settings of the localizer: as an operator writes them, and as the core reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.process import settings
from schemas.process.settings import setting
from schemas.units import MS_NS, SECOND_NS

# Decisions are made on this grid of event time and nowhere else, so that they do
# not depend on how events were batched.
GRID_NS: Final = 250 * MS_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """Thresholds and waiting times.

    Attributes
    ----------
    cluster : name of the cluster
    confidence : share of the belief from which a verdict is decided
    min_flows : bad 5-tuples that a fault needs; fewer must last `few_ns`
    settle_ns : lost connectivity opens undecided after this time
    few_ns : one or two 5-tuples cut off open a fault after this time
    stall_ns : wait where a stalled agent would look the same; three rounds clear it
    loss_min_ns, loss_settle_ns : loss opens at the earliest and, undecided, at the latest
    latency_min_ns, latency_settle_ns : likewise for latency
    everything_ns : after so long, "everything at once" is no excuse any more
    resolve_ns : time without evidence after which a fault is resolved
    flap_ns : a fault that returns within this time after its resolve is the same fault
    flap_resolve_max_ns : each return doubles `resolve_ns`, up to this
    refine_ns : how long a fault is young, and its component may still be refined
    update_gap_ns : least distance of updates that change nothing essential
    aftermath_ns : how long latency after a fault counts as its aftermath
    path_keep_ns : how long the path of a 5-tuple is known that is not probed or traced again
    max_agents, max_endpoints, max_flows, max_components : what is known at once; more is refused
    max_waiting : records that wait for the worker's progress; of more the oldest are dropped
    """

    cluster: str
    confidence: float = 0.9
    min_flows: int = 3
    settle_ns: int = SECOND_NS
    few_ns: int = 8 * SECOND_NS
    stall_ns: int = 4_500 * MS_NS
    loss_min_ns: int = 2 * SECOND_NS
    loss_settle_ns: int = 35 * SECOND_NS
    latency_min_ns: int = 5 * SECOND_NS
    latency_settle_ns: int = 45 * SECOND_NS
    everything_ns: int = 15 * SECOND_NS
    resolve_ns: int = 3 * SECOND_NS
    flap_ns: int = 60 * SECOND_NS
    flap_resolve_max_ns: int = 60 * SECOND_NS
    refine_ns: int = 30 * SECOND_NS
    update_gap_ns: int = 10 * SECOND_NS
    aftermath_ns: int = 60 * SECOND_NS
    path_keep_ns: int = 900 * SECOND_NS
    max_agents: int = 20_000
    max_endpoints: int = 200_000
    max_flows: int = 2_000_000
    max_components: int = 1_000_000
    max_waiting: int = 2_000_000


SECTION: Final = "localizer"
HANGS_SECTION: Final = "hangs"
# A path that is neither probed nor traced again is known for this many look-backs: a little longer
# than a process that starts again would know it.
PATH_KEEP: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalizerConfig:
    """Settings as an operator writes them."""

    confidence: float = setting(
        0.9, "share of the belief from which a verdict is decided", (0.5, 0.999)
    )
    min_flows: int = setting(
        3, "bad 5-tuples that a fault needs at once; fewer must last longer", (1, 1000)
    )
    resolve_s: float = setting(
        3.0, "event time without evidence after which a fault is resolved", (1, 600)
    )
    flap_s: float = setting(
        60.0, "a fault that returns within this time is the same fault", (0, 3600)
    )
    # Longer than agents take to trace every path anew (`trace_refresh_s`, 300 s and a quarter),
    # else paths are unknown.
    lookback_s: float = setting(600.0, "event time read again at a start", (60, 86_400))
    stall_s: float = setting(
        30.0, "nothing read for so long though there is something: the process ends", (5, 3600)
    )
    max_agents: int = setting(
        20_000, "agents, and hosts with flow tables, known at once; more are refused",
        (1, 1_000_000),
    )  # fmt: skip
    max_endpoints: int = setting(
        200_000,
        "endpoints registered at once, and jobs with their members; more are refused",
        (1, 10_000_000),
    )
    max_flows: int = setting(
        2_000_000,
        "5-tuples on ping lists, and 5-tuples with a known path; more are refused",
        (1, 100_000_000),
    )
    max_components: int = setting(
        1_000_000, "components of the topology; more are refused", (1, 100_000_000)
    )
    max_waiting: int = setting(
        2_000_000,
        "records that wait for the worker's progress; of more the oldest heartbeats and traces go",
        (10_000, 1_000_000_000),
    )

    def core(self, cluster: str) -> CoreConfig:
        """Return what the core decides by."""
        return CoreConfig(
            cluster=cluster,
            confidence=self.confidence,
            min_flows=self.min_flows,
            resolve_ns=round(self.resolve_s * SECOND_NS),
            flap_ns=round(self.flap_s * SECOND_NS),
            path_keep_ns=round(PATH_KEEP * self.lookback_s * SECOND_NS),
            max_agents=self.max_agents,
            max_endpoints=self.max_endpoints,
            max_flows=self.max_flows,
            max_components=self.max_components,
            max_waiting=self.max_waiting,
        )


def build_config(
    flags: Mapping[str, Any],
    table: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> LocalizerConfig:
    """Return the checked settings from flags, environment and `[localizer]` table.

    Raises
    ------
    ConfigError
        Naming every setting that is unknown or out of bounds.
    """
    return settings.build_config(
        LocalizerConfig, SECTION, flags=flags, table=table, environment=environment
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HangsConfig:
    """Settings of the hang watcher as an operator writes them."""

    # What waits is told again every 30 s; the rest is how long operations usually take.
    lookback_s: float = setting(600.0, "event time read again at a start", (60, 86_400))
    stall_s: float = setting(
        30.0, "nothing read for so long though there is something: the process ends", (5, 3600)
    )


def build_hangs_config(
    flags: Mapping[str, Any],
    table: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> HangsConfig:
    """Return the checked settings from flags, environment and `[hangs]` table.

    Raises
    ------
    ConfigError
        Naming every setting that is unknown or out of bounds.
    """
    return settings.build_config(
        HangsConfig, HANGS_SECTION, flags=flags, table=table, environment=environment
    )
