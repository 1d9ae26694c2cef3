"""The throughput benchmark at its smallest: every part runs, and measures something."""

import importlib.util
import sys

import pytest

from ops.bench import throughput, throughput_delay, throughput_peers, throughput_wire
from ops.bench.load import LoadShape
from ops.bench.report import Figure
from ops.bench.throughput_figures import rig
from ops.bench.throughput_start import restart, take_all
from schemas.topics import PROBE_ROUND

pytestmark = pytest.mark.broker

SHAPE = LoadShape(agents=8, rnics=2, targets=5, bodies=3)
PROBES = LoadShape(agents=2, rnics=2, targets=5, bodies=3)
MOST_S = 8.0


def measured(rows: list[Figure]) -> dict[str, float]:
    """Return the values, all of which must be there."""
    assert all(row.value is not None for row in rows)
    return {row.figure: row.value or 0.0 for row in rows}


def test_the_core_is_measured() -> None:
    """A recording goes through the core in a process of its own."""
    said: list[str] = []
    size = throughput.Size(core=SHAPE, core_intervals=40)
    rate, _ = measured(throughput.core(1, said.append, size)).values()
    assert rate > 0
    assert "'windows': 80" in said[0]


def test_workers_take_all_of_a_full_topic_once() -> None:
    """Rates of workers and bare loops; the rig itself holds the workers to every result."""
    said: list[str] = []
    size = throughput.Size(shape=SHAPE, intervals=45, most_s=60.0)
    found = measured(throughput.pipeline(1, said.append, size))
    assert found[throughput.FULL] > 0
    assert not any("cut off" in line for line in said)
    assert "'windows': 80" in said[-1]


def test_a_peer_takes_probes_and_makes_windows() -> None:
    """Faust, and Quix Streams where this environment or that of the bench has it."""
    said: list[str] = []
    rows = throughput_peers.peers(1, said.append, (SHAPE, 10), (PROBES, 70), MOST_S)
    found = measured(rows)
    assert found["workers against Faust, a message for each probe"] > 0
    skipped = any("no Quix Streams" in line for line in said)
    assert skipped == (throughput_peers.quix_python() is None)
    assert skipped != any("Quix" in name for name in found)


def test_the_batch_source_is_measured_without_an_engine() -> None:
    """Both consumers read the same topic to its end."""
    found = measured(throughput_peers.source(1, lambda _: None, SHAPE, 20, MOST_S))
    assert all(value > 0 for value in found.values())


def test_bytes_depend_on_the_codec() -> None:
    """Compression saves, and saves more in batches of many rounds."""
    rows = throughput_wire.wire(1, lambda _: None, SHAPE, 8, ("none", "zstd"))
    raw, none, _, alone, together = measured(rows).values()
    assert none > raw > alone > together


def test_delays_are_those_of_the_cuts() -> None:
    """Each cut of a paced load has its anomaly, within seconds."""
    rows = throughput_delay.delay(1, lambda _: None, 4_000.0, warm_s=2.0, lasts_s=5.0)
    p99, median, worst, missing = measured(rows).values()
    assert 0 < median <= p99 <= worst < 30
    assert missing == 0


def test_a_restart_ends_with_outputs() -> None:
    """The time of a restart is that of its first outputs, after which it goes on to the end."""
    with rig(join_ms=0) as made:
        filled = made.fill("start.", SHAPE, 40)
        made.start_worker("first", filled.settings)
        take_all(made, filled)
        made.group.stop("first")
        took_s, rss_bytes = restart(made, filled, 0)
        ends = made.ends(filled.settings, PROBE_ROUND.name)
    assert 0 < took_s < 60
    assert rss_bytes > 10**7
    assert sum(ends.values()) > filled.messages


def test_the_peer_needs_no_room_of_ours() -> None:
    """What runs in the bench's own environment imports nothing that is only in ours."""
    spec = importlib.util.find_spec("ops.bench.peer_windows")
    assert spec is not None
    before = {name for name in sys.modules if name.startswith(("schemas", "streams"))}
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    assert {n for n in sys.modules if n.startswith(("schemas", "streams"))} == before
