"""The view does not depend on how partitions are read against each other."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ops.log.decoding import SeenRecord
from ops.view.cluster import ClusterView
from ops.web.pages.page import UnknownItemError, merge_patch
from ops.web.pages.registry import PAGES
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import story

STORY = story()
PLACES = sorted({(s.topic.name, s.partition) for s in STORY})


def shown(view: ClusterView) -> dict[str, Any]:
    """Return what all pages show of a view."""
    found: dict[str, Any] = {}
    for name, page in PAGES.items():
        try:
            found[name] = page.document(view, {"fault": "f-1"}, START_MS + 30_000)
        except UnknownItemError as error:
            found[name] = str(error)
    return found


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
