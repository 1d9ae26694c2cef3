"""Settings of the stream worker.

Seconds and milliseconds are for people; inside, all times are whole nanoseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas import bounds
from schemas.process import settings
from schemas.process.settings import ConfigError, setting
from schemas.units import MS_NS, SECOND_NS

SECTION: Final = "worker"

# A result is sent at most this long after its round began; a round with a later one is refused.
MAX_ROUND_SPAN_NS: Final = bounds.MAX_ROUND_SPAN_NS
# Round trips beyond this are a broken clock, not a network.
MAX_RTT_NS: Final = bounds.MAX_RTT_NS
# PROGRESS marks and decisions that wait for time to pass sit on this grid.
PROGRESS_STEP_NS: Final = SECOND_NS // 4
# Share of a window's length over which the closings of agents are spread: shorter leaves the worker
# busy with nothing else for that time, longer delays what is seen in windows.
CLOSING_SHARE: Final = 3
# Open anomalies are repeated on this grid: 10 s of the topic hold them all.
REFRESH_STEP_NS: Final = 5 * SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionConfig:
    """Settings of windows and detectors: everything that the outputs depend on."""

    window_ns: int = 30 * SECOND_NS
    lateness_ns: int = 5 * SECOND_NS
    lookback_windows: int = 10
    trend_ns: int = 1800 * SECOND_NS
    connectivity_losses: int = 3
    loss_base_rate: float = 1e-4
    loss_false_alarms_per_hour: float = 1e-3
    loss_clear_probes: int = 40
    effect_ns: int = 1_000_000
    effect_rdma_ns: int = 5_000
    effect_ratio: float = 0.25
    latency_max_ns: int = 3600 * SECOND_NS
    idle_ns: int = 30 * SECOND_NS
    max_agents: int = 8_192
    max_flows: int = 262_144

    @property
    def closing_spread_ns(self) -> int:
        """How much later than others an agent's windows are closed at most.

        Windows of all agents have the same bounds. Closed at once, those of a million results a
        second hold up all other results for seconds.
        """
        return self.window_ns // CLOSING_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings as an operator writes them; unit in the name."""

    # Windows below a second hold no sample; beyond an hour the look-back of a restart is hours.
    window_s: float = setting(30, "length of the event-time windows", (1, 3600))
    allowed_lateness_s: float = setting(
        5, "how long after its end a window still accepts results", (0, 600)
    )
    # LOF thresholds are kept for 5 to 20 windows.
    lookback_windows: int = setting(10, "windows that LOF compares a new one with", (5, 20))
    trend_window_s: float = setting(
        1800,
        "length of the blocks of the long-term test, a multiple of window_s; 0: no such test",
        (0, 86_400),
    )
    connectivity_losses: int = setting(
        3, "consecutive losses that are lost connectivity; as many answers clear it", (2, 10)
    )
    loss_base_rate: float = setting(
        1e-4, "loss of a healthy network, the null hypothesis of the loss test", (1e-9, 0.05)
    )
    loss_false_alarms_per_hour: float = setting(
        1e-3,
        "false LOSS onsets accepted, per 5-tuple (own test) and per path (pooled)",
        (1e-9, 1),
    )
    # The ring of recent probes holds a minute.
    loss_clear_probes: int = setting(
        40, "consecutive probes without loss that clear a LOSS anomaly", (5, 55)
    )
    min_effect_ms: float = setting(
        1.0, "least rise of the round trip that is an anomaly, for UDP and TCP", (0, 10_000)
    )
    min_effect_rdma_us: float = setting(5.0, "the same for RDMA", (0, 1e6))
    min_effect_ratio: float = setting(
        0.25, "the same, relative to the reference; the greater one counts", (0, 100)
    )
    latency_max_s: float = setting(
        3600, "after so long a raised latency counts as the new normal", (60, 86_400)
    )
    idle_s: float = setting(
        30,
        "silence of a 5-tuple after which its open anomalies are cleared",
        (5, 60),
    )
    max_agents: int = setting(
        8_192, "agents that a partition holds; rounds of others are refused", (1, 1_000_000)
    )
    # Up to 3.5 KB each.
    max_flows: int = setting(
        262_144,
        "5-tuples that a partition holds; rounds with more new ones are refused",
        (1, 10_000_000),
    )
    group: str = setting("skeletonhunter-worker", "consumer group of the workers")
    instance_id: str = setting(
        "",
        "static membership: one for each worker that a supervisor restarts, so that a restart "
        "within the session moves no partition; default dynamic",
    )
    # The broker's own least value is 6 s unless its settings say otherwise.
    session_timeout_s: float = setting(
        6, "silence after which the broker gives a worker's partitions to others", (6, 300)
    )
    # A worker that joins waits for others that rebuild partitions, up to ten minutes.
    start_s: float = setting(
        300, "a worker that has not joined its group for so long ends, and says why", (10, 3600)
    )
    commit_s: float = setting(1, "distance of offset commits", (0.05, 60))
    stall_s: float = setting(
        30,
        "lag without progress for so long ends the process, a hanging client as well",
        (5, 3600),
    )

    def detection(self) -> DetectionConfig:
        """Return the part that the outputs depend on, in nanoseconds."""
        return DetectionConfig(
            window_ns=_ns(self.window_s),
            lateness_ns=_ns(self.allowed_lateness_s),
            lookback_windows=self.lookback_windows,
            trend_ns=_ns(self.trend_window_s),
            connectivity_losses=self.connectivity_losses,
            loss_base_rate=self.loss_base_rate,
            loss_false_alarms_per_hour=self.loss_false_alarms_per_hour,
            loss_clear_probes=self.loss_clear_probes,
            effect_ns=_ns(self.min_effect_ms / 1e3),
            effect_rdma_ns=_ns(self.min_effect_rdma_us / 1e6),
            effect_ratio=self.min_effect_ratio,
            latency_max_ns=_ns(self.latency_max_s),
            idle_ns=_ns(self.idle_s),
            max_agents=self.max_agents,
            max_flows=self.max_flows,
        )


def build_config(
    flags: Mapping[str, Any],
    table: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> WorkerConfig:
    """Return the checked settings from flags, environment and `[worker]` table.

    Raises
    ------
    ConfigError
        With every fault found.
    """
    config = settings.build_config(
        WorkerConfig, SECTION, flags=flags, table=table, environment=environment
    )
    detection = config.detection()
    if detection.window_ns % MS_NS:
        raise ConfigError(f"window_s={config.window_s} must be whole milliseconds")
    if detection.trend_ns % detection.window_ns:
        raise ConfigError(
            f"trend_window_s={config.trend_window_s:g} must be a multiple of "
            f"window_s={config.window_s:g}"
        )
    return config


def _ns(seconds: float) -> int:
    return round(seconds * SECOND_NS)
