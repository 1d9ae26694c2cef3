"""Artifacts and sources of them for tests of the fetcher."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ops.broker.fetch import NoProgress
from ops.broker.lock import LockedArtifact


def content_of(name: str) -> bytes:
    """Return the bytes of a made-up jar; long enough for several blocks."""
    return f"content of {name}\n".encode() * 2_000


def artifact(name: str) -> LockedArtifact:
    """Return a locked artifact whose hash is right for `content_of`."""
    digest = hashlib.sha256(content_of(name)).hexdigest()
    return LockedArtifact(group="org.test", name=name, version="1.0", sha256=digest)


def artifacts(n: int) -> tuple[LockedArtifact, ...]:
    """Return several artifacts."""
    return tuple(artifact(f"jar{i:02d}") for i in range(n))


@dataclass
class FolderSource:
    """A source that writes what it is told to; `contents` replaces the right bytes."""

    contents: Mapping[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    before: Callable[[LockedArtifact], None] = lambda _artifact: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def download(
        self, artifact: LockedArtifact, folder: Path, on_size: Callable[[int], None],
        on_bytes: Callable[[int], None],
    ) -> Path:  # fmt: skip
        """Write the artifact into the folder, block by block."""
        with self._lock:
            self.asked.append(artifact.name)
        self.before(artifact)
        content = self.contents.get(artifact.name, content_of(artifact.name))
        on_size(len(content))
        path = folder / artifact.filename
        with path.open("wb") as file:
            for start in range(0, len(content), 8192):
                block = content[start : start + 8192]
                file.write(block)
                on_bytes(len(block))
        return path


class Recorded(NoProgress):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.began: tuple[int, int] | None = None
        self.n_bytes = 0
        self.files: list[str] = []
        self.waited = threading.Event()
        self._lock = threading.Lock()

    def begin(self, missing: int, present: int) -> None:
        """Remember it."""
        self.began = (missing, present)

    def received(self, n_bytes: int) -> None:
        """Add it up."""
        with self._lock:
            self.n_bytes += n_bytes

    def fetched(self, artifact: LockedArtifact) -> None:
        """Remember it."""
        with self._lock:
            self.files.append(artifact.name)

    def waiting(self) -> None:
        """Remember it."""
        self.waited.set()
