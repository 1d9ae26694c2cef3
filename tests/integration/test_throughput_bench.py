"""The throughput benchmark at its smallest: what each part does works, and measures something.

On one broker and as little as shows it: a benchmark that is run twice a year must not rot.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Figure
from ops.bench.throughput import core, peers, realtime
from ops.bench.throughput.decoder import Decoder
from ops.bench.throughput.peer_windows import TOPIC, WINDOWS
from ops.bench.throughput.rig import FilledTopics, Rig
from ops.bench.throughput.start import restart
from ops.bench.throughput.wire import wire
from schemas.topics import PROBE_ROUND

pytestmark = pytest.mark.broker

SHAPE = LoadShape(agents=8, rnics=2, targets=5, bodies=3)
PROBES = LoadShape(agents=2, rnics=2, targets=5, bodies=3)
INTERVALS = 45
# All of it arrives at once: windows close when their agents' clocks are two windows further.
BACKLOG = 75
MOST_S = 30.0


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Give a broker that waits for nobody."""
    with Rig(tmp_path_factory.mktemp("rig"), join_ms=0, lead_s=2.0) as rig:
        yield rig


@pytest.fixture(scope="module")
def filled(rig: Rig) -> FilledTopics:
    """Give topics full of rounds."""
    return rig.fill("full.", SHAPE, BACKLOG)


def measured(rows: list[Figure]) -> dict[str, float]:
    """Return the values, all of which must be there."""
    assert all(row.value is not None for row in rows)
    return {row.figure: row.value or 0.0 for row in rows}


def test_the_core_judges_a_recording() -> None:
    """One window of each 5-tuple has closed, and every result was taken."""
    alone = core.Core()
    (before, early), (logs, late) = core.recording(SHAPE, (10, INTERVALS))
    counts = alone.consume(before) + alone.consume(logs)
    assert counts["windows"] == SHAPE.paths
    assert counts["results"] + counts["duplicate"] == early + late
    decoder = Decoder(flows=SHAPE.paths)
    assert core.read_and_put(decoder, before) == early
    assert core.read_and_put(decoder, logs) == late


def test_bare_loops_decode_all(rig: Rig, filled: FilledTopics) -> None:
    """They see as many results as were published."""
    assert rig.run_bare(filled, 1, most_s=MOST_S).results == filled.results


def test_a_worker_takes_all_of_a_full_topic_once_and_starts_again(
    rig: Rig, filled: FilledTopics
) -> None:
    """The rig holds the worker to every result; a restart is timed to its first outputs."""
    run = rig.run_workers(filled, 1, most_s=MOST_S)
    assert run.whole
    assert run.counts["windows"] >= SHAPE.paths
    assert run.workers.rss_bytes > 10**7
    took_s, reread_s, _ = restart(rig, filled, 0, group=rig.last_group)
    assert 0 < took_s < 60
    # All came within seconds, and a few of them come twice.
    assert reread_s == pytest.approx(filled.intervals, rel=0.05)


def test_peers_take_what_they_are_given(rig: Rig, filled: FilledTopics) -> None:
    """Faust and the batch source; Quix Streams only where it can be had."""
    settings = rig.settings("peers.")
    peers.fill_probes(rig, settings, PROBES, 70)
    starters = {
        "faust": (TOPIC, peers.faust(rig, settings), settings),
        "source": (
            PROBE_ROUND.name,
            peers.batch_source(rig, filled.settings),
            filled.settings,
        ),
    }
    quix = peers.quix_python()
    if quix is not None:
        start = peers.quix_streams(rig, settings, quix)
        starters["quix"] = (TOPIC, start, settings)
    for topic, start, where in starters.values():
        run = peers.run_programs(rig, where, topic, start, most_s=MOST_S, processes=1)
        # So little may all be committed when it is first looked at.
        assert run.whole or run.results > 0
    assert sum(rig.ends(settings, WINDOWS).values()) > 0


def test_bytes_depend_on_the_batch(rig: Rig) -> None:
    """Compression saves, and saves more in batches of many rounds; unpacking costs CPU."""
    rows = wire(rig, 1, lambda _: None, shape=SHAPE, intervals=8, codecs=("zstd",))
    raw, alone, alone_s, together, together_s = measured(rows).values()
    assert raw > alone > together
    assert min(alone_s, together_s) > 0


def test_delays_are_those_of_the_cuts(rig: Rig) -> None:
    """Each cut of a paced load has its anomaly, within seconds."""
    rows = realtime.delay(rig, 1, lambda _: None, rate_hz=4_000.0, warm_s=1.0, lasts_s=4.0)
    p99, published, late, median, worst, missing = measured(rows).values()
    assert 0 < median <= p99 <= worst < 30
    assert 0 < published <= p99
    assert 0 <= late < 30
    assert missing == 0


def test_memory_is_that_of_all_workers(rig: Rig) -> None:
    """Two processes with little in them: some hundred megabytes, and no more than they took."""
    rows = realtime.memory(rig, 1, lambda _: None, shape=LoadShape(agents=4), lasts_s=3)
    kept, most = measured(rows).values()
    assert 0.1 < kept <= most < 2


def test_without_a_known_load_there_is_no_delay(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that cannot be measured says so, and makes no figure."""
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    assert realtime.delay(rig, 1, said.append) == []
    assert "skipped" in said[0]


def test_the_peer_needs_no_room_of_ours() -> None:
    """What runs in the environment of Quix Streams imports neither contract nor worker."""
    code = (
        "import sys, ops.bench.throughput.peer_windows;"
        "print(*(n for n in sys.modules if n.split('.')[0] in ('schemas', 'streams', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
