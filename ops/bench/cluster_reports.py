"""What a simulated agent says beside its rounds: heartbeats, counters that stand still. Pure."""

from typing import Any, Final

from arena.agents import PROBER_DELAY_NS
from arena.cluster import endpoint_id
from ops.bench.cluster_shape import RAILS
from schemas.enums import AgentState
from schemas.units import SECOND_NS, US_NS

# Counters are read ten times a second.
TICKS: Final = 10
TICK_NS: Final = SECOND_NS // TICKS
NO_TROUBLE: Final = (
    "rounds_dropped", "replies_duplicate", "replies_late", "replies_foreign",
    "packets_malformed", "records_undecodable", "targets_waiting",
)  # fmt: skip


def heartbeat(seq: int, rounds: int, flows: int, at_ns: int) -> dict[str, Any]:
    """Return what a heartbeat says of an agent that is well, but who it is."""
    return dict.fromkeys(NO_TROUBLE, 0) | {
        "seq": seq, "sent_at": at_ns // US_NS, "interval_ns": SECOND_NS,
        "state": AgentState.RUNNING.value, "state_reason": None, "endpoints": RAILS,
        "targets_active": flows, "rounds_sent": rounds, "results_sent": rounds * flows,
        "broker_away": False, "host_delay_ns": PROBER_DELAY_NS,
    }  # fmt: skip


def counters(started_ns: int) -> dict[str, Any]:
    """Return the header of a second of counters, but who sends it."""
    whole_s = started_ns // SECOND_NS
    return {"started_at": whole_s * SECOND_NS // US_NS, "tick_ns": TICK_NS, "samples": []}


def samples(host: int) -> list[dict[str, Any]]:
    """Return a second of a host's counters that stand still: inference is measured elsewhere."""
    return [
        {
            "endpoint_id": endpoint_id(host, rail), "rail": rail,
            "tick_offset_ns": tick * TICK_NS, "read_delay_ns": 20_000, "tx_bytes": 10**12,
            "rx_bytes": 10**12, "counter_bits": 64, "missing_reason": None,
        }
        for tick in range(TICKS)
        for rail in range(RAILS)
    ]  # fmt: skip
