"""What a recording holds: `manifest.json` beside its files."""

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from ops.recording.container import DamageError
from schemas.process.files import parse_json, read_file
from schemas.topics import BY_NAME

FILE: Final = "manifest.json"
FORMAT: Final = "skeletonhunter.recording"
# Grows when an older program could not read what a newer one writes.
FORMAT_VERSION: Final = 1
MAX_PARTITIONS: Final = 10_000
MAX_REASON_CHARS: Final = 300
# What file systems take (NAME_MAX).
MAX_FILE_NAME_BYTES: Final = 255


@dataclass(slots=True)
class TopicSummary:
    """What was kept of one topic.

    `partitions` is the topic's partition count; `offsets` gives for each partition
    that had records the first offset kept and the one after the last. `state`
    counts the records that were taken from before `--from` because a compacted
    topic means its latest state, `expired` those that the broker deleted before
    they could be read.
    """

    file: str
    partitions: int
    records: int = 0
    tombstones: int = 0
    undecodable: int = 0
    state: int = 0
    expired: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    offsets: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Manifest:
    """The head of a recording.

    `from_ms` and `to_ms` are the bounds asked for, milliseconds since the epoch;
    None: the beginning, or the end at that time. `complete` is False while the
    recorder runs, and stays so when it was killed.
    """

    cluster: str
    recorded_at: str
    from_ms: int | None
    to_ms: int | None
    complete: bool = False
    codec: str = "deflate"
    producer_version: str | None = None
    topics: dict[str, TopicSummary] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Number of records of all topics."""
        return sum(t.records for t in self.topics.values())


def save(folder: Path, manifest: Manifest) -> None:
    """Write the manifest; whoever reads it meanwhile sees the old one or the new one."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(manifest)}
    new = folder / (FILE + ".new")
    new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(new, folder / FILE)


def load(folder: Path) -> Manifest:
    """Read the manifest of a recording.

    Raises
    ------
    FileNotFoundError
        If the folder holds none.
    DamageError
        If it is not one that this program can read.
    """
    path = folder / FILE
    try:
        content = parse_json(read_file(path))
    except NotADirectoryError as error:
        raise FileNotFoundError(*error.args) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamageError(path, 0, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DamageError(path, 0, f"not JSON: {error}") from error
    try:
        return _manifest(content)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DamageError(path, 0, f"not a manifest: {str(error)[:MAX_REASON_CHARS]}") from error


def _manifest(content: Any) -> Manifest:
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r} instead of {FORMAT!r}")
    if content["format_version"] > FORMAT_VERSION:
        raise ValueError(
            f"format version {content['format_version']}; this program reads up to {FORMAT_VERSION}"
        )
    topics = {
        name: TopicSummary(**_known(t, TopicSummary)) for name, t in content["topics"].items()
    }
    for name, summary in topics.items():
        if name not in BY_NAME:
            raise ValueError(f"unknown topic {name!r}")
        if Path(summary.file).name != summary.file:
            raise ValueError(f"file {summary.file!r} is not in the recording's folder")
        length = len(os.fsencode(summary.file))
        if length > MAX_FILE_NAME_BYTES:
            raise ValueError(f"a file name of {length} bytes; at most {MAX_FILE_NAME_BYTES}")
        if type(summary.partitions) is not int or not 1 <= summary.partitions <= MAX_PARTITIONS:
            raise ValueError(f"{summary.partitions} partitions of {name}")
    manifest = Manifest(**{**_known(content, Manifest), "topics": topics})
    for name in ("cluster", "recorded_at", "codec"):
        if not isinstance(getattr(manifest, name), str):
            raise ValueError(f"{name} is no text")
    for name in ("from_ms", "to_ms"):
        if type(getattr(manifest, name)) not in (int, type(None)):
            raise ValueError(f"{name} is no whole number")
    return manifest


def _known(content: dict[str, Any], record: type) -> dict[str, Any]:
    """Drop what a later program added."""
    names = {f.name for f in fields(record)}
    return {k: v for k, v in content.items() if k in names}
