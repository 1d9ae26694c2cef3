"""What goes into a recording comes out of it: keys, nulls, headers, bytes, order."""

import itertools
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from ops.log.entry import Entry
from ops.recording import messages
from ops.recording import source as sources
from ops.recording.manifest import Manifest
from ops.recording.order import Slot, round_slots, slots
from ops.recording.rounds import RoundFile, RoundReader
from ops.recording.source import Item, Source
from ops.recording.writer import RecordingWriter
from schemas.codec import Codec
from schemas.topics import HEARTBEAT, PROBE_ROUND, Topic
from tests.unit.ops.recording_samples import START_MS, probe_round

# Compiled here rather than in the first example.
messages.read(PROBE_ROUND, b"", 0, b"")

PARTITIONS = 3
CODEC = Codec(bounded=False)

header = st.tuples(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=8),
    st.none() | st.binary(max_size=8),
)
a_round = st.builds(
    lambda seq, results: CODEC.encode(PROBE_ROUND, probe_round(seq=seq, results=results)),
    st.integers(0, 2**40),
    st.integers(0, 4),
)
entry = st.builds(
    Entry,
    partition=st.integers(0, PARTITIONS - 1),
    offset=st.just(0),
    timestamp_ms=st.none() | st.just(0) | st.integers(0, 2**43),
    key=st.none() | st.binary(max_size=12) | st.text(max_size=8).map(str.encode),
    value=st.none() | st.binary(max_size=40) | a_round,
    headers=st.lists(header, max_size=3).map(tuple),
)
# What a kernel reads: of a block with any other record it leaves all to fastavro.
usual = st.builds(
    Entry,
    partition=st.integers(0, PARTITIONS - 1),
    offset=st.just(0),
    timestamp_ms=st.none() | st.sampled_from([0, START_MS - 100_000, START_MS]),
    key=st.just(b"agent-h0"),
    value=st.none() | a_round,
    headers=st.lists(header, max_size=1).map(tuple),
)
entries_of_a_file = st.lists(entry, max_size=12) | st.lists(usual, min_size=1, max_size=12)


def with_offsets(entries: list[Entry], gaps: list[int]) -> list[Entry]:
    """Give the entries growing offsets, with gaps as compaction and transactions leave them."""
    at: dict[int, int] = defaultdict(int)
    out = []
    for position, item in enumerate(entries):
        at[item.partition] += 1 + gaps[position % len(gaps)]
        out.append(
            Entry(
                partition=item.partition,
                offset=at[item.partition],
                timestamp_ms=item.timestamp_ms,
                key=item.key,
                value=item.value,
                headers=item.headers,
            )
        )
    return out


def record(folder: Path, kept: list[tuple[Topic, Entry]], flush_every: int) -> None:
    """Write a recording of rounds and heartbeats."""
    manifest = Manifest(cluster="c", recorded_at="", from_ms=None, to_ms=None)
    writer = RecordingWriter(folder, manifest, CODEC)
    for topic in (PROBE_ROUND, HEARTBEAT):
        writer.add_topic(topic, PARTITIONS)
    for number, (topic, item) in enumerate(kept):
        writer.write_entry(topic, item)
        if number % flush_every == 0:
            writer.flush()
    writer.close(complete=True)


@settings(max_examples=60)
@given(
    entries_of_a_file,
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_a_recording_keeps_everything(
    entries: list[Entry], gaps: list[int], flush_every: int
) -> None:
    """Every entry comes back equal, in its partition's order, poison and tombstones included."""
    kept = [(PROBE_ROUND, e) for e in with_offsets(entries, gaps)]
    expected = [e for p in range(PARTITIONS) for _, e in kept if e.partition == p]
    with tempfile.TemporaryDirectory() as name:
        record(Path(name), kept, flush_every)
        for from_bytes in (0, sources.KERNELS_FROM_BYTES):
            with (
                mock.patch.object(sources, "KERNELS_FROM_BYTES", from_bytes),
                Source(Path(name)) as source,
            ):
                assert source.damages == []
                found = [item.entry for stream in source.rounds(CODEC) for item in stream]
                assert list(itertools.chain(*source.others(CODEC))) == []
                summary = source.summaries[PROBE_ROUND.name]
                assert summary == source.manifest.topics[PROBE_ROUND.name]
            assert found == expected
            assert summary.tombstones == sum(e.value is None for e in expected)


@settings(max_examples=60)
@given(entries_of_a_file, st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_rounds_in_the_order_of_their_file(entries: list[Entry], gaps: list[int]) -> None:
    """The same messages, times and counts as partition by partition, with kernels and without."""
    with tempfile.TemporaryDirectory() as name:
        record(Path(name), [(PROBE_ROUND, e) for e in with_offsets(entries, gaps)], 3)
        with Source(Path(name)) as source, ThreadPoolExecutor(1) as pool:
            wanted = {
                items[0].entry.partition: [
                    (
                        i.entry.value or b"",
                        i.entry.offset,
                        i.entry.timestamp_ms,
                        i.end_ms,
                        i.results,
                    )
                    for i in items
                ]
                for items in map(list, source.rounds(CODEC))
            }
            file = RoundFile.of(Path(name), source.manifest)
            assert file is not None
            assert file.ends == {p: own[-1][1] + 1 for p, own in wanted.items()}
            for kernels in (False, True):
                found = defaultdict[int, list[tuple[bytes, int, int | None, int, int]]](list)
                with closing(
                    RoundReader(replace(file, ends=None), pool, kernels=kernels)
                ) as reader:
                    assert reader.ends == file.ends
                    every = list(reader.read())
                for rounds in every:
                    columns = zip(
                        rounds.messages, rounds.times_ms.tolist(), rounds.ends_ms.tolist(),
                        rounds.results.tolist(), strict=True,
                    )  # fmt: skip
                    for (raw, offset, at_ms), time_ms, end_ms, results in columns:
                        assert time_ms == (at_ms or 0)
                        found[rounds.partition].append((raw, offset, at_ms, end_ms, results))
                for own in found.values():
                    # No round goes before an earlier one.
                    times = itertools.accumulate((round_[2] or 0 for round_ in own), max)
                    own[:] = [
                        (raw, offset, at_ms, max(end_ms, time_ms), results)
                        for (raw, offset, at_ms, end_ms, results), time_ms in zip(
                            own, times, strict=True
                        )
                    ]
                assert found == wanted


timed = st.tuples(st.booleans(), st.integers(0, PARTITIONS - 1), st.integers(0, 8_000))


@settings(max_examples=80)
@given(st.lists(timed, max_size=25))
def test_slots_keep_order_and_let_others_lead(events: list[tuple[bool, int, int]]) -> None:
    """Slots hold every record once, partitions stay in order, and no round runs ahead of others."""
    streams: dict[tuple[bool, int], list[Item]] = defaultdict(list)
    latest: dict[tuple[bool, int], int] = defaultdict(int)
    for number, (is_round, partition, at_ms) in enumerate(events):
        place = (is_round, partition)
        latest[place] = max(latest[place], START_MS + at_ms)
        streams[place].append(
            Item(
                topic=PROBE_ROUND if is_round else HEARTBEAT,
                entry=Entry(
                    partition=partition,
                    offset=number,
                    timestamp_ms=START_MS + at_ms,
                    key=None,
                    value=None,
                ),
                at_ms=latest[place],
                end_ms=latest[place] + (number * 700 % 2500 if is_round else 0),
            )
        )
    rounds, others = (
        [iter(s) for (of_rounds, _), s in streams.items() if of_rounds is wanted]
        for wanted in (True, False)
    )
    found: list[Slot[list[Item], Item]] = list(slots(round_slots(rounds), others))
    written: dict[tuple[bool, int], list[Item]] = defaultdict(list)
    left = sorted(item.at_ms for place, s in streams.items() if not place[0] for item in s)
    for slot in found:
        for item in slot.others:
            written[(False, item.entry.partition)].append(item)
            left.remove(item.at_ms)
        for item in slot.rounds or ():
            written[(True, item.entry.partition)].append(item)
            assert not left or left[0] > item.end_ms
    assert written == streams
    starts = [s.start_ms for s in found]
    assert starts == sorted(set(starts))
