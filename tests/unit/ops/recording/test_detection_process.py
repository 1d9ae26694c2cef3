"""Detection in a process of its own: what it says, and how it ends."""

import os
import shutil
import signal
from collections.abc import Sequence
from multiprocessing import active_children
from pathlib import Path

import pytest

from localizer.config import CoreConfig
from ops.recording import detection_process
from ops.recording.detecting import Detected
from ops.recording.detection_process import DetectionTask, LostProcessError, detected_rounds
from ops.recording.diagnosis import BESIDE_ROUNDS, diagnose
from ops.recording.export import export
from ops.recording.manifest import Manifest, load, save
from ops.recording.order import RoundSlot
from ops.recording.rounds import RoundFile
from ops.recording.source import Source
from schemas.topics import PROBE_ROUND
from streams.config import DetectionConfig
from tests.unit.ops.recording.test_diagnosis import incident


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> DetectionTask:
    """Return the detection of the recording of a link that is cut for a while."""
    folder = tmp_path_factory.mktemp("arena") / "incident"
    export(incident(), folder)
    file = RoundFile.of(folder, load(folder))
    assert file is not None
    return DetectionTask(file, "lab-7", DetectionConfig())


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small recording be detected by another process, and that not be far ahead."""
    monkeypatch.setattr(detection_process, "APART_FROM_BYTES", 0)
    monkeypatch.setattr(detection_process, "LEAD_BYTES", 4_096)


def told(task: DetectionTask, processes: int) -> tuple[Sequence[RoundSlot[Detected]], str]:
    """Return the slots, and what is wrong with the file."""
    with detected_rounds(task, processes) as rounds:
        slots = list(rounds)
    assert active_children() == []
    return slots, "" if rounds.damage is None else str(rounds.damage)


@pytest.mark.usefixtures("apart")
def test_another_process_says_the_same(task: DetectionTask, tmp_path: Path) -> None:
    """Slot by slot, and last what is wrong with the file."""
    assert told(task, 2) == told(task, 1)
    cut = tmp_path / "cut.avro"
    cut.write_bytes(task.file.path.read_bytes()[:-1_000])
    file = RoundFile(cut, task.file.partitions, task.file.ends)
    slots, damage = told(task._replace(file=file), 2)
    assert (slots, damage) == told(task._replace(file=file), 1)
    assert slots
    assert damage.startswith("cut.avro: damaged at byte")


@pytest.mark.usefixtures("apart")
def test_the_terminal_does_not_end_it(
    task: DetectionTask, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not while it begins either, nor where a pipe may not be larger; its parent decides."""

    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr("fcntl.fcntl", refuse)
    with detected_rounds(task, 2) as rounds:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(child(), number)
        assert len(list(rounds)) > 40
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("apart")
def test_who_stops_does_not_wait_for_it(task: DetectionTask) -> None:
    """It has hardly begun when what it has told is all, and is ended."""
    with detected_rounds(task, 2, lambda: True) as rounds:
        assert list(rounds) == []
        assert child()
    assert active_children() == []


@pytest.mark.usefixtures("apart")
def test_a_process_that_ends_too_early_is_told(
    task: DetectionTask, capfd: pytest.CaptureFixture[str]
) -> None:
    """The verdicts of half a recording are none."""
    with detected_rounds(task, 2) as rounds:
        os.kill(child(), signal.SIGKILL)
        with pytest.raises(LostProcessError, match=r"killed by SIGKILL; was it out of memory\?"):
            list(rounds)
    assert capfd.readouterr().err == ""
    with (
        detected_rounds(task._replace(config=None), 2) as rounds,  # type: ignore[arg-type]
        pytest.raises(LostProcessError, match="ended with an error, which stands above"),
    ):
        list(rounds)
    assert "AttributeError" in capfd.readouterr().err


@pytest.mark.usefixtures("apart")
def test_a_diagnosis_whose_rounds_were_not_waited_for_is_stopped(
    task: DetectionTask, tmp_path: Path
) -> None:
    """Also where there are no other records at which it could be seen."""
    topics = load(task.file.path.parent).topics
    rounds = {PROBE_ROUND.name: topics[PROBE_ROUND.name]}
    save(tmp_path, Manifest("lab-7", "now", None, None, complete=True, topics=rounds))
    shutil.copy(task.file.path, tmp_path)
    with Source(tmp_path, BESIDE_ROUNDS) as source:
        found = diagnose(source, task.config, CoreConfig(cluster="lab-7"), lambda: True, print)
    assert found.stopped
    assert found.lacks == []


def test_nothing_is_read_behind_the_bound(task: DetectionTask, tmp_path: Path) -> None:
    """Where all partitions are past it: what is broken there is not seen."""
    cut = tmp_path / "cut.avro"
    cut.write_bytes(task.file.path.read_bytes()[:-1_000])
    file = RoundFile(cut, task.file.partitions, task.file.ends)
    begin_ms = told(task, 1)[0][0].start_ms
    slots, damage = told(task._replace(file=file, to_ms=begin_ms + 9_500), 1)
    assert [slot.start_ms for slot in slots] == [begin_ms + 1_000 * n for n in range(10)]
    assert damage == ""


def child() -> int:
    """Return the number of the process that detects."""
    (process,) = active_children()
    assert process.pid is not None
    return process.pid
