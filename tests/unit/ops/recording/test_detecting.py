"""Detection over many slots at once says, slot by slot, what detection slot by slot says."""

from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arena.detecting import Detection, PublishedAnomaly, published_anomalies
from ops.recording import detecting
from ops.recording.detecting import BatchDetection, ReadSlot, batches
from ops.recording.export import export
from ops.recording.order import SLOT_MS, Slot, slots
from ops.recording.source import Item, Source
from schemas.codec import Codec
from schemas.units import MS_NS
from streams.config import DetectionConfig
from streams.core.feed import LogMessage
from tests.unit.ops.recording.test_diagnosis import incident

CLUSTER = "lab-7"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[ReadSlot]:
    """Return the slots of a recording in which a link is cut for a while."""
    folder = tmp_path_factory.mktemp("arena") / "incident"
    export(incident(), folder)
    with Source(folder) as source:
        return list(slots(source.rounds(Codec()), []))


def slot_by_slot(rounds: list[ReadSlot]) -> Iterator[list[PublishedAnomaly]]:
    """Yield the same, by a worker that gets the rounds of a second and then of the next."""
    workers = Detection(CLUSTER, DetectionConfig())
    for slot in rounds:
        told: list[PublishedAnomaly] = []
        own: defaultdict[int, list[Item]] = defaultdict(list)
        for item in slot.rounds:
            own[item.entry.partition].append(item)
        for partition, items in sorted(own.items()):
            messages = [
                LogMessage(i.entry.value or b"", i.entry.offset, i.entry.timestamp_ms)
                for i in items
            ]
            outputs = workers.messages(partition, messages, timestamp_ms=items[-1].at_ms)
            told += published_anomalies(partition, outputs)
        yield told + workers.idle((slot.start_ms + SLOT_MS) * MS_NS)
    yield workers.finish()


def by_partition(told: list[list[PublishedAnomaly]]) -> list[dict[int, list[PublishedAnomaly]]]:
    """Return by slot what each partition says up to its last mark; the rest goes to the next one.

    Until the next mark the localizer does nothing with it.
    """
    found, waiting = [], defaultdict[int, list[PublishedAnomaly]](list)
    for slot in told:
        marked: dict[int, list[PublishedAnomaly]] = {}
        for one in slot:
            waiting[one.partition].append(one)
            if one.record.kind == "progress":
                marked[one.partition] = marked.get(one.partition, []) + waiting.pop(one.partition)
        found.append(marked)
    return found


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    silences=st.lists(
        st.tuples(st.integers(0, 7), st.integers(5, 44), st.integers(1, 6)), max_size=5
    ),
    length=st.integers(1, 50),
)
def test_the_same_slot_by_slot(
    recorded: list[ReadSlot], silences: list[tuple[int, int, int]], length: int
) -> None:
    """With partitions that are silent for seconds, and batches of any length."""
    begin_ms = recorded[0].start_ms
    rounds = [
        Slot(
            slot.start_ms,
            slot.others,
            [
                item
                for item in slot.rounds
                if not any(
                    item.entry.partition == partition
                    and first <= (slot.start_ms - begin_ms) // SLOT_MS < first + seconds
                    for partition, first, seconds in silences
                )
            ],
        )
        for slot in recorded
    ]
    ahead = BatchDetection(Detection(CLUSTER, DetectionConfig()), CLUSTER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detecting, "BATCH_SLOTS", length)
        told = [found for batch in batches(rounds) for found in ahead.anomalies(batch)]
    told.append(ahead.finish())
    wanted = list(slot_by_slot(rounds))
    assert by_partition(told) == by_partition(wanted)
    assert any(one.record.kind != "progress" for slot in told for one in slot)


def test_a_batch_is_bounded_by_records_and_by_slots(
    recorded: list[ReadSlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with the slot that reaches either."""
    bound = 2 * len(recorded[5].rounds)
    monkeypatch.setattr(detecting, "BATCH_RECORDS", bound)
    few = list(batches(recorded))
    for *before, last in few[:-1]:
        records = sum(len(slot.rounds) for slot in before)
        assert records < bound <= records + len(last.rounds)
    assert [slot for batch in few for slot in batch] == recorded
    monkeypatch.setattr(detecting, "BATCH_RECORDS", 10**9)
    assert [len(batch) for batch in batches(recorded[:-1])] == [len(recorded) - 1]
