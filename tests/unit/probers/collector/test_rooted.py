"""Paths that a job names stay within its root folder."""

import contextlib
import errno
import os
from pathlib import Path

import pytest

from probers.collector import rooted
from probers.collector.rooted import open_place


def content(root: Path, path: str) -> bytes:
    """Return what is at a place."""
    place = open_place(str(root), path)
    try:
        with open(f"/proc/self/fd/{place}", "rb") as file:
            return file.read()
    finally:
        os.close(place)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a root with a file, and links to it and out of it."""
    root = tmp_path / "root"
    (root / "shm" / "fr").mkdir(parents=True)
    (root / "shm" / "fr" / "rank_0").write_bytes(b"dump")
    (root / "run").symlink_to("/shm")
    (root / "out").symlink_to("../../../../../etc")
    (root / "shm" / "last").symlink_to("fr/rank_0")
    return root


def without_openat2(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the kernel refuse the call."""

    def refuse(_folder: int, _path: str) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(rooted, "_openat2", refuse)


def test_links_are_those_of_the_root(root: Path) -> None:
    """An absolute one begins in the root; one that climbs stays in it."""
    assert content(root, "/shm/fr/rank_0") == b"dump"
    assert content(root, "/run/fr/rank_0") == b"dump"
    assert content(root, "/../../shm/fr/rank_0") == b"dump"
    with pytest.raises(FileNotFoundError):
        content(root, "/out/passwd")
    # Not of the kernel's own links into other roots, either.
    (root / "magic").symlink_to("/proc/self/root")
    with pytest.raises(OSError, match="No such file"):
        content(root, "/magic/etc/passwd")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_without_the_call_links_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As well as names that climb."""
    without_openat2(monkeypatch, number)
    assert content(root, "/shm/./fr//rank_0") == b"dump"
    for path in ("/run/fr/rank_0", "/out/passwd", "/shm/../shm/fr/rank_0", "/none"):
        with pytest.raises(OSError, match=r"Not a directory|No such file|Too many"):
            content(root, path)


@pytest.mark.parametrize("path", ["/shm/last", "shm/last"])
@pytest.mark.parametrize("fall_back", [False, True])
def test_a_link_at_the_end_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch, path: str, fall_back: bool
) -> None:
    """What is opened is the link."""
    if fall_back:
        without_openat2(monkeypatch, errno.ENOSYS)
    place = open_place(str(root), path)
    try:
        assert os.readlink("", dir_fd=place) == "fr/rank_0"
    finally:
        os.close(place)


def test_a_zero_byte_is_no_path(root: Path) -> None:
    """It would end the name for the kernel."""
    with pytest.raises(ValueError, match="zero byte"):
        open_place(str(root), "/shm\0/x")


def test_nothing_stays_open(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of what was opened nor of what failed."""

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    def tries() -> None:
        for path in ("/shm/fr/rank_0", "/none/x", "/../x"):
            with contextlib.suppress(OSError):
                os.close(open_place(str(root), path))

    before = count()
    tries()
    without_openat2(monkeypatch, errno.ENOSYS)
    tries()
    assert count() == before
