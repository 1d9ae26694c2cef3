"""The pure parts of the throughput bench: extrapolation, peers' windows, the day's recording."""

from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from arena.world.fabric import FabricShape
from localizer.config import CoreConfig
from ops.bench.rig.load import Load, LoadShape
from ops.bench.rig.report import Figure, titled
from ops.bench.throughput.decoder import KEPT, Decoder
from ops.bench.throughput.peer_windows import (
    LATENESS_MS,
    WINDOW_MS,
    Windows,
    decode,
    encode,
    statistics,
)
from ops.bench.throughput.realtime import AGAIN_MS, MOST_AGENTS, judged, shape_at
from ops.bench.throughput.replay import extrapolated_s, record, scenario
from ops.bench.throughput.report import draw
from ops.bench.throughput.rig import Rig
from ops.bench.throughput.throughput import core
from ops.recording.diagnosis import INPUTS, diagnose
from ops.recording.source import Source
from schemas.codec import Codec
from schemas.topics import PROBE_ROUND
from streams.columns.rounds import FlowKey, round_columns
from streams.config import DetectionConfig
from tests.unit.streams.columns.numpy_statistics import statistics as ours

SMALL = FabricShape(hosts=8, rails=2, segment_hosts=4, spines=2, tiers=2)


def test_what_does_not_grow_is_not_multiplied() -> None:
    """Ten seconds that every replay takes are ten seconds of a day's, too."""
    assert extrapolated_s((1_000, 12.0), (6_000, 22.0), 1_000_000) == pytest.approx(2_010)


def test_a_clock_that_was_kinder_to_the_longer_one_flatters_nothing() -> None:
    """Without a slope everything is multiplied: too much rather than too little."""
    assert extrapolated_s((1_000, 12.0), (6_000, 12.0), 60_000) == pytest.approx(120)


def test_the_peers_windows_say_what_ours_say() -> None:
    """Same results, same statistics: the peers do no less, and no more."""
    trips = np.random.default_rng(5).integers(9_000, 40_000, 31).tolist()
    mine = ours(np.zeros(31, np.int64), np.array(trips), 1)
    theirs = statistics([*trips, None])
    assert (theirs["sent"], theirs["ok"], theirs["lost"]) == (32, 31, 1)
    for name, column in mine.items():
        assert abs(int(column[0]) - int(theirs[name] or 0)) <= 1, name
    assert statistics([None])["p50_ns"] is None


def test_the_peers_windows_close_behind_the_lateness() -> None:
    """A window takes what is a little late, closes once, and then takes nothing more."""
    windows = Windows()
    assert windows.add_probe("a", 1_000, 5) == []
    assert windows.add_probe("a", WINDOW_MS + LATENESS_MS - 1, 6) == []
    assert windows.add_probe("a", WINDOW_MS - 1, 7) == []
    (closed,) = windows.add_probe("a", WINDOW_MS + LATENESS_MS, 8)
    assert b'"sent": 2' in closed
    windows.add_probe("a", 2_000, 9)
    assert b'"sent": 2' in windows.add_probe("a", 2 * WINDOW_MS + LATENESS_MS, 8)[0]


def test_a_probe_survives_its_message() -> None:
    """What the peers read is what was measured."""
    probe = {
        "agent_id": "a", "src": "a/r0", "dst": "b/r0", "flow": 0, "sent_ns": 5, "status": "OK",
        "rtt_ns": 7, "prober_delay_ns": None, "responder_delay_ns": 3,
    }  # fmt: skip
    assert decode(encode(probe)) == probe


@pytest.mark.parametrize("rate_hz", [8_000.0, 100_000.0, 4e6])
def test_a_paced_load_has_its_rate(rate_hz: float) -> None:
    """Few agents at 1 Hz, as many as can be made, or those more often: the rate is as asked."""
    shape = shape_at(rate_hz)
    assert shape.agents <= MOST_AGENTS
    assert shape.paths * 1e9 / shape.interval_ns == pytest.approx(rate_hz, rel=0.01)


def test_the_bare_decoder_sees_what_fastavro_sees() -> None:
    """By kernels or not, at the first sight of a 5-tuple or later: as many results."""
    shape = LoadShape(agents=3, rnics=2, targets=3, bodies=3, lost=0.01, cut=0.02)
    rounds = list(Load(shape).rounds(60, 1_790_000_000 * 10**6))
    values, results = [sent.value for sent in rounds], sum(sent.results for sent in rounds)
    decoder = Decoder()
    assert [decoder.count(values), decoder.count(values)] == [results, results]
    assert Decoder(kernels=False).count(values) == results


def test_the_least_a_core_must_do_puts_every_value_at_its_place() -> None:
    """Of each 5-tuple the last results stand there, as fastavro reads them."""
    shape = LoadShape(agents=3, rnics=2, targets=3, bodies=3, lost=0.01, cut=0.02, late=0, twice=0)
    values = [sent.value for sent in Load(shape).rounds(60, 1_790_000_000 * 10**6)]
    decoder, codec = Decoder(flows=shape.paths), Codec()
    # The first rounds are read by fastavro, and teach the kernel.
    decoder.count(values[:30])
    decoder.used[:] = 0
    assert decoder.count(values[30:]) == decoder.used.sum()
    expected = defaultdict[FlowKey, list[list[int]]](list)
    for value in values[30:]:
        columns = round_columns(codec.decode_datum(PROBE_ROUND, value))
        for key, measured in zip(columns.keys, columns.values.T.tolist(), strict=True):
            expected[key].append(measured)
    found = []
    for row, used in enumerate(decoder.used.tolist()):
        slots = [n % KEPT for n in range(max(0, used - KEPT), used)]
        found.append(decoder.values[:, slots, row].T.tolist())
    assert sorted(found) == sorted(one[-KEPT:] for one in expected.values())


class OneRun:
    """A rig and its child, which has told of one run."""

    def begin(self, *_: str) -> "OneRun":
        """Return the child."""
        return self

    def result(self, child: "OneRun") -> None:
        """Wait for the child."""

    def events(self) -> list[dict[str, Any]]:
        """Return what it told."""
        return [
            {"results": 6e6, "cpu_s": 1.0, "wall_s": 2.0, "bare_hz": 12e6, "rss_bytes": 1e6,
             "counts": {}}
        ]  # fmt: skip


def test_what_the_core_is_compared_with_stands_below_it() -> None:
    """Rows that go on with another begin as all such rows do, and keep their place by it."""
    rows = core(cast(Rig, OneRun()), 1, lambda _: None)
    whole, share, bare, memory = rows
    assert [title for title, _ in titled(rows)] == [whole.figure] * 3 + [memory.figure]
    assert (whole.value, share.value, bare.value) == (6, 50, 12)


def test_a_cut_that_is_still_open_has_no_onset_of_its_own() -> None:
    """What is cut again too early is left out, and what was cut before the time that counts."""
    path, again = ("a", "b"), AGAIN_MS
    times_ms = [(*path, 0), (*path, again - 1), (*path, 2 * again), ("a", "c", 2 * again)]
    cuts = [(src, dst, at_ms, at_ms + 1) for src, dst, at_ms in times_ms]
    assert judged(cuts, 10.0) == cuts[2:]
    assert judged(cuts[:1], 0.0) == cuts[:1]


def test_a_day_s_recording_is_whole_and_tells_its_fault(tmp_path: Path) -> None:
    """Records drawn and patched are read as any recording is, and the fault in them is found."""
    results = record(tmp_path / "day", scenario(100, SMALL))
    with Source(tmp_path / "day") as source:
        assert not source.damages
        found = diagnose(
            source, DetectionConfig(), CoreConfig(cluster=source.manifest.cluster),
            lambda: False, lambda _: None,
        )  # fmt: skip
    assert set(source.summaries) == {topic.name for topic in INPUTS}
    assert found.records[PROBE_ROUND.name] == 8 * 100
    assert found.results == results
    assert not found.refused
    assert found.events


def test_a_picture_needs_figures(tmp_path: Path) -> None:
    """Rates and bytes are drawn; a run that measured neither leaves the picture as it was."""

    def figure(unit: str) -> Figure:
        return Figure(
            figure="f", value=2.0, unit=unit, bar=5.0, sense=">=", low=1.0, high=3.0, runs=2,
            command="c", at="",
        )  # fmt: skip

    draw([figure("s")], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    draw([figure("M/s"), figure("bytes a result")], tmp_path / "some.png")
    assert (tmp_path / "some.png").read_bytes().startswith(b"\x89PNG")
