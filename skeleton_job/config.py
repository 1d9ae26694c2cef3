"""Settings of the skeleton job."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.process import settings
from schemas.process.settings import setting
from schemas.units import SECOND_NS
from skeleton_job.layout.distances import DEFAULT_MAX_PEERS
from skeleton_job.layout.skeleton import DEFAULT_MIN_CONFIDENCE
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.tasks.inference import InferenceConfig
from skeleton_job.tasks.roster import Limits

SECTION: Final = "skeleton"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkeletonConfig:
    """Settings as an operator writes them."""

    interval_s: float = setting(30.0, "event time between two inferences of a job", (1, 3600))
    window_s: float = setting(
        300.0, "counters that an inference reads: ten iterations of the job or more", (5, 3600)
    )
    min_confidence: float = setting(DEFAULT_MIN_CONFIDENCE, "below it the basic list stays", (0, 1))
    flows: int = setting(4, "5-tuples probed for each target of the skeleton", (1, 64))
    basic_flows: int = setting(4, "5-tuples probed for each target of the basic list", (1, 64))
    explore_flows: int = setting(1, "5-tuples probed for each sampled target", (1, 64))
    explore_peers: int = setting(
        1, "distances of the rail's ring sampled at a time, two peers for each; 0: none", (0, 16)
    )
    explore_rotate_s: float = setting(
        300.0,
        "event time after which another distance is sampled; each turn publishes all lists",
        (1, 86_400),
    )
    max_basic_peers: int = setting(
        DEFAULT_MAX_PEERS,
        "same-rail peers of an endpoint in the basic list: its whole rail in small jobs, else at "
        "distances that cover the likely layouts",
        (2, 8191),
    )
    # 1: in a thread of the service; more: in processes of their own, each of some 250 MB.
    workers: int = setting(
        lambda: min(2, os.cpu_count() or 1), "inferences made at a time", (1, 64)
    )

    max_tasks: int = setting(20_000, "jobs known at once; more are refused", (1, 1_000_000))
    max_endpoints: int = setting(
        200_000,
        "endpoints registered at once, and members of all jobs; more are refused",
        (1, 10_000_000),
    )
    max_series: int = setting(
        200_000, "RNICs whose counters are held; those of more are refused", (1, 10_000_000)
    )

    def limits(self) -> Limits:
        """Return what is known at once."""
        return Limits(tasks=self.max_tasks, endpoints=self.max_endpoints, series=self.max_series)

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
    flags: Mapping[str, Any],
    table: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> SkeletonConfig:
    """Return the checked settings from flags, environment and `[skeleton]` table.

    Raises
    ------
    ConfigError
        If a setting is unknown, of the wrong kind or out of bounds; all are named.
    """
    return settings.build_config(
        SkeletonConfig, SECTION, flags=flags, table=table, environment=environment
    )
