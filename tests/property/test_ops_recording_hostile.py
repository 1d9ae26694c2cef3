"""Files that others made: whatever is in them, a command ends soon, with a sentence and its code.

`make test` tries some hundred mutated files; `make fuzz` ten thousand, and so does
`make bench-resilience`.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import fastavro
import pytest

from ops.bench.resilience.hostile_files import HARMFUL
from ops.bench.resilience.parsers import (
    Attempts,
    command,
    mutated_csvs,
    mutated_recordings,
    mutated_task_files,
    small_recording,
    soon,
)
from ops.recording.source import Source
from schemas.process.settings import ConfigError, read_table

FILES = int(os.environ.get("SKELETONHUNTER_FUZZ_FILES", "300"))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small recording."""
    return small_recording(tmp_path_factory.mktemp("parsers") / "r")


def assert_ended(found: Attempts, tried: int) -> None:
    """Every parser came to its end, with a result or an error of its own."""
    assert found.tried == tried
    assert found.hangs == []
    assert found.tracebacks == []


def test_mutated_recordings_and_manifests(recording: Path, tmp_path: Path) -> None:
    """Each is read as far as it is whole, or refused."""
    assert_ended(mutated_recordings(recording, FILES, tmp_path), FILES)


def test_mutated_task_files_and_settings(tmp_path: Path) -> None:
    """The error names what is wrong."""
    found = mutated_task_files(3 * FILES, tmp_path)
    assert_ended(found, 3 * FILES)
    # Those in JSON always are.
    assert FILES < found.refused < 3 * FILES


def test_mutated_csvs(tmp_path: Path) -> None:
    """Bad rows are counted, a bad header refused."""
    assert_ended(mutated_csvs(FILES // 10, tmp_path), FILES // 10)


def test_what_hangs_or_breaks_is_noted() -> None:
    """Whatever a parser catches itself."""

    def hangs() -> bool:
        with soon(limit_s=1), suppress(Exception):
            while True:
                pass
        return False

    def breaks() -> bool:
        raise KeyError("x")

    found = Attempts()
    found.parse("first", hangs)
    found.parse("second", breaks)
    assert found.hangs == ["first"]
    assert len(found.tracebacks) == 1
    assert "KeyError" in found.tracebacks[0]


@pytest.mark.parametrize("change", HARMFUL)
def test_hostile_recordings(
    recording: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Named with the file and what is wrong; the exit code says so."""
    folder = tmp_path / "r"
    shutil.copytree(recording, folder)
    change(folder)
    with soon():
        code, output = command("diagnose", str(folder))
    assert code == 4
    assert "damaged at byte 0: " in output
    assert len(output) < 3_000


@pytest.mark.parametrize("option", ["diagnose", "replay", "import-csv", "task submit"])
def test_a_pipe_is_no_file(tmp_path: Path, option: str) -> None:
    """Nobody writes to it: it is refused, not waited for."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    more = {"replay": ["--prefix", "x."], "import-csv": ["--out", str(tmp_path / "o")]}
    broker = ["--bootstrap", "127.0.0.1:1"] if option in {"replay", "task submit"} else []
    with soon():
        code, output = command(*option.split(), str(path), *more.get(option, []), *broker)
    assert code == 2
    assert str(path) in output
    with soon(), pytest.raises(ConfigError, match="Not a regular file"):
        read_table(path, "kafka")


def test_a_good_recording_stays_good(recording: Path) -> None:
    """The same check passes what our own recorder writes."""
    with Source(recording) as source:
        assert source.damages == []
        assert source.summaries["probe.round.v1"].records > 10
    with (recording / "probe.round.v1.avro").open("rb") as file:
        assert next(iter(fastavro.reader(file)))
