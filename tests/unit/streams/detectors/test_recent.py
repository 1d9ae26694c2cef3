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


def feed(
    recent: RecentProbes, second: int, lost: Sequence[Sequence[bool]], *, ahead_s: int = 0
) -> Int64s:
    """Add the round that arrives in a second: for each flow its probes, lost or not.

    They are a quarter of a second apart, by an agent whose clock is so far ahead.
    """
    results = [
        result("a", "b", flow, attempt * SECOND_NS // 4, None if gone else 1000)
        for flow, probes in enumerate(lost)
        for attempt, gone in enumerate(probes)
    ]
    started_ns = (T_S + second + ahead_s) * SECOND_NS
    columns = round_columns(round_datum(results, started_ns, second))
    rows = recent.rows(columns.keys)
    active_ns = (T_S + second + 1) * SECOND_NS - 1
    recent.advance(active_ns)
    recent.count_round(columns, rows, active_ns)
    return rows


@pytest.mark.parametrize("ahead_s", [0, -7200, 45])
def test_counts_cover_exactly_the_span(ahead_s: int) -> None:
    """All probes and lost ones of the last n seconds; first probes are the samples.

    The seconds are those of arrival, whatever the agent's clock says.
    """
    recent = RecentProbes()
    for second in range(100):
        lost = [second % 10 == 0, False] if second % 10 == 0 else [False]
        feed(recent, second, [lost], ahead_s=ahead_s)
    row = recent.flows.row(key())
    assert recent.sampled(row, 20) == (20, 2)
    assert recent.sampled(row, 60) == (60, 6)
    assert recent.totals(row, 10) == (11, 1)
    assert recent.clean_probes(row) == 9
    sent_s = [ns / SECOND_NS - T_S - ahead_s for ns in recent.loss_times(row, 20)]
    assert sent_s == [80, 90]


def test_what_leaves_the_minute_is_forgotten() -> None:
    """After a minute without rounds nothing is counted; the slots come back empty."""
    recent = RecentProbes()
    rows = feed(recent, 0, [[True, False]])
    row = int(rows[0])
    recent.advance((T_S + RING_S) * SECOND_NS)
    assert recent.totals(row, RING_S) == (0, 0)
    assert recent.loss_times(row, RING_S) == []
    feed(recent, 64, [[False]])
    assert recent.totals(row, RING_S) == (1, 0)
    assert recent.sampled(row, RING_S) == (1, 0)


@pytest.mark.parametrize("ahead_s", [-64, -3, 3, 64])
def test_results_count_in_the_second_of_their_arrival(ahead_s: int) -> None:
    """A clock that jumps neither moves the rings nor brings results into another's slot."""
    recent = RecentProbes()
    feed(recent, 100, [[False]])
    feed(recent, 101, [[True, False]], ahead_s=ahead_s)
    feed(recent, 101, [[False]])
    row = recent.flows.row(key())
    assert recent.head_s == T_S + 101
    assert recent.totals(row, 1) == (3, 1)
    assert recent.totals(row, RING_S) == (4, 1)
    assert recent.sampled(row, 1) == (2, 1)
    assert recent.clean_probes(row) == 0
    assert recent.is_counted_loss(row, (T_S + 101 + ahead_s) * SECOND_NS)
    assert not recent.is_counted_loss(row, (T_S + 101) * SECOND_NS)
    assert recent.flows["last_ns"][row] // SECOND_NS == T_S + 101
    # It leaves the minute with its second, too.
    feed(recent, 101 + RING_S, [[False]])
    assert recent.totals(row, RING_S) == (1, 0)
    assert recent.sampled(row, RING_S) == (1, 0)


def test_the_sooner_told_loss_is_forgotten_sooner() -> None:
    """Of an agent whose clock was set back the later losses have the earlier times."""
    recent = RecentProbes()
    feed(recent, 0, [[True, False]])
    feed(recent, 5, [[True, False]], ahead_s=-3600)
    row = recent.flows.row(key())
    first_ns, second_ns = T_S * SECOND_NS, (T_S + 5 - 3600) * SECOND_NS
    assert recent.loss_times(row, RING_S) == [first_ns, second_ns]
    recent.advance((T_S + RING_S) * SECOND_NS)
    assert recent.loss_times(row, RING_S) == [second_ns]
    recent.note_loss(row, first_ns, recent.head_s)
    assert recent.loss_times(row, RING_S) == [second_ns, first_ns]
    assert recent.loss_times(row, 10) == [first_ns]


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
    gone = recent.retire((T_S + 10) * SECOND_NS, lambda rows: np.zeros(len(rows), np.bool_))
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
    assert recent.retire(2, lambda rows: np.zeros(len(rows), np.bool_)) == rows[:1]
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
