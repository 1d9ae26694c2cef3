"""The last minute of each 5-tuple."""

import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest

import streams.detectors.recent as recent_module
from schemas.columns.arrays import Int64s
from schemas.units import SECOND_NS
from streams.columns.rounds import FlowKey, round_columns
from streams.detectors.recent import RING_S, RecentProbes
from tests.unit.streams.worlds import result, round_datum

T_S = 1_000_000


def key(flow: int = 0) -> FlowKey:
    """Return a 5-tuple of the one path here."""
    return ("agent-h0", "a", "b", flow)


def feed(recent: RecentProbes, second: int, lost: Sequence[Sequence[bool]]) -> Int64s:
    """Add a round: for each flow its probes, lost or not, a quarter of a second apart."""
    results = [
        result("a", "b", flow, attempt * SECOND_NS // 4, None if gone else 1000)
        for flow, probes in enumerate(lost)
        for attempt, gone in enumerate(probes)
    ]
    columns = round_columns(round_datum(results, (T_S + second) * SECOND_NS, second))
    rows = recent.rows(columns.keys)
    recent.advance(columns.reach_ns)
    recent.count_round(columns, rows, np.ones(len(rows), np.bool_))
    return rows


def test_counts_cover_exactly_the_span() -> None:
    """All probes and lost ones of the last n seconds; first probes are the samples."""
    recent = RecentProbes()
    for second in range(100):
        feed(recent, second, [[second % 10 == 0, False] if second % 10 == 0 else [False]])
    row = recent.flows.row(key())
    assert recent.sampled(row, 20) == (20, 2)
    assert recent.sampled(row, 60) == (60, 6)
    assert recent.totals(row, 10) == (11, 1)
    assert recent.clean_probes(row) == 9


def test_what_leaves_the_minute_is_forgotten() -> None:
    """After a minute of silence nothing is counted; the slots come back empty."""
    recent = RecentProbes()
    rows = feed(recent, 0, [[True, False]])
    row = int(rows[0])
    recent.advance((T_S + RING_S) * SECOND_NS)
    assert recent.totals(row, RING_S) == (0, 0)
    assert recent.loss_times(row, RING_S) == []
    feed(recent, 64, [[False]])
    assert recent.totals(row, RING_S) == (1, 0)
    assert recent.sampled(row, RING_S) == (1, 0)


def test_results_older_than_the_minute_are_not_counted() -> None:
    """A late result beyond the rings does not land in a slot of another second."""
    recent = RecentProbes()
    feed(recent, 100, [[False]])
    feed(recent, 36, [[True, False]])
    row = recent.flows.row(key())
    assert recent.totals(row, RING_S) == (1, 0)


def test_outage_and_what_ends_it_are_no_samples() -> None:
    """A round that lost every probe, and the round after it, say nothing about a rate."""
    recent = RecentProbes()
    feed(recent, 0, [[False]])
    feed(recent, 1, [[True, True, True]])
    feed(recent, 2, [[True, False]])
    feed(recent, 3, [[True, False]])
    row = recent.flows.row(key())
    assert recent.sampled(row, 20) == (2, 1)
    assert recent.totals(row, 20) == (8, 5)
    assert recent.is_counted_loss(row, (T_S + 3) * SECOND_NS)
    assert not recent.is_counted_loss(row, (T_S + 2) * SECOND_NS)


def test_paths_add_up_their_flows() -> None:
    """A path's counts are the sums over its 5-tuples, without those that left."""
    recent = RecentProbes()
    feed(recent, 0, [[True, False], [False], [False]])
    feed(recent, 1, [[False], [True, False], [False]])
    row = recent.flows.row(key(2))
    assert recent.path_sampled(row, 20) == (6, 2)
    assert [recent.flows.key(r)[3] for r in recent.path_rows(row)] == [0, 1, 2]
    feed(recent, 50, [[False]])
    gone = recent.retire((T_S + 10) * SECOND_NS)
    assert len(gone) == 2
    assert len(recent.flows) == 1
    assert recent.path_sampled(recent.flows.row(key(0)), RING_S) == (3, 1)


def test_paths_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path's rows are its own, also when the others left."""
    monkeypatch.setattr(recent_module, "hash", lambda _path: 1, raising=False)
    recent = RecentProbes()
    keys: list[FlowKey] = [("agent", "a", dst, flow) for flow in (1, 0) for dst in ("b", "c")]
    rows = recent.rows(keys).tolist()
    assert recent.path_rows(rows[0]) == recent.path_rows(rows[2]) == [rows[2], rows[0]]
    assert recent.path_rows(rows[1]) == [rows[3], rows[1]]
    recent.flows["last_ns"][rows] = [1, 2, 2, 2]
    assert recent.retire(2) == rows[:1]
    assert recent.path_rows(rows[2]) == rows[2:3]
    assert recent.path_rows(rows[3]) == [rows[3], rows[1]]


def test_a_kept_key_is_asked_for_while_rows_change_hands() -> None:
    """The windows read beside the work ask while 5-tuples fall silent: never another's is told."""
    recent = RecentProbes()
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            for flow in (0, 1):
                recent.flows.row(key(flow))
                recent.flows.remove(key(flow))

    thread = threading.Thread(target=change)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        assert all(recent.known_key(key()) == key() for _ in range(1_000_000))
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)
