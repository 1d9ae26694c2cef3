"""What the matrix and the series of a pair send."""

import json
from base64 import b64decode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.bench.operator.watched import FIRST_SICK, Harm, WatchedCluster
from ops.view.cluster import ClusterView
from ops.view.matrix import Cells
from ops.web.pages.matrix import LOSS_TEXTS, STATE_TEXTS, document, packed
from ops.web.pages.page import UnknownItemError, merge_patch
from ops.web.pages.pair import document as pair_document
from schemas import topics as t
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, window


def unpacked(text: str, width: int) -> list[int]:
    """Return the codes of a row."""
    raw = b64decode(text[1:])
    if text[0] == "d":
        return list(raw)
    codes = [0] * width
    for at in range(0, len(raw), 3):
        codes[raw[at] | raw[at + 1] << 8] = raw[at + 2]
    return codes


@given(st.lists(st.lists(st.integers(0, 9), min_size=300, max_size=300), max_size=3), st.data())
def test_rows_come_back_as_they_were(rows: list[list[int]], data: st.DataObject) -> None:
    """Dense ones and sparse ones, with columns beyond a byte."""
    keep = [data.draw(st.integers(1, 300)) for _ in rows]
    whole = np.array(rows, np.int64).reshape(len(rows), 300)
    for row_codes, kept in zip(whole, keep, strict=True):
        row_codes[kept:] = 0
    whole = whole[:, ::-1]
    row, col = np.nonzero(whole)
    zeros = np.zeros(len(row))
    ints = zeros.astype(np.int64)
    cells = Cells(row=row.astype(np.int32), col=col.astype(np.int32),
                  code=whole[row, col].astype(np.int32), value=zeros,
                  flows=ints, sent=ints, lost=ints)  # fmt: skip
    found = packed(cells, 300)
    for number, codes in enumerate(whole.tolist()):
        assert (unpacked(found[str(number)], 300) if any(codes) else codes) == codes
        if any(codes):
            assert len(found[str(number)]) <= 1 + 4 * 100


def test_the_document_says_all_that_the_page_shows() -> None:
    """Sides, cells, legend, the worst cells and the sick leaf; JSON without null."""
    cluster = WatchedCluster(2, {"leaf:s0-r3": Harm(lost=6)})
    view, now_ms = cluster.view(FIRST_SICK + 1)
    shown = document(view, {"level": "leaf"}, now_ms)
    assert "null" not in json.dumps(shown, allow_nan=False)
    assert shown["rows"]["names"][3] == "leaf:s0-r3"
    assert [shown["legend"][str(i)]["text"] for i in range(10)] == [*STATE_TEXTS, *LOSS_TEXTS]
    assert sum(entry["count"] for entry in shown["legend"].values()) == 16 * 16
    assert {(cell["src"], cell["value"]) for cell in shown["worst"].values()} == {
        ("leaf:s0-r3", "20.00% lost"),
        ("leaf:s1-r3", "20.00% lost"),
    }
    inner = document(view, {"rows": "leaf/leaf:s0-r3", "cols": "leaf/leaf:s1-r3"}, now_ms)
    assert (inner["level"], inner["rows"]["above"]) == ("endpoint", "pod/leaf:s0")


def test_only_rows_that_change_are_sent() -> None:
    """One more lost probe of one pair is one row, and what is counted."""
    view, log = ClusterView(), Log()
    for host in range(5):
        view.apply(log.seen(t.PROBE_WINDOW, window(f"h{host}", "h9", 0, START_MS)))
    before = document(view, {}, START_MS)
    view.apply(log.seen(t.PROBE_WINDOW, window("h3", "h9", 0, START_MS + 30_000, lost=3)))
    patch = merge_patch(before, document(view, {}, START_MS + 30_000))
    assert set(patch["cells"]) == {"3"}
    assert not {"rows", "cols", "level"} & set(patch)


@pytest.mark.parametrize(
    "params",
    [{"level": "x"}, {"of": "x"}, {"fold": ""}, {"rows": "x"}, {"rows": "y/x"}, {"cols": "pod/x"}],
)
def test_what_nobody_knows_is_said(params: dict[str, str]) -> None:
    """With what to do."""
    with pytest.raises(UnknownItemError) as error:
        document(ClusterView(), params, START_MS)
    assert error.value.todo


def test_a_pair_has_a_series_of_each_5_tuple() -> None:
    """Delays of prober and responder beside the round trip; hosts where they are registered."""
    view, now_ms = WatchedCluster(2).view(4)
    target = next(iter(view.pinglists.values())).targets[0]
    src, dst = target.src, target.dst
    shown = pair_document(view, {"src": src, "dst": dst}, now_ms)
    assert "null" not in json.dumps(shown)
    flow = shown["flows"]["0"]
    assert len(flow["at_ms"]) == len(flow["p50_ns"]) == len(flow["responder_delay_ns"]) == 4
    assert set(flow["prober_delay_ns"]) == {1_200}
    assert shown["hosts"]["src"] == view.endpoints[src].host_id
    with pytest.raises(UnknownItemError):
        pair_document(view, {"src": src, "dst": "nobody"}, now_ms)
