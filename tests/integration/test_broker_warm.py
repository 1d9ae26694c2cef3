"""Recording what makes starts quick, with the real Java and the real Kafka."""

import os
from pathlib import Path

import pytest

from ops.broker import cache, warm
from ops.broker.embedded import EmbeddedKafka
from ops.broker.errors import CACHE_ENV
from ops.broker.fetch import fetch
from ops.broker.lock import KAFKA
from ops.broker.training import train

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(warm.cache_file() is None, reason="this Java records nothing"),
]


def test_damaged_cache_is_ignored_and_a_good_one_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage in place of a cache costs only time; a recorded one is taken without complaint."""
    jars = fetch(KAFKA)
    folder = tmp_path / KAFKA
    folder.mkdir()
    for jar in jars:
        (folder / jar.name).symlink_to(jar)
    monkeypatch.setenv(CACHE_ENV, str(tmp_path))
    assert cache.cache_dir() == tmp_path
    path = warm.cache_file()
    assert path is not None
    path.write_bytes(os.urandom(10_000))
    os.utime(path, (0, 0))
    with EmbeddedKafka(announce=False) as kafka:
        assert "AOT cache" in (kafka.data_dir / "kafka.log").read_text()

    assert train()
    assert not train()
    assert path.stat().st_size > 10**7
    assert {p.name for p in folder.iterdir()} == {*(j.name for j in jars), path.name}
    with EmbeddedKafka(announce=False) as kafka:
        log = (kafka.data_dir / "kafka.log").read_text()
        assert "AOT cache" not in log
        assert "Kafka Server started" in log
