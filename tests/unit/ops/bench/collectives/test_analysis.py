"""What is counted of the hang watcher's intake, decisions and analysis."""

from ops.bench.collectives.analysis import figures, measure, run
from ops.bench.collectives.large_job import FEW, Load, messages
from schemas.codec import Codec

LOAD = Load(64, FEW, window_s=8)


def test_intake_of_the_second_half_counts() -> None:
    """Of eight seconds those after four: the batches at six and eight."""
    one = run(LOAD, messages(LOAD, 21, Codec()))
    assert [hang.ranks for hang in one.found] == [(21,)]
    launched = LOAD.ranks * LOAD.rate_hz * 4
    assert launched - LOAD.ranks * LOAD.rate_hz // 2 < one.operations < launched
    assert 40 * one.operations < one.n_bytes < 400 * one.operations
    # At six seconds; at eight the job stands.
    assert len(one.decisions_s) == 1


def test_an_analysis_has_a_bar_and_the_rest_has_none() -> None:
    """Rows are named by the load."""
    rows = measure(1, lambda _: None, [LOAD])
    assert [row.bar for row in rows] == [2.0, None, None, None]
    assert rows[0].figure.startswith("64 ranks × 14 operations a second: ")
    assert all(row.value is not None and row.value > 0 for row in rows)


def test_figures_are_medians_of_runs() -> None:
    """Of decisions all of all runs count."""
    one = run(LOAD, messages(LOAD, 21, Codec()))
    rows = figures(LOAD, [one, one, one])
    assert [row.runs for row in rows] == [3, 3, 3, 3]
