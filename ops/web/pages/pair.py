"""Pair: the windows of the 5-tuples from one endpoint to another."""

from typing import Final

import numpy as np

from ops.log.windows import LOST, P50, P99, PROBER, RESPONDER, SENT
from ops.view.cluster import ClusterView
from ops.view.flow_windows import MISSING, FlowSeries
from ops.web.pages.page import Document, Page, Params, UnknownItemError, without_none
from schemas.units import US_PER_MS

TIMES: Final = {
    "p50_ns": P50, "p99_ns": P99, "prober_delay_ns": PROBER, "responder_delay_ns": RESPONDER,
}  # fmt: skip


def document(view: ClusterView, params: Params, _now_ms: int) -> Document:
    """Return the series of a pair; parameters `src` and `dst`."""
    src, dst = params.get("src", ""), params.get("dst", "")
    flows = view.flow_windows.series(src, dst)
    if not flows:
        raise UnknownItemError(
            f"no window of {src!r} to {dst!r}", "it is not probed, or was not since the page began"
        )
    registered = {name: view.endpoints.get(name) for name in (src, dst)}
    return {
        "src": src,
        "dst": dst,
        "hosts": {
            side: known.host_id
            for side, name in (("src", src), ("dst", dst))
            if (known := registered[name]) is not None
        },
        "flows": {str(number): _series(series) for number, series in flows.items()},
    }


def _series(series: FlowSeries) -> Document:
    """Return a series as lists; None where it was not measured."""
    numbers = series.numbers
    usual_p50, usual_p99 = series.usual_ns
    return without_none(
        {
            "at_ms": (series.end_at // US_PER_MS).tolist(),
            **{
                name: [None if n == MISSING else int(n) for n in numbers[:, place]]
                for name, place in TIMES.items()
            },
            "sent": numbers[:, SENT].astype(np.int64).tolist(),
            "lost": numbers[:, LOST].astype(np.int64).tolist(),
            "usual_p50_ns": usual_p50,
            "usual_p99_ns": usual_p99,
        }
    )


PAIR: Final = Page(name="pair", document=document)
