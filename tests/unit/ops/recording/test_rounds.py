"""The rounds of a file, as its manifest tells of them or otherwise."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ops.log.entry import Entry
from ops.recording.container import ContainerWriter, DamageError
from ops.recording.manifest import Manifest, TopicSummary
from ops.recording.rounds import RoundFile, RoundReader
from ops.recording.shape import shape_of
from schemas.codec import Codec
from schemas.topics import PROBE_ROUND

PARTITIONS = 4


def written(path: Path, places: Sequence[tuple[int, int]], block: int) -> Path:
    """Write rounds without a value, each with its partition and offset, so many to a block."""
    shape = shape_of(PROBE_ROUND)
    writer = ContainerWriter(path, shape.written)
    for number, (partition, offset) in enumerate(places, 1):
        entry = Entry(
            partition=partition, offset=offset, timestamp_ms=1_000 * number, key=b"agent",
            value=None,
        )  # fmt: skip
        writer.append(shape.datum(entry, Codec()))
        if number % block == 0:
            writer.cut()
    writer.close()
    return path


def read(file: RoundFile, *, kernels: bool) -> tuple[list[tuple[int, int]], str]:
    """Return partition and offset of the rounds that are given, and what is wrong then."""
    found: list[tuple[int, int]] = []
    with ThreadPoolExecutor(1) as pool, closing(RoundReader(file, pool, kernels=kernels)) as reader:
        try:
            for rounds in reader.read():
                found += [(rounds.partition, message.number) for message in rounds.messages]
        except DamageError as damage:
            return found, damage.reason
    return found, ""


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize(
    ("ends", "places", "reason"),
    [
        ({0: 3, 1: 8}, [(0, 2), (1, 6), (1, 7)], ""),
        (None, [(0, 2), (3, 9), (0, 3)], ""),
        (None, [(0, 2), (0, 1)], "offset 1 of partition 0; it stands behind the last one, of"),
        ({0: 3}, [(0, 2), (1, 6)], "offset 6 of partition 1; the manifest says that it has no"),
        ({0: 2}, [(0, 1), (0, 2)], "the manifest says that the last one is before offset 2"),
        ({0: 3}, [(0, 2), (0, 1)], "offset 1 of partition 0; it stands behind the last one, of"),
        ({0: 3}, [(0, 2), (0, 2)], "offset 2 of partition 0; it stands behind the last one, of"),
        (None, [(0, 2), (4, 2)], "offset 2 of partition 4; the manifest says 4 partitions"),
    ],
)
def test_what_contradicts_the_manifest_is_damage(
    tmp_path: Path,
    ends: Mapping[int, int] | None,
    places: list[tuple[int, int]],
    reason: str,
    kernels: bool,
) -> None:
    """What stands before it is given."""
    file = RoundFile(written(tmp_path / "r.avro", places, 1), PARTITIONS, ends)
    found, said = read(file, kernels=kernels)
    assert found == (places[:-1] if reason else places)
    assert said.startswith(reason) if reason.startswith("offset") else reason in said
    assert bool(said) is bool(reason)


@pytest.mark.parametrize("kernels", [False, True])
def test_partitions_of_a_block_come_one_after_the_other(tmp_path: Path, kernels: bool) -> None:
    """In the order in which they appear; each keeps its own."""
    places = [(2, 0), (1, 5), (2, 1), (1, 6), (0, 0)]
    file = RoundFile(written(tmp_path / "r.avro", places, 5), PARTITIONS, {0: 1, 1: 7, 2: 2})
    found, said = read(file, kernels=kernels)
    assert found == [(2, 0), (2, 1), (1, 5), (1, 6), (0, 0)]
    assert said == ""


@pytest.mark.parametrize("kernels", [False, True])
def test_ends_that_nobody_has_told_are_found(tmp_path: Path, kernels: bool) -> None:
    """Up to where the file is whole, in blocks of several partitions, too."""
    places = [(2, 4), (1, 5), (2, 5), (1, 6), (0, 0), (2, 6)]
    path = written(tmp_path / "r.avro", places, 2)
    with ThreadPoolExecutor(1) as pool:
        for cut, ends in ((0, {0: 1, 1: 7, 2: 7}), (1, {1: 7, 2: 6})):
            path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
            file = RoundFile(path, PARTITIONS, None)
            with closing(RoundReader(file, pool, kernels=kernels)) as reader:
                assert reader.ends == ends


@pytest.mark.parametrize(
    ("offsets", "ends"),
    [
        ({}, {}),
        ({"3": [5, 9]}, {3: 9}),
        (None, None),
        ([], None),
        ("all", None),
        ({"x": [0, 1]}, None),
        ({"0": [3]}, None),
        ({"0": [0, None]}, None),
        ({"0": [0, math.inf]}, None),
    ],
)
def test_offsets_that_are_none_are_not_known(
    tmp_path: Path, offsets: Any, ends: dict[int, int] | None
) -> None:
    """As in a recording whose recorder was killed; it is read all the same."""
    told = TopicSummary(file="r.avro", partitions=PARTITIONS, offsets=offsets)
    manifest = Manifest("c", "now", None, None, complete=True, topics={PROBE_ROUND.name: told})
    file = RoundFile.of(tmp_path, manifest)
    assert file is not None
    assert file.ends == ends
    manifest.complete = False
    assert RoundFile.of(tmp_path, manifest) == RoundFile(tmp_path / "r.avro", PARTITIONS, None)
    assert RoundFile.of(tmp_path, Manifest("c", "now", None, None, complete=True)) is None
