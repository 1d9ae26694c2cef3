"""The matrix of source and target, against a count cell by cell."""

import math
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.bench.operator.watched import FIRST_SICK, Harm, WatchedCluster
from ops.view import matrix as m
from ops.view.cluster import ClusterView
from schemas import topics as t
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, window

LEAF, SPINE, RNIC = "leaf:s0-r3", "spine:2", "rnic:h5/r1"


def watched(harms: dict[str, Harm], turns: int = FIRST_SICK + 1) -> tuple[ClusterView, int]:
    """Return a cluster of four segments after some turns."""
    return WatchedCluster(4, harms).view(turns)


def codes(found: m.Matrix) -> dict[tuple[str, str], int]:
    """Return the code of each cell by the names of its sides."""
    cells = found.cells
    return {
        (found.rows.names[r], found.cols.names[c]): int(code)
        for r, c, code in zip(cells.row, cells.col, cells.code, strict=True)
    }


def test_a_sick_leaf_is_a_cross() -> None:
    """Its row and its column are bad, and nothing else; both are named."""
    view, now_ms = watched({LEAF: Harm(lost=6)})
    found = m.matrix(view, now_ms, level=m.Level.LEAF)
    bad = {cell for cell, code in codes(found).items() if code > m.WELL}
    assert bad == {cell for cell in codes(found) if LEAF in cell}
    assert {(line.source, line.name) for line in found.lines} == {(True, LEAF), (False, LEAF)}
    assert all(line.bad == line.probed == 3 for line in found.lines)


def test_a_sick_spine_is_a_pattern() -> None:
    """In all cells between segments some 5-tuples cross it: none is named, all lose a little."""
    view, now_ms = watched({SPINE: Harm(lost=15)})
    found = m.matrix(view, now_ms, level=m.Level.POD)
    assert set(codes(found).values()) == {m.WELL + 3}
    whole = m.matrix(view, now_ms, level=m.Level.POD, fold=m.Fold.WORST)
    assert set(codes(whole).values()) == {m.WELL + 5}
    assert (whole.cells.value == 0.5).all()


def test_a_sick_rnic_is_a_row_and_a_column_of_endpoints() -> None:
    """Among the endpoints of the leaves that it is probed from and to."""
    view, now_ms = watched({RNIC: Harm(late_ns=40_000)})
    found = m.matrix(view, now_ms, level=m.Level.ENDPOINT, of=m.Quantity.P50)
    names = {name for cell, code in codes(found).items() if code > m.WELL for name in cell}
    sick = {line.name for line in found.lines}
    assert len(sick) == 1
    assert sick < names
    assert view.places.of(view).rnic_of[sick.pop()] == RNIC


def test_axes_are_in_the_order_of_the_topology() -> None:
    """Pods, leaves, hosts: parts stand together."""
    view, now_ms = watched({}, 1)
    found = m.matrix(view, now_ms, level=m.Level.LEAF)
    assert found.rows.names[:9] == (*(f"leaf:s0-r{rail}" for rail in range(8)), "leaf:s1-r0")
    assert found.rows.parts == tuple((8 * pod, f"leaf:s{pod}") for pod in range(4))
    inner = m.matrix(
        view, now_ms, level=m.Level.ENDPOINT, rows=m.Group(m.Level.LEAF, LEAF),
        cols=m.Group(m.Level.POD, "leaf:s1"),
    )  # fmt: skip
    assert (len(inner.rows.names), len(inner.cols.names)) == (16, 128)
    assert [start for start, _ in inner.cols.parts] == list(range(0, 128, 16))
    assert inner.cols.parts[1][1] == "leaf:s1-r1"


def test_the_first_look_is_at_the_finest_level_with_few_groups() -> None:
    """32 leaves are few, 512 endpoints are many."""
    view, now_ms = watched({}, 1)
    found = m.matrix(view, now_ms)
    assert found.level is m.Level.LEAF
    assert found.sizes == {m.Level.POD: 4, m.Level.LEAF: 32, m.Level.ENDPOINT: 512}


def test_never_more_cells_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level with too many groups becomes the one above; what is too much even so is told."""
    view, now_ms = watched({}, 1)
    monkeypatch.setattr(m, "MAX_SIDE", 32)
    found = m.matrix(view, now_ms, level=m.Level.ENDPOINT)
    assert (found.level, found.coarser) == (m.Level.LEAF, True)
    monkeypatch.setattr(m, "MAX_SIDE", 3)
    found = m.matrix(view, now_ms, level=m.Level.ENDPOINT)
    assert (found.level, found.rows.left_out, len(found.rows.names)) == (m.Level.POD, 1, 3)
    assert found.cells.row.max() < 3


def test_an_unknown_group_is_said() -> None:
    """No such pod."""
    view, now_ms = watched({}, 1)
    with pytest.raises(m.UnknownGroupError, match="no pod 'x'"):
        m.matrix(view, now_ms, rows=m.Group(m.Level.POD, "x"))


def test_what_is_not_probed_any_more_is_told_and_then_forgotten() -> None:
    """Three windows without one, then an hour."""
    view, log = ClusterView(), Log()
    view.apply(log.seen(t.PROBE_WINDOW, window("h0", "h1", 0, START_MS)))

    def seen(after_ms: int) -> list[int]:
        return list(codes(m.matrix(view, START_MS + after_ms, level=m.Level.ENDPOINT)).values())

    assert seen(95_000) == [m.WELL]
    assert seen(96_000) == [m.NOT_LATELY]
    assert seen(3_600_000) == []


def test_a_round_trip_without_history_is_not_known() -> None:
    """Nor one of which nothing was answered."""
    view, log = ClusterView(), Log()
    for turn in range(5):
        end_ms = START_MS + 30_000 * turn
        one = window("h0", "h1", 0, end_ms)
        if turn == 4:
            one = replace(one, p50_ns=None, p99_ns=None, ok=0, lost=30)
        view.apply(log.seen(t.PROBE_WINDOW, one))
        found = m.matrix(view, end_ms, level=m.Level.ENDPOINT, of=m.Quantity.P50)
        assert list(codes(found).values()) == [m.WELL if turn == 3 else m.NOT_KNOWN]
        loss = m.matrix(view, end_ms, level=m.Level.ENDPOINT)
        assert list(codes(loss).values()) == [m.WELL + 6 if turn == 4 else m.WELL]


def test_nothing_is_an_empty_matrix() -> None:
    """No endpoint, no window."""
    found = m.matrix(ClusterView(), START_MS)
    assert (found.rows.names, len(found.cells.row), found.worst, found.lines) == ((), 0, (), ())


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4), st.integers(0, 4), st.integers(0, 2), st.integers(1, 40),
            st.integers(0, 40), st.integers(0, 200),
        ),
        max_size=60,
    ),
    st.sampled_from(m.Fold),
)  # fmt: skip
def test_cells_equal_a_count_one_by_one(
    windows: list[tuple[int, int, int, int, int, int]], fold: m.Fold
) -> None:
    """Loss of each cell, by sums over its 5-tuples, or the worst of them."""
    view, log = ClusterView(), Log()
    last: dict[tuple[str, str, int], tuple[int, int, int]] = {}
    now_ms = START_MS + 200_000
    for src, dst, flow, sent, lost, age_s in sorted(windows, key=lambda w: -w[5]):
        one = replace(window(f"h{src}", f"h{dst}", flow, now_ms - age_s * 1000),
                      sent=sent, lost=min(lost, sent))  # fmt: skip
        view.apply(log.seen(t.PROBE_WINDOW, one))
        if age_s != last.get((one.src, one.dst, flow), (0, 0, -1))[2]:
            last[one.src, one.dst, flow] = sent, one.lost, age_s
    cells: defaultdict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for (src_end, dst_end, _), numbers in last.items():
        cells[src_end, dst_end].append(numbers)
    found = m.matrix(view, now_ms, level=m.Level.ENDPOINT, fold=fold)
    assert set(codes(found)) == set(cells)
    for place, cell in enumerate(codes(found)):
        lately = [(sent, lost) for sent, lost, age_s in cells[cell] if age_s <= 95]
        value = found.cells.value[place]
        if not lately:
            assert math.isnan(value)
            assert found.cells.code[place] == m.NOT_LATELY
        elif fold is m.Fold.MEAN:
            assert value == sum(lost for _, lost in lately) / sum(sent for sent, _ in lately)
        else:
            assert value == max(lost / sent for sent, lost in lately)
        assert found.cells.sent[place] == sum(sent for sent, _ in lately)
