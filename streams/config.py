"""What the stream worker can be told: one frozen config, read once, all faults named at once.

Order: command line before environment before the TOML table `[worker]` before
the default. Seconds and milliseconds are for people; inside everything is
integer nanoseconds.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, cast

from schemas.process.settings import ConfigError
from schemas.units import MS_NS, SECOND_NS

ENV_PREFIX: Final = "SKELETONHUNTER_WORKER_"

# A result is sent at most this long after its round began; a round with a later
# one is refused. Real rounds take an interval and a few timeouts, some 2 s. The
# bound keeps the look-back of a restart finite.
MAX_ROUND_SPAN_NS: Final = 30 * SECOND_NS
# Round trips beyond a minute are a broken clock, not a network.
MAX_RTT_NS: Final = 60 * SECOND_NS
# An advance of the clock beyond this must be confirmed (see `streams.core.clock`).
MAX_ADVANCE_NS: Final = 60 * SECOND_NS
# PROGRESS marks and decisions that wait for time to pass sit on this grid.
PROGRESS_STEP_NS: Final = SECOND_NS // 4
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings as an operator writes them; unit in the name, bounds in `BOUNDS`.

    Attributes
    ----------
    window_s
        Length of the event-time windows.
    allowed_lateness_s
        How long after its end a window still takes results.
    lookback_windows
        Windows that LOF compares a new one with.
    trend_window_s
        Length of the blocks of the long-term test, a multiple of `window_s`; 0: no such test.
    connectivity_losses
        Consecutive losses that are lost connectivity; as many answers clear it.
    loss_base_rate
        Loss of a healthy network, the null hypothesis of the loss test.
    loss_false_alarms_per_hour
        False LOSS onsets that are accepted, per 5-tuple (own test) and per path (pooled).
    loss_clear_probes
        Consecutive probes without loss that clear a LOSS anomaly.
    min_effect_ms, min_effect_rdma_us
        Least rise of the round trip that is an anomaly: for UDP and TCP, for RDMA.
    min_effect_ratio
        The same, relative to the reference; the greater one counts.
    latency_max_s
        After this long a raised latency is taken for the new normal.
    idle_s
        Silence of a 5-tuple, in event time, after which its open anomalies are cleared.
    group
        Consumer group of the batch source; Faust's own is `<group>-quiet`.
    instance_id
        Static membership: give each worker that a supervisor restarts its own; a restart
        within the session then moves no partition. Empty: dynamic.
    session_timeout_s
        Silence after which the broker gives a worker's partitions to others.
    commit_s
        Distance of offset commits.
    stall_s
        Lag without progress for this long ends the process, a hanging client as well.
    """

    window_s: float = 30
    allowed_lateness_s: float = 5
    lookback_windows: int = 10
    trend_window_s: float = 1800
    connectivity_losses: int = 3
    loss_base_rate: float = 1e-4
    loss_false_alarms_per_hour: float = 1e-3
    loss_clear_probes: int = 40
    min_effect_ms: float = 1.0
    min_effect_rdma_us: float = 5.0
    min_effect_ratio: float = 0.25
    latency_max_s: float = 3600
    idle_s: float = 30
    group: str = "skeletonhunter-worker"
    instance_id: str = ""
    session_timeout_s: float = 6
    commit_s: float = 1
    stall_s: float = 30

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
        )


# Least and greatest value. Windows below a second hold no sample; beyond an hour
# the look-back of a restart is hours. LOF thresholds are kept for 5 to 20 windows.
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "window_s": (1, 3600),
    "allowed_lateness_s": (0, 600),
    "lookback_windows": (5, 20),
    "trend_window_s": (0, 86_400),
    "connectivity_losses": (2, 10),
    "loss_base_rate": (1e-9, 0.05),
    "loss_false_alarms_per_hour": (1e-9, 1),
    # The ring of recent probes holds a minute.
    "loss_clear_probes": (5, 55),
    "min_effect_ms": (0, 10_000),
    "min_effect_rdma_us": (0, 1e6),
    "min_effect_ratio": (0, 100),
    "latency_max_s": (60, 86_400),
    "idle_s": (5, 60),
    # The broker's own least value is 6 s unless it is told otherwise.
    "session_timeout_s": (6, 300),
    "commit_s": (0.05, 60),
    "stall_s": (5, 3600),
}


def load_config(flags: Mapping[str, Any], table: Mapping[str, Any]) -> WorkerConfig:
    """Merge flags, environment and `[worker]` table into a checked config.

    Parameters
    ----------
    flags
        Values by field name; None: not given.
    table
        The `[worker]` table.

    Raises
    ------
    ConfigError
        With every fault found.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    known = {f.name: cast(type, f.type) for f in fields(WorkerConfig)}
    unknown = sorted(set(table) - set(known))
    if unknown:
        wrong.append(f"[worker] has no {', '.join(unknown)}; there are {', '.join(known)}")
    for name, kind in known.items():
        where, raw = _given(name, flags, table)
        if raw is None:
            continue
        try:
            values[name] = _converted(raw, kind)
        except (TypeError, ValueError):
            wrong.append(f"{where}={raw!r} must be {'text' if kind is str else 'a number'}")
            continue
        if name in BOUNDS and not BOUNDS[name][0] <= values[name] <= BOUNDS[name][1]:
            low, high = BOUNDS[name]
            wrong.append(f"{where}={raw} must be from {low:g} to {high:g}")
    if not wrong:
        config = WorkerConfig(**values)
        detection = config.detection()
        if detection.window_ns % MS_NS:
            wrong.append(f"window_s={config.window_s} must be whole milliseconds")
        elif detection.trend_ns % detection.window_ns:
            wrong.append(
                f"trend_window_s={config.trend_window_s:g} must be a multiple of "
                f"window_s={config.window_s:g}"
            )
        if not wrong:
            return config
    raise ConfigError("; ".join(wrong))


def _given(name: str, flags: Mapping[str, Any], table: Mapping[str, Any]) -> tuple[str, Any]:
    if flags.get(name) is not None:
        return "--" + name.replace("_", "-"), flags[name]
    variable = ENV_PREFIX + name.upper()
    if variable in os.environ:
        return variable, os.environ[variable]
    return f"[worker] {name}", table.get(name)


def _converted(raw: Any, kind: type) -> float | int | str:
    if kind is str:
        if not isinstance(raw, str):
            raise TypeError
        return raw
    if isinstance(raw, bool):
        raise TypeError
    number = float(raw)
    if kind is int:
        if number != int(number):
            raise ValueError
        return int(number)
    # 30 and 30.0 are the same setting.
    return number


def _ns(seconds: float) -> int:
    return round(seconds * SECOND_NS)
