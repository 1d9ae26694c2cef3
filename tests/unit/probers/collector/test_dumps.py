"""Files of dumps: read when they are new, and never waited for."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from probers.collectives.flight_recorder import MAX_DUMP_BYTES
from probers.collector.dumps import BYTES_A_MINUTE, DumpFiles
from schemas.units import SECOND_NS

KEY = "job1", 0


def test_a_dump_is_read_once_for_each_version(tmp_path: Path) -> None:
    """A new file of the same size is another version; a touched `.alive` says that it holds."""
    path = tmp_path / "rank_0"
    path.write_bytes(b"one")
    os.utime(path, (1, 100))
    files = DumpFiles()
    first = files.look(KEY, str(path), now_ns=0)
    assert (first.content, first.written_at) == (b"one", 100 * 10**6)
    assert files.look(KEY, str(path), now_ns=0).content is None
    alive = tmp_path / "rank_0.alive"
    alive.write_bytes(b"alive\n")
    os.utime(alive, (1, 105))
    same = files.look(KEY, str(path), now_ns=0)
    assert (same.content, same.written_at) == (None, 105 * 10**6)
    other = tmp_path / "new"
    other.write_bytes(b"two")
    os.utime(other, (1, 110))
    other.replace(path)
    second = files.look(KEY, str(path), now_ns=0)
    assert (second.content, second.written_at) == (b"two", 110 * 10**6)
    files.forget(KEY)
    assert files.look(KEY, str(path), now_ns=0).content == b"two"


def test_what_is_no_file_is_told_at_once(tmp_path: Path) -> None:
    """No pipe is waited for, no link followed, no folder read."""
    files, pipe, link = DumpFiles(), tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/etc/passwd")
    assert files.look(KEY, str(tmp_path / "none"), now_ns=0).missing_reason == "no dump: none"
    assert files.look(KEY, f"{tmp_path}/\x1b[2J", now_ns=0).missing_reason == "no dump: ?[2J"
    for path in (pipe, link, tmp_path):
        found = files.look(KEY, str(path), now_ns=0)
        assert found.content is None
        assert (found.missing_reason or "").startswith("no dump: ")


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """To open a device does something, and a job may name any: a pipe's writer would see it."""
    pipe = tmp_path / "rank_0"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as writers:
        # Waits until somebody opens the pipe to read.
        writer = writers.submit(os.open, pipe, os.O_WRONLY)
        for _ in range(100):
            assert "not a regular file" in (
                DumpFiles().look(KEY, str(pipe), now_ns=0).missing_reason or ""
            )
        opened = writer.done()
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        os.close(writer.result())
        os.close(reader)
    assert not opened


def test_a_dump_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    """A sparse file costs nothing to make."""
    path = tmp_path / "rank_0"
    with path.open("wb") as file:
        file.truncate(2**40)
    assert "larger than" in (DumpFiles().look(KEY, str(path), now_ns=0).missing_reason or "")


def test_dumps_that_come_too_fast_are_left_out(tmp_path: Path) -> None:
    """One of the largest size is read at once; then as much as a minute allows, of each rank."""
    path = tmp_path / "rank_0"
    files = DumpFiles()

    def look(n_bytes: int, now_s: int, key: tuple[str, int] = KEY) -> bool:
        with path.open("wb") as file:
            file.truncate(n_bytes)
        os.utime(path, ns=(0, now_s * 10**9 + n_bytes))
        found = files.look(key, str(path), now_ns=now_s * SECOND_NS)
        assert (found.content is None) == (found.missing_reason is not None)
        return found.content is not None

    assert look(MAX_DUMP_BYTES, 0)
    assert not look(1, 0)
    assert look(1, 0, ("job1", 1))
    assert not look(BYTES_A_MINUTE, 59)
    assert look(BYTES_A_MINUTE, 60)
    assert not look(BYTES_A_MINUTE // 2, 89)
    assert look(BYTES_A_MINUTE // 2, 91)
    assert not look(MAX_DUMP_BYTES, 200)
    assert look(MAX_DUMP_BYTES, 2_000)
