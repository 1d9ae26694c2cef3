"""Silences: which faults page nobody, until when, by whom and why."""

from typing import Final

from ops.bridge.operator_records import IN_FORCE, state_of
from ops.bridge.paging.labels import is_silenced
from ops.view.cluster import ClusterView
from ops.web.pages.page import Document, Page, Params, without_none
from schemas.records import Silence
from schemas.units import US_PER_MS

# More than anybody reads one by one; the rest is counted.
MAX_SHOWN: Final = 500
MAX_OVER: Final = 50


def document(view: ClusterView, _params: Params, now_ms: int) -> Document:
    """Return the silences that are in force or planned, and those that ended last."""
    now_us = now_ms * US_PER_MS
    known = view.silences.values()
    there = sorted((s for s in known if s.until_at > now_us), key=_soonest_end_first)
    over = sorted((s for s in known if s.until_at <= now_us), key=_soonest_end_first)[::-1]
    return {
        "silences": {s.silence_id: _row(view, s, now_us) for s in there[:MAX_SHOWN]},
        "left": max(0, len(there) - MAX_SHOWN),
        "over": {s.silence_id: _row(view, s, now_us) for s in over[:MAX_OVER]},
    }


def _soonest_end_first(silence: Silence) -> tuple[int, str]:
    return silence.until_at, silence.silence_id


def _row(view: ClusterView, silence: Silence, now_us: int) -> Document:
    state = state_of(silence, now_us)
    hidden = sum(is_silenced(h.last, silence, now_us) for h in view.faults.open())
    return without_none(
        {
            "id": silence.silence_id,
            "cluster": silence.cluster,
            "state": state,
            "matchers": [f"{m.label}={m.pattern}" for m in silence.matchers],
            "from_ms": silence.from_at // US_PER_MS,
            "until_ms": silence.until_at // US_PER_MS,
            "author": silence.author,
            "reason": silence.reason,
            "ended_by": silence.ended_by,
            "hides": hidden if state == IN_FORCE else None,
        }
    )


SILENCES: Final = Page(name="silences", document=document)
