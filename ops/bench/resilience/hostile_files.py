"""Hostile files: recordings, manifests, task files and CSVs, mutated or made to do harm.

Shared by the bench and by the tests of the parsers.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from ops.recording.manifest import FILE

ODD: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 1, 2**31, 2**63, 2**70, 1e308, "", "\0", "../x", [], {}, [[]], "x" * 9_999,
)  # fmt: skip
TASK: Final = """\
task_id = "job1"
gpus_per_host = 8

[[containers]]
container_id = "job1-w0"
host_id = "gpu-node-17"
agent_id = "agent-17"
rails = [0, 2, 4, 6]
"""
CSV: Final = "src_node_id,dst_node_id,ping_time,latency\n" + "".join(
    f"c{i % 4},c{i % 3},17000000{i:02}000000000,{i}.5\n" for i in range(40)
)


def mutated(content: bytes, random: Random) -> bytes:
    """Change some bytes, cut, repeat or insert."""
    data = bytearray(content)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0 if at < len(data):
                data[at] = random.randrange(256)
            case 1:
                del data[at : at + random.choice((1, 7, 4_000))]
            case 2:
                data[at:at] = data[at : at + random.choice((1, 50, 3_000))]
            case 3:
                data[at:at] = random.randbytes(random.choice((1, 9, 200)))
            case _ if at < len(data):
                data[at] ^= 1 << random.randrange(8)
    return bytes(data)


def mutated_json(content: str, random: Random) -> str:
    """Change one value of a JSON document, at any depth."""
    document = json.loads(content)
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            break
        key = random.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and random.random() < 0.8:
            node = node[key]
            continue
        node[key] = random.choice(ODD)
        break
    return json.dumps(document)


def with_schema(folder: Path, schema: object, blocks: bytes = b"") -> None:
    """Put a container file with a schema of its own in place of a topic's."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    head = b"Obj\x01\x02" + varint(len("avro.schema")) + b"avro.schema"
    head += varint(len(text)) + text.encode() + b"\0" + bytes(16)
    (folder / "probe.round.v1.avro").write_bytes(head + blocks)


def varint(number: int) -> bytes:
    """Encode a number as Avro does."""
    raw, out = number << 1, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def record(*fields: object) -> dict[str, object]:
    """Return a schema with fields of these types."""
    named = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(fields)]
    return {"type": "record", "name": "R", "fields": named}


def nulls(folder: Path) -> None:
    """Claim an array of 2^40 nulls, in ten bytes."""
    payload = varint(2**40) + b"\0"
    block = varint(1) + varint(len(payload)) + payload + bytes(16)
    with_schema(folder, record({"type": "array", "items": "null"}), block)


def no_bytes(folder: Path) -> None:
    """Claim many records that have no bytes."""
    with_schema(folder, record("null"), varint(60_000_000) + b"\0" + bytes(16))


def nested(folder: Path) -> None:
    """Nest a schema 5,000 deep."""
    with_schema(folder, '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000)


def very_nested(folder: Path) -> None:
    """Nest one deeper than a parser of JSON goes."""
    with_schema(folder, "[" * 200_000)


def recursive(folder: Path) -> None:
    """Let a record contain itself."""
    with_schema(folder, record(["null", "R"]))


def deep_manifest(folder: Path) -> None:
    """Nest the manifest deep."""
    (folder / FILE).write_text('{"a":' * 100_000)


def nul_name(folder: Path) -> None:
    """Put a NUL into a file name."""
    manifest = json.loads((folder / FILE).read_text())
    manifest["topics"]["probe.round.v1"]["file"] = "a\0b"
    (folder / FILE).write_text(json.dumps(manifest))


def pipe(folder: Path) -> None:
    """Put a named pipe that nobody writes to in a file's place."""
    (folder / "probe.round.v1.avro").unlink()
    os.mkfifo(folder / "probe.round.v1.avro")


def manifest_pipe(folder: Path) -> None:
    """Put one in place of the manifest."""
    (folder / FILE).unlink()
    os.mkfifo(folder / FILE)


HARMFUL: Final[tuple[Callable[[Path], None], ...]] = (
    nulls, no_bytes, nested, very_nested, recursive, deep_manifest, nul_name, pipe, manifest_pipe,
)  # fmt: skip
