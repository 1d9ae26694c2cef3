"""Golden bytes of every schema version: what they are, where they lie, how new ones are made.

`python -m tests.unit.schemas.golden` writes the files that are missing, and never
touches one that is there: what a version once wrote must be read for ever. Run
it after adding a version, and commit what it wrote.
"""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schemas import avro
from schemas.avro import SchemaVersion
from schemas.framing import SingleObjectFramer
from schemas.topics import TOPICS
from tests import DATA

FOLDER: Final = DATA / "golden"
# 2023-11-14T22:13:20Z in microseconds: any fixed time serves.
SOME_TIME_US: Final = 1_700_000_000_000_000
LIMITS: Final = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
# sparse: nulls and empty arrays; full: everything present; extreme: the ends of every range.
STYLES: Final = ("sparse", "full", "extreme")


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One example: the datum as plain JSON, and the bytes that it became."""

    topic: str
    version: int
    style: str
    datum: dict[str, Any]
    framed: bytes

    @property
    def schema(self) -> SchemaVersion:
        """The schema that wrote it."""
        return next(v for v in avro.versions(self.topic) if v.version == self.version)


def frame(schema: SchemaVersion, datum: dict[str, Any]) -> bytes:
    """Return the framed value of a datum written by this version."""
    return SingleObjectFramer().header(schema) + avro.write_datum(schema, datum)


def example(kind: Any, style: str, path: str) -> Any:
    """Return a value of an Avro type; the same path and style, the same value."""
    if isinstance(kind, list):
        return None if style == "sparse" else example(kind[1], style, path)
    name = kind["type"] if isinstance(kind, dict) else kind
    if name == "record":
        return {f["name"]: example(f["type"], style, f"{path}.{f['name']}") for f in kind["fields"]}
    if name == "array":
        n_items = {"sparse": 0, "full": 2, "extreme": 3}[style]
        return [example(kind["items"], style, f"{path}[{i}]") for i in range(n_items)]
    if name == "enum":
        return kind["symbols"][{"sparse": 0, "full": 1, "extreme": -1}[style]]
    return _primitive(name, style, path)


def _primitive(name: str, style: str, path: str) -> Any:
    seed = zlib.crc32(f"{path}/{style}".encode())
    leaf = path.rpartition(".")[2]
    if name == "boolean":
        return style == "full"
    if name == "double":
        return {"sparse": 0.0, "full": seed / 2**32, "extreme": -1.7976931348623157e308}[style]
    if name == "string":
        return {"sparse": "", "full": f"{leaf}-{seed % 100}", "extreme": f"{leaf} é 網 \U0001f50d"}[
            style
        ]
    if style == "extreme":
        return LIMITS[name][seed % 2]
    if leaf.endswith("_at"):
        return SOME_TIME_US + seed
    return seed % 1000


def golden_path(topic: str, version: int, style: str) -> Path:
    """Return where an example lies."""
    return FOLDER / topic / f"{version}.{style}.json"


def load(path: Path) -> Golden:
    """Read an example."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Golden(
        topic=path.parent.name,
        version=int(path.name.split(".")[0]),
        style=path.name.split(".")[1],
        datum=content["datum"],
        framed=bytes.fromhex(content["framed"]),
    )


def all_goldens() -> list[Golden]:
    """Return every example that is kept."""
    return [load(p) for p in sorted(FOLDER.glob("*/*.json"))]


def main() -> None:
    """Write the files that are missing."""
    for topic in TOPICS:
        for schema in avro.versions(topic.name):
            for style in STYLES:
                path = golden_path(topic.name, schema.version, style)
                if path.exists():
                    continue
                datum = example(schema.parsed, style, topic.name)
                content = {"datum": datum, "framed": frame(schema, datum).hex()}
                path.parent.mkdir(parents=True, exist_ok=True)
                text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
                path.write_text(text, encoding="utf-8")
                print(path.relative_to(FOLDER))


if __name__ == "__main__":
    main()
