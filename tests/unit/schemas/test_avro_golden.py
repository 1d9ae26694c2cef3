"""Golden bytes: what every schema version wrote is written and read for ever."""

from itertools import product

import pytest

from schemas import avro
from schemas.codec import Codec, from_datum, to_datum
from schemas.topics import BY_NAME, TOPICS
from tests.unit.schemas.golden import STYLES, Golden, all_goldens, frame, golden_path

GOLDENS = all_goldens()
CURRENT = [g for g in GOLDENS if g.schema == avro.current(g.topic)]


def name_of(golden: Golden) -> str:
    """Return the example's name in reports."""
    return f"{golden.topic}-{golden.version}-{golden.style}"


def test_every_version_has_its_golden_bytes() -> None:
    """No version without examples, and no example without a version."""
    wanted = {
        golden_path(topic.name, version.version, style)
        for topic in TOPICS
        for version in avro.versions(topic.name)
        for style in STYLES
    }
    assert {golden_path(g.topic, g.version, g.style) for g in GOLDENS} == wanted, (
        "run `python -m tests.unit.schemas.golden` and commit what it wrote"
    )


@pytest.mark.parametrize("golden", GOLDENS, ids=name_of)
def test_bytes_are_written_as_ever(golden: Golden) -> None:
    """The same datum becomes the same bytes; an edited version would change its fingerprint."""
    assert frame(golden.schema, golden.datum).hex() == golden.framed.hex()


@pytest.mark.parametrize("golden", CURRENT, ids=name_of)
def test_codec_writes_and_reads_the_golden_bytes(golden: Golden) -> None:
    """The codec turns the bytes into the typed record, and the record into the bytes."""
    topic, codec = BY_NAME[golden.topic], Codec(bounded=False)
    record = codec.decode(topic, golden.framed)
    assert isinstance(record, topic.record)
    assert to_datum(record) == golden.datum
    assert codec.encode(topic, record) == golden.framed


@pytest.mark.parametrize("golden", GOLDENS, ids=name_of)
def test_every_version_reads_every_version(golden: Golden) -> None:
    """Old readers read new bytes and new readers old bytes; today's records take them all."""
    payload = golden.framed[10:]  # behind the single-object header
    for writer, reader in product((golden.schema,), avro.versions(golden.topic)):
        datum = avro.read_datum(writer, reader, payload)
        assert set(datum) == {f["name"] for f in reader.parsed["fields"]}
    datum = avro.read_datum(golden.schema, avro.current(golden.topic), payload)
    assert from_datum(BY_NAME[golden.topic].record, datum) is not None
