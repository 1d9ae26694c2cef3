"""Counters: what the RNICs of a job send and receive, by what their hosts' agents read."""

from typing import Final

import numpy as np

from ops.view.cluster import ClusterView
from ops.view.counters import COARSE_NS, FINE_NS
from ops.web.pages.job import chosen_task, hosts_with
from ops.web.pages.page import Document, Page, Params, Wanted, without_none
from schemas.columns.arrays import Bools, Floats
from schemas.records import TaskEndpoint
from schemas.units import MS_NS
from skeleton_job.series.rates import RateMatrix

# Whose counters are read at once; the hosts of others are found by name.
MAX_HOSTS: Final = 64
BITS: Final = 8
MEGA: Final = 1e6


def document(view: ClusterView, params: Params, _now_ms: int) -> Document:
    """Return the rates of a job's RNICs; parameters as of the page Job.

    Rates are in Mbit/s; None in a series: not known, since counters were not read or began anew.
    """
    own, left = _shown(view, params)
    agents = {one.agent_id for one in own}
    endpoints = [one.endpoint_id for one in own]
    coarse = view.counters.rates(agents, endpoints, COARSE_NS)
    found: Document = {"rnics": {}, "hosts_left": left}
    if coarse is None:
        return {**found, "missing": view.counters.missing or ""}
    chosen = next((one for one in own if one.endpoint_id == params.get("endpoint")), None)
    return without_none(
        {
            **found,
            "rnics": {name: _of_rnic(coarse, row) for row, name in enumerate(endpoints)},
            "series": None if chosen is None else _series(view, chosen),
        }
    )


def wanted(view: ClusterView, params: Params) -> Wanted:
    """Return whose counters are shown."""
    return Wanted(agents={one.agent_id for one in _shown(view, params)[0]})


def _shown(view: ClusterView, params: Params) -> tuple[list[TaskEndpoint], int]:
    """Return the endpoints that are shown, and how many hosts are left out."""
    task = chosen_task(view, params)
    chosen = params.get("endpoint")
    wanted = hosts_with(task, params)
    hosts = set(wanted[:MAX_HOSTS])
    own = [e for e in task.endpoints if e.host_id in hosts or e.endpoint_id == chosen]
    return own, len(wanted) - len(hosts)


def _of_rnic(rates: RateMatrix, row: int) -> Document:
    """Return an RNIC's latest rates, and the sum of both directions over time."""
    known = ~rates.missing[row]
    if not known.any():
        return {}
    last = int(np.flatnonzero(known)[-1])
    return {
        "tx_mbps": _mbps(rates.tx[row, last]),
        "rx_mbps": _mbps(rates.rx[row, last]),
        "load_mbps": _listed(rates.tx[row] + rates.rx[row], known),
    }


def _series(view: ClusterView, one: TaskEndpoint) -> Document | None:
    rates = view.counters.rates([one.agent_id], [one.endpoint_id], FINE_NS)
    if rates is None:
        return None
    # Nothing is known before the first reading.
    known = ~rates.missing[0]
    first = int(np.argmax(known))
    return {
        "from_ms": (rates.start_ns + first * rates.bin_ns) // MS_NS,
        "step_ms": rates.bin_ns // MS_NS,
        "tx_mbps": _listed(rates.tx[0, first:], known[first:]),
        "rx_mbps": _listed(rates.rx[0, first:], known[first:]),
    }


def _listed(bytes_per_s: Floats, known: Bools) -> list[float | None]:
    return [
        _mbps(value) if there else None
        for value, there in zip(bytes_per_s.tolist(), known.tolist(), strict=True)
    ]


def _mbps(bytes_per_s: float) -> float:
    return round(float(bytes_per_s) * BITS / MEGA, 1)


COUNTERS: Final = Page(name="counters", document=document, least_gap_s=2.0, wanted=wanted)
