"""Detection in the order of a file says, slot by slot, what detection slot by slot says."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arena.detecting import Detection, PublishedAnomaly, published_anomalies
from ops.recording import detecting
from ops.recording.detecting import Detected, FileDetection, MarkedSilence, batches
from ops.recording.export import export
from ops.recording.order import SLOT_MS, RoundSlot, round_slots
from ops.recording.rounds import FiledRounds
from ops.recording.source import Item, Source
from schemas.codec import Codec
from schemas.units import MS_NS
from streams.config import DetectionConfig
from streams.core.feed import LogMessage
from tests.unit.ops.recording.test_diagnosis import incident

CLUSTER = "lab-7"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the recording of a link that is cut for a while."""
    made = tmp_path_factory.mktemp("arena") / "incident"
    export(incident(), made)
    return made


@pytest.fixture(scope="module")
def recorded(folder: Path) -> list[list[Item]]:
    """Return the rounds of its seconds."""
    with Source(folder) as source:
        return [slot.rounds for slot in round_slots(source.rounds(Codec()))]


def message(item: Item) -> LogMessage:
    """Return a round as a worker gets it."""
    return LogMessage(item.entry.value or b"", item.entry.offset, item.entry.timestamp_ms)


def slot_by_slot(rounds: list[list[Item]], begin_ms: int) -> Iterator[list[PublishedAnomaly]]:
    """Yield what a worker says that gets the rounds of a second and then of the next."""
    workers = Detection(CLUSTER, DetectionConfig())
    for number, slot in enumerate(rounds):
        told: list[PublishedAnomaly] = []
        own: defaultdict[int, list[Item]] = defaultdict(list)
        for item in slot:
            own[item.entry.partition].append(item)
        for partition, items in sorted(own.items()):
            outputs = workers.messages(
                partition, list(map(message, items)), timestamp_ms=items[-1].at_ms
            )
            told += published_anomalies(partition, outputs)
        yield told + workers.idle((begin_ms + (number + 1) * SLOT_MS) * MS_NS)
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


def filed(items: Sequence[Item]) -> FiledRounds:
    """Return rounds of a partition as they are read from a file."""
    return FiledRounds(
        items[0].entry.partition,
        list(map(message, items)),
        *(
            np.array(column, np.int64)
            for column in zip(*((i.at_ms, i.end_ms, i.results) for i in items), strict=True)
        ),
    )


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    silences=st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, 44), st.integers(1, 45)), max_size=5
    ),
    bounds=st.tuples(st.integers(1, 400), st.integers(1, 50)),
    shuffle=st.randoms(use_true_random=False),
)
def test_the_same_slot_by_slot(
    recorded: list[list[Item]],
    silences: list[tuple[int, int, int]],
    bounds: tuple[int, int],
    shuffle: Random,
) -> None:
    """However partitions are mixed in the file, silent for seconds or from some second on."""
    begin_ms = recorded[0][0].at_ms // SLOT_MS * SLOT_MS
    rounds = [
        [
            item
            for item in slot
            if not any(
                item.entry.partition == partition and first <= number < first + seconds
                for partition, first, seconds in silences
            )
        ]
        for number, slot in enumerate(recorded)
    ]
    left: defaultdict[int, list[Item]] = defaultdict(list)
    for item in (item for slot in rounds for item in slot):
        left[item.entry.partition].append(item)
    ends = {partition: items[-1].entry.offset + 1 for partition, items in left.items()}
    found: list[RoundSlot[Detected]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detecting, "BATCH_RECORDS", bounds[0])
        patch.setattr(detecting, "BATCH_SLOTS", bounds[1])
        workers = FileDetection(Detection(CLUSTER, DetectionConfig()), ends)
        while left:
            partition = shuffle.choice(sorted(left))
            count = shuffle.randint(1, 40)
            workers.add(filed(left[partition][:count]))
            left[partition] = left[partition][count:]
            if not left[partition]:
                del left[partition]
            found += workers.pop_due()
        found += workers.finish()
    assert [slot.start_ms for slot in found] == [
        begin_ms + number * SLOT_MS for number, slot in enumerate(rounds) if slot
    ]
    for slot in found:
        items = rounds[(slot.start_ms - begin_ms) // SLOT_MS]
        assert slot.reach_ms == max(item.end_ms for item in items)
        assert slot.rounds.records == len(items)
        assert slot.rounds.results == sum(item.results for item in items)
    by_start = {slot.start_ms: slot.rounds for slot in found}
    silence = MarkedSilence(CLUSTER)
    starts_ms = [begin_ms + number * SLOT_MS for number in range(len(rounds))]
    told = [silence.told(start_ms, by_start.get(start_ms)) for start_ms in starts_ms]
    told.append(silence.finish())
    assert by_partition(told) == by_partition(list(slot_by_slot(rounds, begin_ms)))


def test_slots_are_given_out_when_all_partitions_are_past_them(recorded: list[list[Item]]) -> None:
    """One that has ended holds nobody back; one whose rounds stand at the end of the file does."""
    items = [item for slot in recorded for item in slot]
    ends = {item.entry.partition: item.entry.offset + 1 for item in items}
    first, *others = sorted(ends)
    own = {p: [item for item in items if item.entry.partition == p] for p in ends}
    begin = own[first][: len(own[first]) // 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detecting, "BATCH_RECORDS", 1)
        held = FileDetection(Detection(CLUSTER, DetectionConfig()), ends)
        ended = FileDetection(
            Detection(CLUSTER, DetectionConfig()), {**ends, first: begin[-1].entry.offset + 1}
        )
        for workers in (held, ended):
            workers.add(filed(begin))
            for partition in others:
                assert list(workers.pop_due()) == []
                workers.add(filed(own[partition]))
        last_ms = begin[-1].at_ms // SLOT_MS * SLOT_MS
        assert [slot.start_ms for slot in held.pop_due()][-1] == last_ms - SLOT_MS
        assert [slot.start_ms for slot in ended.pop_due()][-1] == items[
            -1
        ].at_ms // SLOT_MS * SLOT_MS


def test_bounds_end_the_reading(recorded: list[list[Item]]) -> None:
    """What goes earlier or later is left out; nothing is read when all partitions are later."""
    items = [item for slot in recorded for item in slot]
    ends = {item.entry.partition: item.entry.offset + 1 for item in items}
    begin_ms = items[0].at_ms // SLOT_MS * SLOT_MS
    from_ms, to_ms = begin_ms + 4_500, begin_ms + 9_500
    workers = FileDetection(
        Detection(CLUSTER, DetectionConfig()), ends, from_ms=from_ms, to_ms=to_ms
    )
    late: set[int] = set()
    for item in items:
        workers.add(filed([item]))
        if item.at_ms >= begin_ms + 10 * SLOT_MS:
            late.add(item.entry.partition)
        assert workers.ended is (len(late) == len(ends))
    assert late
    found = list(workers.finish())
    wanted = [i for i in items if from_ms <= i.at_ms < to_ms]
    assert sum(slot.rounds.records for slot in found) == len(wanted)
    assert {slot.start_ms for slot in found} == {i.at_ms // SLOT_MS * SLOT_MS for i in wanted}


def test_a_batch_is_bounded_by_records_and_by_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the slot that reaches either."""
    sizes = [3, 1, 4, 1, 5, 9, 2, 6]
    monkeypatch.setattr(detecting, "BATCH_RECORDS", 8)
    assert list(batches(sizes, int)) == [[3, 1, 4], [1, 5, 9], [2, 6]]
    monkeypatch.setattr(detecting, "BATCH_RECORDS", 10**9)
    monkeypatch.setattr(detecting, "BATCH_SLOTS", 5)
    assert list(batches(sizes, int)) == [sizes[:5], sizes[5:]]


# Time, end and number of results of a round.
Plain = tuple[int, int, int]


def plain(partition: int, first_offset: int, rounds: Sequence[Plain]) -> FiledRounds:
    """Return rounds that no worker can read: what is said of them is their places alone."""
    times_ms, ends_ms, results = (
        np.array(column, np.int64) for column in zip(*rounds, strict=True)
    )
    messages = [LogMessage(b"", first_offset + n, at_ms) for n, (at_ms, _, _) in enumerate(rounds)]
    return FiledRounds(partition, messages, times_ms, ends_ms, results)


def slots_of(
    by_partition: dict[int, list[Plain]], from_ms: int, to_ms: int
) -> dict[int, tuple[int, int, int, dict[int, int]]]:
    """Return by start what a slot says: its reach, rounds, results, and who was heard when."""
    found: dict[int, tuple[int, int, int, dict[int, int]]] = {}
    for partition, rounds in sorted(by_partition.items()):
        at_ms = 0
        for time_ms, end_ms, results in rounds:
            at_ms = max(at_ms, time_ms)
            if from_ms <= at_ms < to_ms:
                start_ms = at_ms // SLOT_MS * SLOT_MS
                reach_ms, records, sum_, heard = found.get(start_ms, (0, 0, 0, {}))
                heard[partition] = at_ms
                reach_ms = max(reach_ms, at_ms, end_ms)
                found[start_ms] = reach_ms, records + 1, sum_ + results, heard
    return found


# Half seconds, so that bounds and rounds meet.
times = st.integers(0, 18).map(lambda halves: 500 * halves)
a_round = st.tuples(times, st.integers(0, 12_000), st.integers(0, 3))


@settings(max_examples=150, deadline=None)
@given(
    rounds=st.dictionaries(st.integers(0, 3), st.lists(a_round, min_size=1, max_size=12)),
    bounds=st.tuples(times, times),
    shuffle=st.randoms(use_true_random=False),
)
def test_slots_hold_what_goes_in_their_second(
    rounds: dict[int, list[Plain]], bounds: tuple[int, int], shuffle: Random
) -> None:
    """Timestamps go back; each slot is given once, in order, as soon as nothing can be added."""
    from_ms, to_ms = bounds
    ends = {partition: len(own) for partition, own in rounds.items()}
    wanted = slots_of(rounds, from_ms, to_ms)
    read: dict[int, int] = dict.fromkeys(rounds, 0)
    found: list[RoundSlot[Detected]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detecting, "BATCH_RECORDS", 1)
        detection = Detection(CLUSTER, DetectionConfig())
        workers = FileDetection(detection, ends, from_ms=from_ms, to_ms=to_ms)
        while left := [p for p in sorted(rounds) if read[p] < ends[p]]:
            partition = shuffle.choice(left)
            begin, count = read[partition], shuffle.randint(1, 4)
            some = rounds[partition][begin : begin + count]
            workers.add(plain(partition, begin, some))
            read[partition] += len(some)
            found += workers.pop_due()
            waits = [p for p in rounds if read[p] < ends[p]]
            times_ms = [max((0, *(r[0] for r in rounds[p][: read[p]]))) for p in waits]
            past_ms = min(times_ms, default=to_ms) // SLOT_MS * SLOT_MS if waits else to_ms
            assert [s.start_ms for s in found] == [s for s in sorted(wanted) if s < past_ms]
            assert workers.ended is (past_ms >= to_ms)
        found += workers.finish()
    assert {
        s.start_ms: (s.reach_ms, s.rounds.records, s.rounds.results, s.rounds.heard_ms)
        for s in found
    } == wanted
    assert [s.start_ms for s in found] == sorted(wanted)
    # In the order of the partitions, as is what they publish.
    assert all(list(s.rounds.heard_ms) == sorted(s.rounds.heard_ms) for s in found)
    counts = [sum(s.rounds.refused.values()) for s in found]
    assert counts == sorted(counts)
    assert counts[-1:] == [sum(records for _, records, _, _ in wanted.values())][: len(counts)]


def test_workers_take_a_batch_of_rounds_or_of_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rounds wait for others, but not for longer than a partition of many slots."""
    monkeypatch.setattr(detecting, "BATCH_RECORDS", 5)
    monkeypatch.setattr(detecting, "BATCH_SLOTS", 2)
    workers = FileDetection(Detection(CLUSTER, DetectionConfig()), {0: 100})
    given_out = []
    for offset, at_ms in enumerate([0, 100, 200, 1_000, 1_100, 1_200, 2_000, 3_000, 3_100]):
        workers.add(plain(0, offset, [(at_ms, 0, 1)]))
        given_out.append([slot.start_ms for slot in workers.pop_due()])
    # By the fifth round, and by the third of the slots that are there at 3 s.
    assert given_out == [[], [], [], [], [0], [], [], [1_000, 2_000], []]
