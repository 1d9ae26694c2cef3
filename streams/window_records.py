"""Closed windows as records of `probe.window.v1`."""

from typing import Final

import numpy as np

from schemas.enums import Transport
from schemas.ids import path_id
from schemas.records import PathWindow
from streams.board import US_NS
from streams.columns import FlowKey
from streams.outputs import PRODUCER_VERSION
from streams.recent import TRANSPORTS
from streams.table import Table
from streams.windows import NONE, STATISTICS, ClosedWindow

COLUMNS: Final = (*STATISTICS, "host_delay_p50_ns", "responder_delay_p50_ns")


def window_records(
    window: ClosedWindow, flows: Table[FlowKey], cluster: str, window_ns: int
) -> list[PathWindow]:
    """Return the records of a closed window, sorted by path, flow and agent.

    Parameters
    ----------
    window
        The window; its rows are those of `flows`.
    flows
        The 5-tuples, with the column `transport`.
    """
    keys = [flows.key(row) for row in window.rows.tolist()]
    start_at = window.index * window_ns // US_NS
    end_at = (window.index + 1) * window_ns // US_NS
    values = np.stack([window.columns[name] for name in COLUMNS], axis=-1).tolist()
    transports = flows["transport"][window.rows].tolist()
    sent, ok, repeats = window.sent.tolist(), window.ok.tolist(), window.repeats.tolist()
    records = []
    for place in sorted(range(len(keys)), key=lambda i: (keys[i][1:], keys[i][0])):
        agent, src, dst, flow = keys[place]
        statistics = {
            name: None if value == NONE else value
            for name, value in zip(COLUMNS, values[place], strict=True)
        }
        records.append(
            PathWindow(
                cluster=cluster,
                path_id=path_id(src, dst),
                src=src,
                dst=dst,
                flow=flow,
                agent_id=agent,
                transport=Transport(TRANSPORTS[transports[place]]),
                window_start_at=start_at,
                window_end_at=end_at,
                sent=sent[place],
                ok=ok[place],
                lost=sent[place] - ok[place],
                duplicate_results=repeats[place],
                producer_version=PRODUCER_VERSION,
                **statistics,
            )
        )
    return records
