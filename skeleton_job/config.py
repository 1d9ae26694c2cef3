"""Settings of the skeleton job: flags before environment before the `[skeleton]` table."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from schemas.process.settings import ConfigError
from schemas.units import SECOND_NS
from skeleton_job.layout.skeleton import DEFAULT_MIN_CONFIDENCE
from skeleton_job.lists.pinglists import DEFAULT_MAX_PEERS, ListConfig
from skeleton_job.tasks.due import InferenceConfig

ENV_PREFIX: Final = "SKELETONHUNTER_SKELETON_"

# name → (smallest, largest); the reason stands in `SkeletonConfig`
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "interval_s": (1.0, 3600.0),
    "window_s": (5.0, 3600.0),
    "min_confidence": (0.0, 1.0),
    "flows": (1, 64),
    "basic_flows": (1, 64),
    "explore_flows": (1, 64),
    "explore_peers": (0, 16),
    "explore_rotate_s": (1.0, 86_400.0),
    "max_basic_peers": (2, 8191),
    "workers": (1, 64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SkeletonConfig:
    """Settings as an operator writes them; bounds in `BOUNDS`.

    Attributes
    ----------
    interval_s
        Event time between two inferences of a job.
    window_s
        Counters that an inference looks at; ten iterations of the job or more.
    min_confidence
        Below it the basic list stays.
    flows, basic_flows, explore_flows
        5-tuples probed for each target of that origin.
    explore_peers
        Distances of the rail's ring sampled at a time, two peers for each; 0: none.
    explore_rotate_s
        Event time after which another distance is sampled; each turn publishes all lists.
    max_basic_peers
        Same-rail peers of an endpoint in the basic list; nearer ones in larger jobs.
    workers
        Inferences made at a time: one in a thread of the service, more in processes of their
        own, each of some 250 MB. The default is 2, or 1 on a single core.
    """

    interval_s: float = 30.0
    window_s: float = 300.0
    min_confidence: float = DEFAULT_MIN_CONFIDENCE
    flows: int = 4
    basic_flows: int = 4
    explore_flows: int = 1
    explore_peers: int = 1
    explore_rotate_s: float = 300.0
    max_basic_peers: int = DEFAULT_MAX_PEERS
    workers: int = field(default_factory=lambda: min(2, os.cpu_count() or 1))

    def lists(self) -> ListConfig:
        """Return the part that makes lists."""
        return ListConfig(
            min_confidence=self.min_confidence,
            flows=self.flows,
            basic_flows=self.basic_flows,
            explore_flows=self.explore_flows,
            explore_peers=self.explore_peers,
            explore_rotate_ns=round(self.explore_rotate_s * SECOND_NS),
            max_basic_peers=self.max_basic_peers,
        )

    def inference(self) -> InferenceConfig:
        """Return the part that infers."""
        return InferenceConfig(
            interval_ns=round(self.interval_s * SECOND_NS),
            window_ns=round(self.window_s * SECOND_NS),
        )


def build_config(
    flags: Mapping[str, Any], table: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> SkeletonConfig:
    """Return the checked settings.

    Raises
    ------
    ConfigError
        If a setting is unknown, of the wrong kind or out of bounds; all are named.
    """
    names = {f.name: f.type for f in fields(SkeletonConfig)}
    wrong = [f"[skeleton] {name}: no such setting" for name in table if name not in names]
    values: dict[str, Any] = {}
    for name, kind in names.items():
        given = flags.get(name)
        if given is None:
            given = environment.get(ENV_PREFIX + name.upper())
        if given is None:
            given = table.get(name)
        if given is None:
            continue
        low, high = BOUNDS[name]
        try:
            # A boolean is a number for Python, not for people.
            value = None if isinstance(given, bool) else float(given)
        except (TypeError, ValueError):
            value = None
        whole = kind is int
        if value is None or not low <= value <= high or (whole and value != int(value)):
            number = "whole number" if whole else "number"
            wrong.append(f"{name}={given!r}: a {number} from {low:g} to {high:g}")
        else:
            values[name] = int(value) if whole else value
    if wrong:
        raise ConfigError("; ".join(wrong))
    return SkeletonConfig(**values)
