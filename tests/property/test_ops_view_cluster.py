"""The view does not depend on how partitions are read against each other."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ops.log.decoding import SeenRecord
from ops.view.cluster import ClusterView
from ops.web.pages.page import merge_patch
from ops.web.pages.registry import PAGES
from schemas import topics as t
from schemas.enums import AnomalyState
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import (
    Log,
    anomaly,
    fault,
    heartbeat,
    progress,
    resolved,
    small_cluster,
    state,
    state_of,
    trace,
    window,
)


def story() -> list[SeenRecord]:
    """Return the records of a fault from onset to end, in the order in which they were written."""
    log = Log()
    seen = list(log.all(small_cluster()))
    for second in range(1, 30):
        at_ms = START_MS + second * 1_000
        told: list[tuple[Any, Any]] = [
            (t.HEARTBEAT, heartbeat(at_ms=at_ms, rounds_dropped=second)),
            (t.ANOMALY, progress(at_ms - 1_500)),
        ]
        if second == 5:
            told += [
                (t.ANOMALY, anomaly(at_ms=at_ms)),
                (t.PATH_TRACE, trace("h0", "h1", 0, "10.0.0.1", at_ms=at_ms)),
                (t.COMPONENT_STATE, state(text="up", at_ms=at_ms - 5_000)),
                (t.COMPONENT_STATE, state(at_ms=at_ms)),
            ]
        if second in (6, 7, 9):
            event = fault({6: 1, 7: 2, 9: 3}[second], at_ms)
            told += [(t.FAULT_EVENT, event), (t.FAULT_STATE, state_of(event))]
        if second == 20:
            end = anomaly(at_ms=at_ms, state=AnomalyState.CLEARED)
            told += [(t.ANOMALY, replace(end, onset_at=(START_MS + 5_000) * 1_000))]
        if second == 25:
            event = resolved(4, at_ms)
            told += [(t.FAULT_EVENT, event), (t.FAULT_STATE, state_of(event))]
        if second == 28:
            told += [(t.PROBE_WINDOW, window("h0", "h1", f, at_ms, lost=9)) for f in range(4)]
        seen += [log.seen(topic, record, at_ms=at_ms) for topic, record in told]
    return seen


STORY = story()
PLACES = sorted({(s.topic.name, s.partition) for s in STORY})


def shown(view: ClusterView) -> dict[str, Any]:
    """Return what all pages that need no parameter show of a view."""
    now_ms = START_MS + 30_000
    return {name: page.document(view, {"fault": "f-1"}, now_ms) for name, page in PAGES.items()}


def folded(records: list[SeenRecord]) -> ClusterView:
    """Return the view after some records."""
    view = ClusterView()
    for seen in records:
        view.apply(seen)
    return view


@given(st.randoms(use_true_random=False), st.integers(0, len(STORY)))
def test_the_order_between_partitions_does_not_matter(random: Any, repeat_from: int) -> None:
    """Any merge of the partitions, some of it read twice, gives the same pages."""
    queues = {place: [s for s in STORY if (s.topic.name, s.partition) == place] for place in PLACES}
    merged = []
    while queues:
        place = random.choice(sorted(queues))
        merged.append(queues[place].pop(0))
        if not queues[place]:
            del queues[place]
    assert shown(folded([*merged, *merged[repeat_from:]])) == shown(folded(STORY))


@given(st.integers(0, len(STORY)))
def test_a_copy_goes_on_as_the_original_would(cut: int) -> None:
    """Copied in the middle, both end the same; folding on changes neither behind its back."""
    view = folded(STORY[:cut])
    before = shown(view)
    other = view.copy()
    for seen in STORY[cut:]:
        other.apply(seen)
    assert shown(view) == before
    assert shown(other) == shown(folded(STORY))


JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.dictionaries(st.text(max_size=3), inner, max_size=4) | st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.text(max_size=3), JSON, max_size=5)


def merged(document: Any, patch: Any) -> Any:
    """Apply a merge patch as RFC 7396 writes it down (section 2)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@given(DOCUMENTS, DOCUMENTS)
def test_a_patch_makes_the_one_document_the_other(old: Any, new: Any) -> None:
    """For documents without null, as the pages' are."""
    assert merged(old, merge_patch(old, new)) == new
