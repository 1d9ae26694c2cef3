"""Container files: what is whole is read, what is broken is named."""

import errno
import io
import subprocess
import sys
import zlib
from pathlib import Path

import fastavro
import pytest

from ops.recording.container import ContainerReader, ContainerWriter, DamageError
from ops.recording.shape import shape_of
from schemas.codec import Codec
from schemas.topics import PROBE_ROUND, TOPICS
from tests.unit.ops.recording_samples import round_entry

SHAPE = shape_of(PROBE_ROUND)


def write(path: Path, records: int = 9, per_block: int = 3, codec: str = "deflate") -> None:
    """Write a recording of rounds, some to a block."""
    writer = ContainerWriter(path, SHAPE.written, codec)
    for i in range(records):
        writer.append(SHAPE.datum(round_entry(offset=i), Codec()))
        if i % per_block == per_block - 1:
            writer.cut()
    writer.close()


def offsets(path: Path) -> tuple[list[int], DamageError | None]:
    """Return the offsets of all records that can be read, and what was wrong."""
    found: list[int] = []
    try:
        reader = ContainerReader(path, SHAPE.plain)
        for span in reader.spans():
            found += [r["offset"] for r in reader.records(span, reader.content(span))]
    except DamageError as damage:
        return found + [r["offset"] for r in damage.whole], damage
    reader.close()
    return found, None


@pytest.mark.parametrize("codec", ["deflate", "null"])
def test_what_is_written_is_read(tmp_path: Path, codec: str) -> None:
    """Both codecs give back all records in order, in the blocks that were cut."""
    path = tmp_path / "a.avro"
    write(path, codec=codec)
    assert offsets(path) == (list(range(9)), None)
    reader = ContainerReader(path, SHAPE.plain)
    spans = list(reader.spans())
    assert [s.count for s in spans] == [3, 3, 3]
    assert [r["offset"] for r in reader.records(spans[1], reader.content(spans[1]))] == [3, 4, 5]


def test_plain_fastavro_reads_it(tmp_path: Path) -> None:
    """A reader that knows nothing of ours sees dates, strings and nested results."""
    path = tmp_path / "a.avro"
    write(path)
    with path.open("rb") as file:
        records = [r for r in fastavro.reader(file) if isinstance(r, dict)]
    assert [r["offset"] for r in records] == list(range(9))
    assert records[0]["timestamp_ms"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert records[0]["value"]["results"][1]["status"] == "TIMEOUT"
    assert records[0]["headers"] == [{"name": "producer_version", "value": b"0.1.0"}]


def test_polars_reads_every_topic(tmp_path: Path) -> None:
    """Polars reads a recording of each topic: no map, no wide union, no nested enum."""
    import polars

    for topic in TOPICS:
        shape = shape_of(topic)
        path = tmp_path / f"{topic.name}.avro"
        writer = ContainerWriter(path, shape.written)
        for offset, value in enumerate((_sample(shape.plain["fields"][4]["type"][1]), None)):
            writer.append(_tombstone(offset, value))
        writer.close()
        frame = polars.read_avro(path)
        assert frame["offset"].to_list() == [0, 1], topic.name
        assert frame["value"].struct.field("cluster").to_list() == ["text", None], topic.name


def _tombstone(offset: int, value: object = None) -> dict[str, object]:
    return {
        "partition": 0,
        "offset": offset,
        "timestamp_ms": None,
        "key": "k",
        "value": value,
        "headers": [],
        "key_bytes": None,
        "value_bytes": None,
        "decode_error": None,
    }


def _sample(schema: object) -> object:
    """Return a value of the (parsed, plain) schema, nothing in it null or empty."""
    if isinstance(schema, list):
        return _sample(schema[1])
    if isinstance(schema, str):
        return {"string": "text", "int": 1, "long": 2, "double": 0.5, "boolean": True}[schema]
    assert isinstance(schema, dict)
    if schema["type"] == "record":
        return {f["name"]: _sample(f["type"]) for f in schema["fields"]}
    if schema["type"] == "array":
        return [_sample(schema["items"])]
    return _sample(schema["type"])


def test_truncated_anywhere_reads_up_to_there(tmp_path: Path) -> None:
    """A file cut at any byte gives whole blocks and, unless cut between two, its damage."""
    path = tmp_path / "a.avro"
    write(path, records=4, per_block=2)
    whole = path.read_bytes()
    reader = ContainerReader(path, SHAPE.plain)
    starts = [span.position for span in reader.spans()]
    reader.close()
    cut_path = tmp_path / "cut.avro"
    for length in range(0, len(whole) + 1, 7):
        cut_path.write_bytes(whole[:length])
        found, damage = offsets(cut_path)
        if length < starts[0]:
            assert found == []
            assert damage is not None
            assert damage.position == 0
        else:
            expected = 0 if length < starts[1] else 2 if length < len(whole) else 4
            assert found == list(range(expected))
            assert (damage is None) == (length in {starts[0], starts[1], len(whole)})


def test_flipped_bytes_are_found_and_named(tmp_path: Path) -> None:
    """Damage inside a file names file and position, and ends the reading there."""
    path = tmp_path / "a.avro"
    write(path, codec="null")
    reader = ContainerReader(path, SHAPE.plain)
    second = list(reader.spans())[1].position
    reader.close()
    content = bytearray(path.read_bytes())
    content[second + 3 : second + 40] = b"\xff" * 37
    path.write_bytes(bytes(content))
    found, damage = offsets(path)
    assert found[:3] == [0, 1, 2]
    assert len(found) < 9
    assert damage is not None
    assert damage.position == second
    assert str(damage).startswith(f"a.avro: damaged at byte {second:,}: ")


def test_absurd_lengths_are_refused_without_allocating(tmp_path: Path) -> None:
    """A head that claims terabytes is damage, not an attempt to read them."""
    path = tmp_path / "a.avro"
    write(path, records=0)
    for head in (b"\x02\xfe\xff\xff\xff\xff\xff\x3f", b"\x01\x02", b"\xff" * 20):
        with path.open("ab") as file:
            size = file.tell()
            file.write(head)
        found, damage = offsets(path)
        assert found == []
        assert damage is not None
        assert damage.position == size
        with path.open("r+b") as file:
            file.truncate(size)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    """A block that inflates beyond any sane size is damage."""
    path = tmp_path / "a.avro"
    write(path, records=0)
    header = path.read_bytes()
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    bomb = deflate.compress(bytes(80 * 2**20)) + deflate.flush()
    block = io.BytesIO()
    fastavro.schemaless_writer(block, "long", 1)
    fastavro.schemaless_writer(block, "bytes", bomb)
    path.write_bytes(header + block.getvalue() + header[-16:])
    found, damage = offsets(path)
    assert found == []
    assert damage is not None
    assert "too large" in damage.reason


@pytest.mark.parametrize("content", [b"", b"Obj", b"PK\x03\x04 not avro", b"Obj\x01\x02\x16avro"])
def test_what_is_no_container_is_said(tmp_path: Path, content: bytes) -> None:
    """Other files are refused by a sentence, not by a traceback."""
    path = tmp_path / "a.avro"
    path.write_bytes(content)
    with pytest.raises(DamageError, match=r"a\.avro: damaged at byte 0"):
        ContainerReader(path, SHAPE.plain)


def test_schema_of_another_topic_is_refused(tmp_path: Path) -> None:
    """A file of other records cannot pass for rounds."""
    path = tmp_path / "a.avro"
    other = shape_of(TOPICS[-1])
    writer = ContainerWriter(path, other.written)
    writer.append(_tombstone(0))
    writer.close()
    found, damage = offsets(path)
    assert found == []
    assert damage is not None


def test_full_disk_leaves_whole_blocks(tmp_path: Path) -> None:
    """When the disk takes no more, the write fails and the file ends with its last whole block."""
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.unit.ops.recording.test_container import SHAPE, ContainerWriter, round_entry\n"
        "from schemas.codec import Codec\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "writer = ContainerWriter(Path(sys.argv[1]), SHAPE.written, 'null')\n"
        "try:\n"
        "    for i in range(1000):\n"
        "        writer.append(SHAPE.datum(round_entry(offset=i), Codec())); writer.cut()\n"
        "except OSError as error:\n"
        "    print(i, error.errno)\n"
    )
    path = tmp_path / "a.avro"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    written, code = (int(n) for n in done.stdout.split())
    assert code == errno.EFBIG
    assert written > 0
    assert offsets(path) == (list(range(written)), None)
