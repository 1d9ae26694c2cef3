"""One round as columns: checked, and free of per-result objects."""

from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np

from schemas import bounds
from schemas.columns.arrays import Bools, Int64s
from schemas.enums import ProbeStatus, Transport
from schemas.ids import MAX_ID_CHARS
from schemas.topics import PROBE_ROUND
from streams.config import MAX_ROUND_SPAN_NS, MAX_RTT_NS

MAX_RESULTS: Final = int(bounds.bound_of(PROBE_ROUND.name, "results").greatest)
MAX_FLOW: Final = int(bounds.bound_of(PROBE_ROUND.name, "results.flow").greatest)
MAX_TIME_US: Final = bounds.MAX_TIME_US
MISSING: Final = -1
# Before every time.
NEVER_NS: Final = -(2**62)
OK: Final = ProbeStatus.OK.value
# Columns hold the place of a transport's name.
TRANSPORTS: Final = tuple(transport.value for transport in Transport)
TRANSPORT_CODES: Final = {name: code for code, name in enumerate(TRANSPORTS)}

# Agent, source, destination, flow: what keeps state.
FlowKey = tuple[str, str, str, int]


class InvalidRoundError(ValueError):
    """A round that decodes but cannot be true; the message holds value and bound."""


@dataclass(frozen=True, slots=True)
class RoundColumns:
    """Results of one round, in the order sent; arrays of one length.

    `ok` means answered with a round-trip time. `rtt_ns` is 0 where not ok,
    `host_ns` and `responder_ns` are -1 where not measured. `keys` holds the
    agent in front, so that two agents never share state.
    """

    keys: list[FlowKey]
    sent_ns: Int64s
    ok: Bools
    rtt_ns: Int64s
    host_ns: Int64s
    responder_ns: Int64s
    transport: list[str]
    started_ns: int
    reach_ns: int

    @property
    def count(self) -> int:
        """Number of results."""
        return len(self.keys)


def round_columns(datum: dict[str, Any]) -> RoundColumns:
    """Return the columns of a decoded `probe.round.v1` datum.

    `reach_ns` is the time of the last probe sent, the round's start if there is
    none. A round-trip time below 0 (clock granularity) counts as 0.

    Raises
    ------
    InvalidRoundError
        If a time, count or id is out of bounds.
    """
    started_us: int = datum["started_at"]
    if not 0 <= started_us <= MAX_TIME_US:
        raise InvalidRoundError(f"started_at={started_us} must be from 0 to {MAX_TIME_US}")
    agent: str = datum["agent_id"]
    if not 0 < len(agent) <= MAX_ID_CHARS:
        raise InvalidRoundError(f"agent_id has {len(agent)} characters; 1 to {MAX_ID_CHARS}")
    results: list[dict[str, Any]] = datum["results"]
    if len(results) > MAX_RESULTS:
        raise InvalidRoundError(f"{len(results)} results; a round has at most {MAX_RESULTS}")
    started_ns = started_us * 1000
    src = [r["src"] for r in results]
    dst = [r["dst"] for r in results]
    flow = [r["flow"] for r in results]
    rtt = [r["rtt_ns"] for r in results]
    answered = np.array(
        [r["status"] == OK and t is not None for r, t in zip(results, rtt, strict=True)], np.bool_
    )
    try:
        offsets = np.array([r["sent_offset_ns"] for r in results], np.int64)
        rtts = _column(rtt)
        host = _column([r["prober_delay_ns"] for r in results])
        responder = _column([r["responder_delay_ns"] for r in results])
    except OverflowError as error:
        raise InvalidRoundError(f"a number beyond 64 bits: {error}") from error
    if results:
        _check_numbers(offsets, rtts, flow)
        _check_ids(src)
        _check_ids(dst)
    return RoundColumns(
        keys=list(zip(repeat(agent), src, dst, flow)),
        sent_ns=started_ns + offsets,
        ok=answered,
        rtt_ns=np.where(answered, np.maximum(rtts, 0), 0),
        host_ns=host,
        responder_ns=responder,
        transport=[r["transport"] for r in results],
        started_ns=started_ns,
        reach_ns=started_ns + (int(offsets.max()) if len(offsets) else 0),
    )


def _column(values: list[int | None]) -> Int64s:
    return np.array([MISSING if v is None else v for v in values], np.int64)


def _check_numbers(offsets: Int64s, rtts: Int64s, flow: list[int]) -> None:
    if offsets.min() < 0 or offsets.max() > MAX_ROUND_SPAN_NS:
        raise InvalidRoundError(
            f"sent_offset_ns from {offsets.min()} to {offsets.max()}; "
            f"must be from 0 to {MAX_ROUND_SPAN_NS}"
        )
    if rtts.max() > MAX_RTT_NS:
        raise InvalidRoundError(f"rtt_ns={rtts.max()} is beyond {MAX_RTT_NS}")
    if min(flow) < 0 or max(flow) > MAX_FLOW:
        raise InvalidRoundError(
            f"flow from {min(flow)} to {max(flow)}; must be from 0 to {MAX_FLOW}"
        )


def _check_ids(ids: list[str]) -> None:
    lengths = set(map(len, ids))
    if min(lengths) == 0 or max(lengths) > MAX_ID_CHARS:
        raise InvalidRoundError(
            f"an endpoint id has {min(lengths)} or {max(lengths)} characters; 1 to {MAX_ID_CHARS}"
        )
