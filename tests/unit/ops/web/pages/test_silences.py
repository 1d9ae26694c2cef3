"""Silences: those in force or planned first, and what each hides."""

from typing import Any

from ops.view.cluster import ClusterView
from ops.web.pages import silences
from ops.web.pages.silences import document
from schemas import topics as t
from schemas.records import Matcher, Silence
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import Log, fault

MINUTE_MS = 60_000


def silence(name: str, from_ms: int, until_ms: int, **change: Any) -> Silence:
    """Return a silence of all links, in milliseconds after the start."""
    values: dict[str, Any] = {
        "cluster": "c", "silence_id": name, "author": "ada", "reason": "cable day",
        "matchers": (Matcher(label="component", pattern="link:*"),), "created_at": 1,
        "from_at": (START_MS + from_ms) * 1_000, "until_at": (START_MS + until_ms) * 1_000,
        **change,
    }  # fmt: skip
    return Silence(**values)


def test_each_silence_says_what_it_hides_until_it_has_ended() -> None:
    """A planned one hides nothing yet; one that ended stays for a while, with who ended it."""
    view, log = ClusterView(), Log()
    view.apply(log.seen(t.FAULT_EVENT, fault()))
    view.apply(log.seen(t.FAULT_EVENT, fault(fault_id="f-2", component_id="spine:1")))
    for one in (
        silence("s-now", 0, 2 * MINUTE_MS),
        silence("s-all", 0, 9 * MINUTE_MS, matchers=()),
        silence("s-planned", MINUTE_MS, 3 * MINUTE_MS),
        silence("s-over", 0, 1, ended_by="bob"),
    ):
        view.apply(log.seen(t.SILENCE, one))
    found = document(view, {}, START_MS + 1_000)
    rows = found["silences"]
    assert {name: (row["state"], row.get("hides")) for name, row in rows.items()} == {
        "s-now": ("in force", 1), "s-all": ("in force", 2), "s-planned": ("planned", None),
    }  # fmt: skip
    assert rows["s-now"]["matchers"] == ["component=link:*"]
    assert {name: row["ended_by"] for name, row in found["over"].items()} == {"s-over": "bob"}
    later = document(view, {}, START_MS + 2 * MINUTE_MS)
    assert list(later["over"]) == ["s-now", "s-over"]


def test_more_than_anybody_reads_are_counted() -> None:
    """Those that end soonest are shown."""
    view, log = ClusterView(), Log()
    for number in range(silences.MAX_SHOWN + 3):
        view.apply(log.seen(t.SILENCE, silence(f"s-{number:04}", 0, MINUTE_MS + number)))
    found = document(view, {}, START_MS)
    assert (len(found["silences"]), found["left"]) == (silences.MAX_SHOWN, 3)
    assert "s-0000" in found["silences"]
