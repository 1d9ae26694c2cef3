"""Many records decoded at once, against one after the other."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ops.log.decoding import BatchDecoder, SeenRecord, decode
from ops.log.entry import Entry
from ops.log.windows import SeenWindows
from ops.view.cluster import ClusterView
from ops.web.pages.registry import PAGES
from schemas import topics as t
from schemas.codec import Codec
from schemas.topics import Topic
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import endpoint, entry, heartbeat, window

CODEC = Codec()
DECODER = BatchDecoder(CODEC)
HOSTS = ("h0", "h1", "hä")
RECORDS: st.SearchStrategy[tuple[Topic, Any]] = st.one_of(
    st.builds(
        lambda src, flow, turn, lost, p50_ns: (
            t.PROBE_WINDOW,
            replace(window(src, "h9", flow, START_MS + 30_000 * turn, lost), p50_ns=p50_ns),
        ),
        st.sampled_from(HOSTS), st.integers(0, 1), st.integers(0, 3), st.integers(0, 30),
        st.none() | st.integers(0, 10**6),
    ),
    st.builds(
        lambda host, seq: (t.HEARTBEAT, heartbeat(f"agent-{host}", seq=seq)),
        st.sampled_from(HOSTS), st.integers(0, 9),
    ),
    st.builds(lambda host: (t.ENDPOINT, endpoint(host)), st.sampled_from(HOSTS)),
)  # fmt: skip
# What happens to a message on its way.
HARMS = st.sampled_from(["", "", "", "", "key", "cut", "tombstone", "no time"])


def harmed(one: Entry, harm: str) -> Entry:
    """Return an entry as a bad writer would write it."""
    if harm == "key":
        return replace(one, key=b"\xff")
    if harm == "no time":
        return replace(one, timestamp_ms=None)
    value = {"cut": (one.value or b"")[:-1], "tombstone": None}.get(harm, one.value)
    return replace(one, value=value)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(RECORDS, HARMS, st.integers(1, 3)), max_size=60),
    st.integers(0, 60),
)
def test_many_at_once_say_what_each_says(
    messages: list[tuple[tuple[Topic, Any], str, int]], again: int
) -> None:
    """Positions, counts and pages are the same; what was folded changes nothing."""
    at = {topic: [0, 0] for topic in t.TOPICS}
    entries = []
    for (topic, record), harm, step in messages:
        # All records of a key are in one partition.
        partition = len(getattr(record, topic.key_field).encode()) % 2
        at[topic][partition] += step
        made = entry(topic, record, offset=at[topic][partition], at_ms=START_MS)
        entries.append((topic, harmed(replace(made, partition=partition), harm)))
    alone, batch = ClusterView(), ClusterView()
    for topic, one in entries:
        alone.apply(decode(topic, one, CODEC))
    for seen in [*DECODER.decode(entries[:again]), *DECODER.decode(entries)]:
        batch.apply(seen)
    for name in ("positions", "times_ms", "records", "refused", "windows", "endpoints", "agents"):
        assert getattr(alone, name) == getattr(batch, name), name
    for name, params in (("now", {}), ("agents", {}), ("matrix", {"level": "endpoint"})):
        told = [PAGES[name].document(view, params, START_MS + 60_000) for view in (alone, batch)]
        assert told[0] == told[1]
    for host in HOSTS:
        first, second = (v.flow_windows.series(f"{host}/r0", "h9/r0") for v in (alone, batch))
        assert {n: s.numbers.tolist() for n, s in first.items()} == {
            n: s.numbers.tolist() for n, s in second.items()
        }


def test_windows_are_columns_up_to_what_must_be_looked_at() -> None:
    """A record with another's key breaks them in two."""
    made = [
        entry(t.PROBE_WINDOW, window(f"h{n}", "h9", 0, START_MS), offset=n, at_ms=START_MS)
        for n in range(20)
    ]
    made[7] = replace(made[7], key=b"another")
    found = list(DECODER.decode((t.PROBE_WINDOW, one) for one in made))
    assert [len(s) if isinstance(s, SeenWindows) else s.offset for s in found] == [7, 7, 12]
    assert isinstance(found[1], SeenRecord)
    assert "is not its" in (found[1].refused or "")
