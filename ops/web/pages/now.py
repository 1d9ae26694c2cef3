"""Now: the open faults first, then the health of all that watches the network."""

from dataclasses import asdict
from typing import Final

from ops.view.cluster import ClusterView
from ops.view.faults import FaultHistory
from ops.view.health import headline, parts
from ops.web.pages.page import Document, Page, Params
from ops.web.pages.rows import answers, fault_row

# More open faults than anybody reads one by one; the rest is counted.
MAX_OPEN: Final = 1_000
MAX_OVER: Final = 20


def document(view: ClusterView, _params: Params, now_ms: int) -> Document:
    """Return open faults, the last that are over, and health by layer."""
    health = parts(view, now_ms)
    open_faults = view.faults.open()
    by = answers(view)

    def row(history: FaultHistory) -> Document:
        return {**fault_row(view, history, now_ms), **by.get(history.last.fault_id, {})}

    return {
        "headline": asdict(headline(view, health)),
        "open_total": len(open_faults),
        "open": {h.last.fault_id: row(h) for h in open_faults[:MAX_OPEN]},
        "over": {h.last.fault_id: row(h) for h in view.faults.over()[:MAX_OVER]},
        "health": {part.name: asdict(part) for part in health},
    }


NOW: Final = Page(name="now", document=document)
