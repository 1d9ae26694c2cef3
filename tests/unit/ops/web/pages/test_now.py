"""Now: open faults with what people said of them."""

from ops.view.cluster import ClusterView
from ops.web.pages import now
from ops.web.pages.now import document
from schemas import topics as t
from schemas.enums import NoteAction
from schemas.records import Matcher, Silence
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import LINK, Log, fault, note, resolved


def silence(until_ms: int) -> Silence:
    """Return a silence of all links until a time."""
    return Silence(
        cluster="c", silence_id="s", matchers=(Matcher(label="component", pattern="link:*"),),
        from_at=START_MS * 1_000, until_at=until_ms * 1_000, created_at=START_MS * 1_000,
        author="ada", reason="cable day",
    )  # fmt: skip


def test_a_silence_hides_the_page_never_the_fault() -> None:
    """As long as it lasts; who and why is said."""
    view, log = ClusterView(), Log()
    view.apply(log.seen(t.FAULT_EVENT, fault()))
    view.apply(log.seen(t.SILENCE, silence(START_MS + 60_000)))
    shown = document(view, {}, START_MS + 1_000)["open"]["f-1"]
    assert shown["silenced"] == {
        "until_ms": START_MS + 60_000,
        "author": "ada",
        "reason": "cable day",
    }
    assert "silenced" not in document(view, {}, START_MS + 60_000)["open"]["f-1"]


def test_who_acknowledged_is_said() -> None:
    """The last one who did."""
    view, log = ClusterView(), Log()
    view.apply(log.seen(t.FAULT_EVENT, fault()))
    view.apply(log.seen(t.INCIDENT_NOTE, note(NoteAction.COMMENT, "hm", START_MS)))
    assert "acknowledged_by" not in document(view, {}, START_MS)["open"]["f-1"]
    view.apply(log.seen(t.INCIDENT_NOTE, note(NoteAction.ACKNOWLEDGE, "mine", START_MS + 1)))
    assert document(view, {}, START_MS)["open"]["f-1"]["acknowledged_by"] == "ada"


def test_who_closed_is_said_until_it_comes_back() -> None:
    """With the cause, as long as the bridge pages nobody for it."""
    view, log = ClusterView(), Log()
    view.apply(log.seen(t.FAULT_EVENT, fault(flaps=1)))
    said = note(NoteAction.CLOSE, "", START_MS + 1_000, cause="dirty optics")
    view.apply(log.seen(t.INCIDENT_NOTE, said))
    view.apply(log.seen(t.FAULT_EVENT, fault(2, START_MS + 2_000, flaps=1)))
    assert document(view, {}, START_MS)["open"]["f-1"]["closed"] == {
        "by": "ada",
        "at_ms": START_MS + 1_000,
        "cause": "dirty optics",
    }
    view.apply(log.seen(t.FAULT_EVENT, fault(3, START_MS + 3_000, flaps=2)))
    assert "closed" not in document(view, {}, START_MS)["open"]["f-1"]


def test_the_last_day_shows_when_a_component_was_bad() -> None:
    """Each time that any of its faults was open; what is over for a day is not shown."""
    view, log = ClusterView(), Log()
    later = resolved(2, START_MS + 9_000)
    told = [fault(), later, fault(3, START_MS + 20_000, flaps=1)]
    told += [fault(fault_id="f-2"), resolved(2, START_MS + 5_000, fault_id="f-2")]
    told += [resolved(1, START_MS, fault_id="f-3", component_id="leaf:0")]
    for event in told:
        view.apply(log.seen(t.FAULT_EVENT, event))
    began_ms = START_MS - 4_000
    spans = [
        {"from_ms": began_ms, "to_ms": START_MS + 9_000},
        {"from_ms": START_MS + 20_000},
    ]
    day = document(view, {}, START_MS + 30_000)["day"]
    assert list(day) == [LINK, "leaf:0"]
    assert day[LINK]["spans"] == spans
    # A fault that is still open goes on beside one that began after it.
    view.apply(log.seen(t.FAULT_EVENT, resolved(4, START_MS + 25_000, flaps=1)))
    view.apply(log.seen(t.FAULT_EVENT, fault(fault_id="f-4")))
    day = document(view, {}, START_MS + 30_000)["day"]
    assert day[LINK]["spans"] == [{"from_ms": began_ms}]
    assert list(document(view, {}, START_MS + now.DAY_MS)["day"]) == [LINK]


def test_a_storm_is_counted_beyond_the_bound() -> None:
    """The latest are listed."""
    view, log = ClusterView(), Log()
    for number in range(now.MAX_OPEN + 5):
        event = fault(1, START_MS, fault_id=f"f-{number}", opened_at=(START_MS + number) * 1_000)
        view.apply(log.seen(t.FAULT_EVENT, event))
    for number in range(now.MAX_OVER + 5):
        view.apply(log.seen(t.FAULT_EVENT, resolved(1, START_MS + number, fault_id=f"r-{number}")))
    found = document(view, {}, START_MS)
    assert (found["open_total"], len(found["open"])) == (now.MAX_OPEN + 5, now.MAX_OPEN)
    assert "f-0" not in found["open"]
    assert (len(found["over"]), "r-0" in found["over"]) == (now.MAX_OVER, False)
