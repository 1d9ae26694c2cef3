"""What the core's decisions depend on: one frozen config, nanoseconds of event time."""

from dataclasses import dataclass
from typing import Final

from localizer.units import MS_NS, SECOND_NS

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
