"""Fetching: only whole files with the right hash reach the cache, whatever goes wrong."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ops.broker import cache
from ops.broker.errors import CACHE_ENV, CacheError, FetchError, HashMismatchError, OfflineError
from ops.broker.fetch import ATTEMPTS, PARALLEL, SCRATCH_PREFIX, fetch_artifacts
from ops.broker.lock import LockedArtifact
from tests import ROOT
from tests.unit.ops.broker_files import FolderSource, Recorded, artifacts, content_of

DEADLINE_S = 60.0


def names_in(folder: Path) -> set[str]:
    """Return the names in the folder, without the lock's."""
    return {p.name for p in folder.iterdir()} - {".lock"}


def test_fetches_everything_and_returns_it_in_order(tmp_path: Path) -> None:
    """All files are there, with their bytes, in the lock's order, and nothing else is."""
    wanted, progress = artifacts(12), Recorded()
    paths = fetch_artifacts(wanted, tmp_path / "c", source=FolderSource(), progress=progress)
    assert [p.name for p in paths] == [a.filename for a in wanted]
    assert all(p.read_bytes() == content_of(a.name) for p, a in zip(paths, wanted, strict=True))
    assert names_in(tmp_path / "c") == {a.filename for a in wanted}
    assert progress.began == (12, 0)
    assert sorted(progress.files) == [a.name for a in wanted]
    assert progress.n_bytes == sum(len(content_of(a.name)) for a in wanted)


def test_second_fetch_downloads_nothing(tmp_path: Path) -> None:
    """What is there and right is not asked for again."""
    wanted, source = artifacts(3), FolderSource()
    fetch_artifacts(wanted, tmp_path, source=source)
    fetch_artifacts(wanted, tmp_path, source=source)
    assert sorted(source.asked) == [a.name for a in wanted]


def test_eight_at_a_time(tmp_path: Path) -> None:
    """Eight downloads are under way together: each waits until all eight have begun."""
    barrier = threading.Barrier(PARALLEL)

    def wait_for_the_others(_artifact: LockedArtifact) -> None:
        barrier.wait(DEADLINE_S)

    fetch_artifacts(artifacts(PARALLEL), tmp_path, source=FolderSource(before=wait_for_the_others))
    assert not barrier.broken


def test_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    """A changed jar is not kept; the message names it, both hashes, and what to do."""
    wanted = artifacts(3)
    source = FolderSource(contents={"jar01": b"something else"})
    with pytest.raises(HashMismatchError) as caught:
        fetch_artifacts(wanted, tmp_path, source=source)
    message = str(caught.value)
    assert "jar01-1.0.jar" in message
    assert "org.test:jar01:1.0" in message
    assert wanted[1].sha256 in message
    assert hashlib.sha256(b"something else").hexdigest() in message
    assert "Try again" in message
    assert wanted[1].filename not in names_in(tmp_path)
    assert not any(n.startswith(SCRATCH_PREFIX) for n in names_in(tmp_path))


def test_next_fetch_takes_only_what_is_missing(tmp_path: Path) -> None:
    """After a failure, what was verified stays, and only the rest is asked for."""
    wanted = artifacts(20)

    def fail_at_the_last(artifact: LockedArtifact) -> None:
        if artifact.name == "jar19":
            raise FetchError("not to be had")

    with pytest.raises(FetchError, match="not to be had"):
        fetch_artifacts(wanted, tmp_path, source=FolderSource(before=fail_at_the_last))
    kept = names_in(tmp_path)
    assert 0 < len(kept) < len(wanted)
    source, progress = FolderSource(), Recorded()
    fetch_artifacts(wanted, tmp_path, source=source, progress=progress)
    assert progress.began == (20 - len(kept), len(kept))
    assert {f"{name}-1.0.jar" for name in source.asked} == {a.filename for a in wanted} - kept


def test_rotten_file_is_fetched_anew(tmp_path: Path) -> None:
    """A file in the cache that was cut short or changed since is not used."""
    wanted = artifacts(3)
    paths = fetch_artifacts(wanted, tmp_path, source=FolderSource())
    paths[0].write_bytes(paths[0].read_bytes()[:-1])
    source = FolderSource()
    fetch_artifacts(wanted, tmp_path, source=source)
    assert source.asked == ["jar00"]
    assert paths[0].read_bytes() == content_of("jar00")


CHILD = """
import sys
from pathlib import Path
from ops.broker.fetch import fetch_artifacts
from tests.unit.ops.broker_files import FolderSource, artifacts

class Stuck(FolderSource):
    def download(self, artifact, folder, on_size, on_bytes):
        if artifact.name == "jar02":
            (folder / artifact.filename).write_bytes(b"the first half of a jar")
            print("half", flush=True)
            sys.stdin.read()
        return super().download(artifact, folder, on_size, on_bytes)

fetch_artifacts(artifacts(3), Path(sys.argv[1]), source=Stuck())
"""


def test_killed_download_leaves_nothing_that_passes_for_whole(tmp_path: Path) -> None:
    """SIGKILL in the middle of a file: the next fetch takes up there, and clears the rest away."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"half\n"
    deadline = time.monotonic() + DEADLINE_S
    while len(list(tmp_path.glob("*.jar"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    child.communicate()
    assert any(n.startswith(SCRATCH_PREFIX) for n in names_in(tmp_path))
    source = FolderSource()
    fetch_artifacts(artifacts(3), tmp_path, source=source)
    assert source.asked == ["jar02"]
    assert names_in(tmp_path) == {a.filename for a in artifacts(3)}


def test_one_process_fetches_the_other_waits(tmp_path: Path) -> None:
    """While another process fetches, this one says so, waits, and then finds all there."""
    wanted, source, progress = artifacts(2), FolderSource(), Recorded()
    result: list[object] = []
    with cache.locked(tmp_path, lambda: None):
        waiter = threading.Thread(
            target=lambda: result.append(
                fetch_artifacts(wanted, tmp_path, source=source, progress=progress)
            )
        )
        waiter.start()
        assert progress.waited.wait(DEADLINE_S)
        for one in wanted:
            (tmp_path / one.filename).write_bytes(content_of(one.name))
    waiter.join(DEADLINE_S)
    assert len(result) == 1
    assert source.asked == []


def test_source_that_is_away_is_tried_again_then_reported(tmp_path: Path) -> None:
    """A short failure is ridden out; a long one ends with what is missing and what to do."""
    failures = {"jar00": 1, "jar01": ATTEMPTS}
    deadline = time.monotonic() + DEADLINE_S

    def fail(artifact: LockedArtifact) -> None:
        while artifact.name == "jar01" and "jar00-1.0.jar" not in names_in(tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        if failures.get(artifact.name, 0) > 0:
            failures[artifact.name] -= 1
            raise OfflineError("cannot download it from nowhere (refused)")

    with pytest.raises(OfflineError) as caught:
        fetch_artifacts(artifacts(2), tmp_path, source=FolderSource(before=fail))
    message = str(caught.value)
    assert "1 files are still missing" in message
    assert "skeletonhunter broker fetch" in message
    assert "--bootstrap" in message
    assert "jar00-1.0.jar" in names_in(tmp_path)


FULL_DISK_CHILD = """
import resource, signal, sys
from pathlib import Path
from ops.broker.errors import CacheError
from ops.broker.fetch import fetch_artifacts
from tests.unit.ops.broker_files import FolderSource, artifacts

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    fetch_artifacts(artifacts(2), Path(sys.argv[1]), source=FolderSource())
except CacheError as error:
    print(error)
"""


def test_full_disk_is_a_sentence(tmp_path: Path) -> None:
    """Where no more can be written, the message says so, where, and what to do."""
    assert len(content_of("jar00")) > 20_000
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK_CHILD, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert f"no space left for the download in {tmp_path}" in done.stdout
    assert CACHE_ENV in done.stdout
    assert names_in(tmp_path) == set()


@pytest.mark.skipif(
    os.geteuid() != 0 or not sys.platform.startswith("linux"), reason="mounts a tiny tmpfs"
)
def test_full_file_system_is_a_sentence(tmp_path: Path) -> None:
    """ENOSPC of a real file system is the same sentence."""
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip("root, but may not mount")
    try:
        with pytest.raises(CacheError, match="no space left"):
            fetch_artifacts(artifacts(3), tmp_path, source=FolderSource())
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_unwritable_cache_is_a_sentence(tmp_path: Path) -> None:
    """Where the folder cannot be, the message names it and the variable that moves it."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CacheError) as caught:
        fetch_artifacts(artifacts(1), tmp_path / "file" / "cache", source=FolderSource())
    assert "cannot write to the cache folder" in str(caught.value)
    assert CACHE_ENV in str(caught.value)


def test_interrupt_stops_the_downloads(tmp_path: Path) -> None:
    """Ctrl-C ends running downloads at their next block, and leaves no scratch files."""
    begun = threading.Event()

    class Endless(FolderSource):
        def download(
            self, artifact: LockedArtifact, folder: Path, on_size: object, on_bytes: object
        ) -> Path:
            del artifact, folder, on_size
            assert callable(on_bytes)
            begun.set()
            while True:
                on_bytes(1)
                time.sleep(0.005)

    def interrupt() -> None:
        begun.wait(DEADLINE_S)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        fetch_artifacts(artifacts(2), tmp_path, source=Endless())
    assert names_in(tmp_path) == set()


def test_cache_folder_is_the_users_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment variable wins over the platform's cache folder."""
    monkeypatch.delenv(CACHE_ENV, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_dir().name == "skeletonhunter"
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "own"))
    assert cache.cache_dir() == tmp_path / "own"
