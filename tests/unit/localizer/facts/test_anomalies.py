"""Folding of anomalies."""

import pytest

from localizer.facts.anomalies import BRIEF_CUT_MEMORY_NS, STALE_NS, OpenAnomalies
from schemas.enums import AnomalyFamily, AnomalyKind, AnomalyState
from schemas.units import SECOND_NS
from tests.unit.localizer.made import START, anomaly

KEY = ("e0", "e1", 0)
NONE: frozenset[str] = frozenset()


def test_an_anomaly_is_open_from_onset_to_clearing() -> None:
    """A refresh without an onset opens too: that is how a restart finds it."""
    for state in (AnomalyState.ONSET, AnomalyState.ONGOING):
        board = OpenAnomalies()
        board.apply_anomaly(anomaly(state=state, at=START))
        assert [key for key, _ in board.by_family(AnomalyFamily.LOSS)] == [KEY]
        board.apply_anomaly(
            anomaly(state=AnomalyState.CLEARED, at=START + 20 * SECOND_NS, onset=START)
        )
        assert board.empty


def test_duplicates_and_refreshes_are_no_news() -> None:
    """The version grows with beginnings and ends only; numbers are still renewed."""
    board = OpenAnomalies()
    board.apply_anomaly(anomaly(at=START, onset=START))
    version = board.version
    board.apply_anomaly(anomaly(at=START, onset=START))
    board.apply_anomaly(
        anomaly(state=AnomalyState.ONGOING, at=START + 5 * SECOND_NS, onset=START, sent=20, lost=9)
    )
    assert board.version == version
    (symptom,) = board.open(KEY).values()
    assert (symptom.sent, symptom.seen_ns, symptom.last_ns) == (20, START, START + 5 * SECOND_NS)


def test_another_value_is_of_another_window() -> None:
    """A repetition of the same value says nothing new of how long it lasts."""
    board = OpenAnomalies()
    for seconds, value in ((0, 70_000.0), (5, 70_000.0), (10, 80_000.0), (15, 80_000.0)):
        state = AnomalyState.ONGOING if seconds else AnomalyState.ONSET
        at_ns = START + seconds * SECOND_NS
        board.apply_anomaly(
            anomaly(AnomalyKind.LATENCY, state=state, at=at_ns, onset=START, value=value, unit="ns")
        )
    (symptom,) = board.open(KEY).values()
    assert symptom.renewed_ns == START + 10 * SECOND_NS
    assert symptom.last_ns == START + 15 * SECOND_NS
    # Of one whose beginning was not seen it is not known since when it has its value.
    late = OpenAnomalies()
    late.apply_anomaly(
        anomaly(
            AnomalyKind.LATENCY, state=AnomalyState.ONGOING, at=START + 118 * SECOND_NS,
            onset=START, value=80_000.0, unit="ns",
        )
    )  # fmt: skip
    assert late.open(KEY)[AnomalyKind.LATENCY].renewed_ns == START


def test_a_brief_cut_speaks_for_loss_for_a_while() -> None:
    """Over within ten seconds it is remembered, a long one is not."""
    board = OpenAnomalies()
    board.apply_anomaly(anomaly(at=START, onset=START))
    board.apply_anomaly(anomaly(state=AnomalyState.CLEARED, at=START + 3 * SECOND_NS, onset=START))
    assert list(board.brief_cuts()) == [KEY]
    board.expire(START + 3 * SECOND_NS + BRIEF_CUT_MEMORY_NS + 1, NONE)
    assert board.empty
    board.apply_anomaly(anomaly(at=START, onset=START))
    board.apply_anomaly(anomaly(state=AnomalyState.CLEARED, at=START + 30 * SECOND_NS, onset=START))
    assert not board.brief_cuts()


def test_what_nobody_repeats_is_stale() -> None:
    """Three missed refreshes end it, unless the agent that saw it is dead and cannot."""
    board = OpenAnomalies()
    board.apply_anomaly(anomaly(at=START, agent="a0"))
    board.apply_anomaly(anomaly(at=START, agent="dead", flow=1))
    board.expire(START + STALE_NS + 1, frozenset({"dead"}))
    assert board.flows() == [("e0", "e1", 1)]
    assert board.stale == 1


def test_families_are_apart() -> None:
    """Late and lossy at once is in both families, each with its own symptom."""
    board = OpenAnomalies()
    board.apply_anomaly(anomaly(AnomalyKind.LATENCY, at=START, value=9.0, reference=4.0, unit="ns"))
    board.apply_anomaly(anomaly(AnomalyKind.LOSS, at=START))
    ((_, (late,)),) = board.by_family(AnomalyFamily.LATENCY)
    assert (late.kind, late.shift_ns) == (AnomalyKind.LATENCY, 5)
    ((_, (lossy,)),) = board.by_family(AnomalyFamily.LOSS)
    assert (lossy.kind, lossy.shift_ns) == (AnomalyKind.LOSS, None)


def test_a_dropped_flow_is_forgotten_and_unknown_kinds_ignored() -> None:
    """Dropping takes everything; a kind of a later version changes nothing."""
    board = OpenAnomalies()
    board.apply_anomaly(anomaly(at=START))
    board.drop_flow(KEY)
    board.apply_anomaly(anomaly(AnomalyKind.UNKNOWN, at=START))
    board.apply_anomaly(anomaly(state=AnomalyState.UNKNOWN, at=START))
    assert board.empty


def test_the_board_is_bounded() -> None:
    """Beyond the bound anomalies are refused and counted; known ones go on."""
    board = OpenAnomalies(max_flows=1)
    board.apply_anomaly(anomaly(at=START))
    board.apply_anomaly(anomaly(at=START, flow=1))
    board.apply_anomaly(anomaly(AnomalyKind.LOSS, at=START))
    assert (len(board), board.refused) == (1, 1)


@pytest.mark.parametrize("off_s", [-3600, -40, 0, 40])
def test_whether_it_is_still_reported_is_a_matter_of_the_logs_time(off_s: int) -> None:
    """Its agent's clock is off: it stays open while it is repeated, and ends when it is not."""
    board = OpenAnomalies()
    for second in range(0, 60, 5):
        now = START + second * SECOND_NS
        at = now + off_s * SECOND_NS
        state = AnomalyState.ONGOING if second else AnomalyState.ONSET
        board.apply_anomaly(anomaly(state=state, at=at, onset=START + off_s * SECOND_NS), now)
        board.expire(now, frozenset())
        assert len(board) == 1
    (symptom,) = board.open(("e0", "e1", 0)).values()
    assert abs(symptom.last_ns - now) < SECOND_NS
    assert symptom.seen_ns <= now
    board.expire(now + STALE_NS + 1, frozenset())
    assert not len(board)


@pytest.mark.parametrize("kind", [AnomalyKind.CONNECTIVITY, AnomalyKind.LOSS, AnomalyKind.LATENCY])
def test_only_what_a_5_tuple_shows_at_once_is_sudden(kind: AnomalyKind) -> None:
    """Beginning, end and falling silent count; of latency they can wait."""
    sudden = int(kind is not AnomalyKind.LATENCY)
    board = OpenAnomalies()
    board.apply_anomaly(anomaly(kind=kind, at=START, onset=START))
    assert (board.version, board.sudden_version) == (1, sudden)
    end = START + 20 * SECOND_NS
    board.apply_anomaly(anomaly(kind=kind, state=AnomalyState.CLEARED, at=end, onset=START))
    assert (board.version, board.sudden_version) == (2, 2 * sudden)
    board.apply_anomaly(anomaly(kind=kind, at=end, onset=end))
    board.expire(end + STALE_NS + 1, NONE)
    assert (board.version, board.sudden_version) == (4, 4 * sudden)
    board.apply_anomaly(anomaly(kind=kind, at=end, onset=end))
    board.drop_flow(KEY)
    assert (board.version, board.sudden_version) == (6, 6 * sudden)


def test_what_is_pooled_is_seen_when_it_is_believed() -> None:
    """Whatever the 5-tuple showed by itself before; and it stays so while it is believed."""
    weak, board = OpenAnomalies(), OpenAnomalies()
    weak.apply_anomaly(anomaly(AnomalyKind.BRIEF_LATENCY, at=START, onset=START))
    symptoms = weak.open(KEY)
    later, latest = START + 9 * SECOND_NS, START + 20 * SECOND_NS
    board.set_pooled(AnomalyKind.BRIEF_LATENCY, {KEY: symptoms[AnomalyKind.BRIEF_LATENCY]}, later)
    assert board.open(KEY)[AnomalyKind.BRIEF_LATENCY].seen_ns == later
    renewed = {KEY: symptoms[AnomalyKind.BRIEF_LATENCY].at(last_ns=latest)}
    board.set_pooled(AnomalyKind.BRIEF_LATENCY, renewed, latest)
    assert board.open(KEY)[AnomalyKind.BRIEF_LATENCY].seen_ns == later
    board.set_pooled(AnomalyKind.BRIEF_LATENCY, {}, latest)
    board.set_pooled(AnomalyKind.BRIEF_LATENCY, renewed)
    assert board.open(KEY)[AnomalyKind.BRIEF_LATENCY].seen_ns == START
