"""A recording as the pages saw it."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ops.recording.source import Source
from ops.view.cluster import ClusterView
from ops.web import recorded
from ops.web.pages.counters import COUNTERS, wanted
from ops.web.pages.page import UnknownItemError
from ops.web.pages.registry import PAGES
from ops.web.recorded import RecordedSource
from ops.web.review import incidents
from schemas import topics as t
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, counters, record_all, small_cluster, story


def pages(view: ClusterView, now_ms: int) -> dict[str, Any]:
    """Return what all pages show."""
    found: dict[str, Any] = {}
    for name, page in PAGES.items():
        try:
            found[name] = page.document(view, {"fault": "f-1"}, now_ms)
        except UnknownItemError as error:
            found[name] = str(error)
    return found


def live_at(at_ms: int) -> dict[str, Any]:
    """Return what the pages showed at that time, to whoever had read all until then."""
    view = ClusterView()
    for seen in story():
        if (seen.timestamp_ms or 0) <= at_ms:
            view.apply(seen)
    return pages(view, at_ms)


def test_a_recording_shows_what_the_pages_showed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any time, in any order of looking, also from the copies that jumps go on from."""
    monkeypatch.setattr(recorded, "STEP", 7)
    monkeypatch.setattr(recorded, "MAX_COPIES", 4)
    times = [START_MS + ms for ms in range(0, 29_001, 500)]
    random.Random(1).shuffle(times)
    with Source(record_all(tmp_path, story())) as recording:
        source = RecordedSource(recording)
        source.read()
        assert source.span_ms == (START_MS, START_MS + 29_000)
        for at_ms in times:
            assert source.look(pages, at_ms) == live_at(at_ms)


def test_counters_are_read_where_somebody_looks(tmp_path: Path) -> None:
    """Those of two minutes before that time, of the job's agents; where the file is broken why."""
    log = Log()
    told = [
        log.seen(t.RNIC_COUNTERS, counters(host, second, 125_000 * moved, 0), at_ms=at_ms)
        for second in range(240)
        for host, moved in (("h0", 8), ("h1", 80))
        for at_ms in (START_MS + (second + 1) * 1_000,)
    ]
    record_all(tmp_path, [*log.all(small_cluster()), *told])

    def shown(at_ms: int) -> dict[str, Any]:
        return source.look(
            lambda view, now_ms: COUNTERS.document(view, {"endpoint": "h0/r0"}, now_ms),
            at_ms,
            lambda view: wanted(view, {}),
        )

    with Source(tmp_path) as recording:
        source = RecordedSource(recording)
        source.read()
        source.span_ms = (START_MS, START_MS + 300_000)
        found = shown(START_MS + 200_000)
        assert (found["rnics"]["h0/r0"]["tx_mbps"], found["rnics"]["h1/r0"]["tx_mbps"]) == (8, 80)
        assert found["rnics"]["h1/r0"]["load_mbps"][1:-1] == [80] * 22
        # From the first record of these two minutes to the last sample before that time.
        assert found["series"]["from_ms"] == START_MS + 79_900
        assert found["series"]["from_ms"] + 100 * len(found["series"]["tx_mbps"]) == (
            START_MS + 199_900
        )
        assert "holds no rnic.counters.v1" in shown(START_MS)["missing"]
    path = tmp_path / "rnic.counters.v1.avro"
    with Source(tmp_path) as recording:
        source = RecordedSource(recording)
        source.read()
        source.span_ms = (START_MS, START_MS + 300_000)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert "rnic.counters.v1.avro: damaged" in shown(START_MS + 239_000)["missing"]


def test_a_time_outside_is_refused_with_the_span(tmp_path: Path) -> None:
    """Before and after."""
    with Source(record_all(tmp_path, story())) as recording:
        source = RecordedSource(recording)
        source.read()
        for at_ms in (START_MS - 1, START_MS + 30_000):
            with pytest.raises(UnknownItemError, match="outside the recording") as told:
                source.look(pages, at_ms)
            assert "2026-01-01T00:00:00.000Z" in told.value.todo


def test_a_damaged_recording_shows_what_stands_before(tmp_path: Path) -> None:
    """And says where it is broken."""
    record_all(tmp_path, story())
    path = tmp_path / "component.state.v1.avro"
    path.write_bytes(path.read_bytes()[:-20])
    with Source(tmp_path) as recording:
        assert recording.damages
        source = RecordedSource(recording)
        source.read()
        assert source.ready
        assert source.trouble is not None
        assert "component.state.v1.avro: damaged at byte" in source.trouble.what
        assert len(source.look(lambda view, _: view.faults.over())) == 1


def test_a_review_holds_every_incident(tmp_path: Path) -> None:
    """By their onsets; or those that are asked for."""
    with Source(record_all(tmp_path, story())) as recording:
        found = incidents(RecordedSource(recording), [])
        assert [d["fault"]["id"] for d in found.documents] == ["f-1"]
        assert json.dumps(found.documents)
        with pytest.raises(UnknownItemError, match="no fault 'f-9'"):
            incidents(RecordedSource(recording), ["f-9"])
