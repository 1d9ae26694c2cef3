"""Now: the open faults first, then the health of all that watches the network."""

from dataclasses import asdict
from typing import Final

from ops.view.cluster import ClusterView
from ops.view.faults import FaultHistory
from ops.view.health import headline, parts
from ops.web.pages.page import Document, Page, Params, without_none
from ops.web.pages.rows import answers, fault_row
from schemas.units import US_PER_MS

# More open faults than anybody reads one by one; the rest is counted.
MAX_OPEN: Final = 1_000
MAX_OVER: Final = 20
# The last day at a glance: of so many components, of which something changed last.
DAY_MS: Final = 86_400_000
MAX_STRIPS: Final = 20


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
        "day": _day(view, now_ms),
        "health": {part.name: asdict(part) for part in health},
    }


def _day(view: ClusterView, now_ms: int) -> Document:
    """Return by component when it had an open fault within the last day; ends are left out."""
    latest = sorted(
        (*view.faults.open()[:MAX_STRIPS], *view.faults.over()[:MAX_STRIPS]),
        key=lambda history: (-history.last.event_at, history.last.fault_id),
    )
    found: dict[str, list[tuple[int, int | None]]] = {}
    for history in latest:
        spans = [
            (begin // US_PER_MS, None if end is None else end // US_PER_MS)
            for begin, end in history.spans()
            if (now_ms if end is None else end // US_PER_MS) > now_ms - DAY_MS
        ]
        if spans and (history.last.component_id in found or len(found) < MAX_STRIPS):
            found.setdefault(history.last.component_id, []).extend(spans)
    return {
        name: {"spans": [without_none({"from_ms": a, "to_ms": b}) for a, b in _joined(spans)]}
        for name, spans in found.items()
    }


def _joined(spans: list[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    """Return the same times as spans that do not overlap, in order; None: until now."""
    found: list[tuple[int, int | None]] = []
    for begin, end in sorted(spans, key=lambda span: span[0]):
        first, last = found[-1] if found else (begin, begin)
        if found and (last is None or begin <= last):
            found[-1] = (first, None if last is None or end is None else max(last, end))
        else:
            found.append((begin, end))
    return found


NOW: Final = Page(name="now", document=document)
