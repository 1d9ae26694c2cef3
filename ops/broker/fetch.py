"""Fetches locked artifacts into the cache, eight at a time, and trusts nothing but their hashes.

A file is downloaded into a scratch folder beside the cache, hashed there, and
moved into place when it is whole: what is in the cache was complete once. It is
hashed again at each use, so a file that has rotted since is fetched anew.
"""

import contextlib
import hashlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ops.broker.cache import cache_dir, locked
from ops.broker.errors import CacheError, FetchError, HashMismatchError, OfflineError
from ops.broker.lock import LockedArtifact, read_lock

PARALLEL: Final = 8
SCRATCH_PREFIX: Final = ".part-"
# A connection that says nothing for this long is dead.
READ_TIMEOUT_S: Final = 30
# A stray reset among 46 downloads is common; a repository that fails three times is away.
ATTEMPTS: Final = 3
# A signal that arrives just before a wait begins does not end it: Ctrl-C is looked for so often.
LOOK_S: Final = 0.2


class Progress(Protocol):
    """Sees a download advance; called from several threads."""

    def begin(self, missing: int, present: int) -> None:
        """Tell how many artifacts are to be fetched, and how many are there already."""
        ...

    def size(self, n_bytes: int) -> None:
        """Tell that `n_bytes` more are known to come."""
        ...

    def received(self, n_bytes: int) -> None:
        """Tell that `n_bytes` more have come."""
        ...

    def fetched(self, artifact: LockedArtifact) -> None:
        """Tell that an artifact is in place."""
        ...

    def waiting(self) -> None:
        """Tell that another process is fetching into the same cache."""
        ...


class NoProgress:
    """A progress that nobody looks at."""

    def begin(self, missing: int, present: int) -> None:
        """Ignore it."""

    def size(self, n_bytes: int) -> None:
        """Ignore it."""

    def received(self, n_bytes: int) -> None:
        """Ignore it."""

    def fetched(self, artifact: LockedArtifact) -> None:
        """Ignore it."""

    def waiting(self) -> None:
        """Ignore it."""


class Source(Protocol):
    """Where artifacts come from."""

    def download(
        self, artifact: LockedArtifact, folder: Path, on_size: Callable[[int], None],
        on_bytes: Callable[[int], None],
    ) -> Path:  # fmt: skip
        """Download into `folder`, which is empty, and return the file.

        Raises
        ------
        OfflineError
            If the source cannot be reached.
        FetchError
            If it does not have the artifact.
        OSError
            If the file cannot be written.
        """
        ...


class _CancelledError(Exception):
    """Another download failed; this one need not go on."""


@dataclass(frozen=True, slots=True)
class _Job:
    source: Source
    folder: Path
    scratch: Path
    progress: Progress
    cancelled: threading.Event


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as lower-case hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(
    lock_name: str, *, source: Source | None = None, progress: Progress | None = None
) -> tuple[Path, ...]:
    """Return the files of a lock file, all present and verified, in its order.

    Raises
    ------
    OfflineError, HashMismatchError, CacheError, FetchError
        See `ops.broker.errors`. What was verified before stays in the cache.
    """
    return fetch_artifacts(
        read_lock(lock_name), cache_dir() / lock_name, source=source, progress=progress
    )


def fetch_artifacts(
    artifacts: Sequence[LockedArtifact],
    folder: Path,
    *,
    source: Source | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """As `fetch`, for these artifacts and this folder."""
    progress = progress or NoProgress()
    if not missing_from(artifacts, folder):
        return _paths(artifacts, folder)
    with locked(folder, progress.waiting):
        missing = missing_from(artifacts, folder)  # another process may just have fetched them
        progress.begin(len(missing), len(artifacts) - len(missing))
        if missing:
            if source is None:
                from ops.broker.maven import MavenSource  # noqa: PLC0415 - jgo is heavy

                source = MavenSource(READ_TIMEOUT_S)
            _fetch_all(missing, folder, source, progress)
    return _paths(artifacts, folder)


def missing_from(artifacts: Sequence[LockedArtifact], folder: Path) -> list[LockedArtifact]:
    """Return the artifacts that are not in the folder with the bytes that the lock names."""
    return [a for a in artifacts if not _is_whole(folder / a.filename, a)]


def _is_whole(path: Path, artifact: LockedArtifact) -> bool:
    try:
        return sha256_of(path) == artifact.sha256
    except OSError:
        return False


def _paths(artifacts: Sequence[LockedArtifact], folder: Path) -> tuple[Path, ...]:
    return tuple(folder / a.filename for a in artifacts)


def _fetch_all(
    missing: Sequence[LockedArtifact], folder: Path, source: Source, progress: Progress
) -> None:
    with _scratch(folder) as scratch:
        job = _Job(source, folder, scratch, progress, threading.Event())
        pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="fetch")
        try:
            futures = [pool.submit(_fetch_one, job, a) for a in missing]
            while not _is_over(futures):
                wait(futures, LOOK_S, return_when=FIRST_EXCEPTION)
        finally:
            # Also on Ctrl-C: running downloads end at their next block.
            job.cancelled.set()
            pool.shutdown(cancel_futures=True)
        _raise_first(futures, folder, len(missing))


def _is_over(futures: list[Future[None]]) -> bool:
    """Return whether all downloads have ended, or one of them has failed."""
    ended = [f for f in futures if f.done()]
    return len(ended) == len(futures) or any(f.exception() is not None for f in ended)


def _raise_first(futures: list[Future[None]], folder: Path, n_missing: int) -> None:
    done = [f for f in futures if f.done() and not f.cancelled()]
    errors = [e for f in done if (e := f.exception()) and not isinstance(e, _CancelledError)]
    if not errors:
        return
    error = errors[0]
    n_fetched = sum(f.exception() is None for f in done)
    if isinstance(error, OfflineError):
        raise OfflineError(
            f"{error}; {n_missing - n_fetched} files are still missing from {folder}. Connect once "
            "and run `skeletonhunter broker fetch`, which goes on where this ended, or use a "
            "broker that runs already: --bootstrap HOST:PORT"
        ) from error
    if isinstance(error, FetchError):
        raise error
    if isinstance(error, OSError):
        raise CacheError.from_os_error(folder, error) from error
    raise error


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    # The lock is ours, so a scratch folder that is here was left by a process that was killed.
    for stale in folder.glob(f"{SCRATCH_PREFIX}*"):
        shutil.rmtree(stale, ignore_errors=True)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=folder))
    except OSError as error:
        raise CacheError.from_os_error(folder, error) from error
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fetch_one(job: _Job, artifact: LockedArtifact) -> None:
    def on_bytes(n_bytes: int) -> None:
        if job.cancelled.is_set():
            raise _CancelledError
        job.progress.received(n_bytes)

    for attempt in range(1, ATTEMPTS + 1):
        if job.cancelled.is_set():
            raise _CancelledError
        target = Path(tempfile.mkdtemp(dir=job.scratch))
        try:
            path = job.source.download(artifact, target, job.progress.size, on_bytes)
        except OfflineError:
            if attempt == ATTEMPTS:
                raise
            continue
        found = sha256_of(path)
        if found != artifact.sha256:
            raise HashMismatchError(_mismatch(artifact, found))
        path.replace(job.folder / artifact.filename)
        job.progress.fetched(artifact)
        return


def _mismatch(artifact: LockedArtifact, found: str) -> str:
    return (
        f"{artifact.filename} was refused, it is not the file that was locked: "
        f"{artifact.coordinate} has SHA-256 {artifact.sha256}, the download has {found}. "
        "It was not kept. Try again; if it stays so, a proxy or mirror on the way changes "
        "downloads: use another network, or a broker that runs already: --bootstrap HOST:PORT"
    )
