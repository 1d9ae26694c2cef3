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
from streams.columns.quantities import QUANTITIES, ROUND_TRIP
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
STATUS_CODES: Final = {status.value: code for code, status in enumerate(ProbeStatus)}
OK_CODE: Final = STATUS_CODES[OK]
# What an answer without a round trip is counted as: it says OK, and cannot be.
UNKNOWN_CODE: Final = STATUS_CODES[ProbeStatus.UNKNOWN.value]

# Agent, source, destination, flow: what keeps state.
FlowKey = tuple[str, str, str, int]


class InvalidRoundError(ValueError):
    """A round that decodes but cannot be true; the message holds value and bound."""


@dataclass(frozen=True, slots=True)
class RoundColumns:
    """Results of one round, in the order sent; arrays of one length.

    `ok` means answered with a round-trip time, `status` holds codes (`STATUS_CODES`). `values`,
    (quantities, n), are in the order of `streams.columns.quantities`: `MISSING` where not
    measured, the round trip also where not ok.
    `keys` holds the agent in front, so that two agents never share state.
    """

    keys: list[FlowKey]
    sent_ns: Int64s
    ok: Bools
    status: Int64s
    values: Int64s
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
    status = np.array([STATUS_CODES[r["status"]] for r in results], np.int64)
    answered = np.array([r["status"] == OK and r["rtt_ns"] is not None for r in results], np.bool_)
    status[(status == OK_CODE) & ~answered] = UNKNOWN_CODE
    try:
        offsets = np.array([r["sent_offset_ns"] for r in results], np.int64)
        values = np.array([_column([r[q.field] for r in results]) for q in QUANTITIES])
    except OverflowError as error:
        raise InvalidRoundError(f"a number beyond 64 bits: {error}") from error
    if results:
        _check_numbers(offsets, values[ROUND_TRIP], flow)
        _check_ids(src)
        _check_ids(dst)
    values[ROUND_TRIP] = np.where(answered, np.maximum(values[ROUND_TRIP], 0), MISSING)
    return RoundColumns(
        keys=list(zip(repeat(agent), src, dst, flow)),
        sent_ns=started_ns + offsets,
        ok=answered,
        status=status,
        values=values,
        transport=[r["transport"] for r in results],
        started_ns=started_ns,
        reach_ns=started_ns + (int(offsets.max()) if len(offsets) else 0),
    )


def measured(**columns: Int64s) -> Int64s:
    """Return columns by field as `RoundColumns.values`; quantities without one are not measured."""
    (size,) = {len(column) for column in columns.values()}
    missing = np.full(size, MISSING, np.int64)
    return np.array([columns.get(quantity.field, missing) for quantity in QUANTITIES])


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
