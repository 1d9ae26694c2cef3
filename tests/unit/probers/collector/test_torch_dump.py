"""When a training script's helper writes a dump; the recorder is a stand-in."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from probers.collector import torch_dump
from probers.collector.torch_dump import Recorder


class Fake:
    """What PyTorch gives."""

    def __init__(self) -> None:
        self.launched = 0
        self.asked: list[str] = []

    def json(self, **how: Any) -> bytes:
        """Return the dump as JSON."""
        if how["includeCollectives"]:
            self.asked.append("json")
        return json.dumps({"launched": self.launched}).encode()

    def pickle(self, **_: Any) -> bytes:
        """Return the dump with stacks."""
        self.asked.append("pickle")
        return b"\x80"

    def recorder(self, folder: Path) -> Recorder:
        """Return the helper of rank 3."""
        bindings = {"json": self.json, "pickle": self.pickle}
        return Recorder(f"{folder}/rank_", 3, bindings)


def test_a_rank_that_waits_is_dumped_soon_and_later_with_stacks(tmp_path: Path) -> None:
    """Once each; between, the file beside it says that it holds."""
    fake = Fake()
    recorder = fake.recorder(tmp_path)
    recorder.check(0.0)
    assert fake.asked == ["json"]
    fake.launched = 1
    for step in range(1, 40):
        recorder.check(step / 2)
    assert fake.asked == ["json", "json", "pickle"]
    assert (tmp_path / "rank_3").read_bytes() == b"\x80"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank_3", "rank_3.alive"]


def test_a_dump_holds_only_while_nothing_happens(tmp_path: Path) -> None:
    """What was launched since is not in it: then the file beside it is left alone."""
    fake = Fake()
    recorder = fake.recorder(tmp_path)
    recorder.check(0.0)
    alive = tmp_path / "rank_3.alive"
    alive.unlink()
    fake.launched = 1
    recorder.check(0.5)
    assert not alive.exists()
    recorder.check(1.0)
    recorder.check(1.5)
    assert json.loads((tmp_path / "rank_3").read_bytes()) == {"launched": 1}
    assert alive.exists()


def test_a_job_that_goes_on_is_dumped_seldom(tmp_path: Path) -> None:
    """Dumps take a share of the time at most."""
    fake = Fake()
    recorder = fake.recorder(tmp_path)
    for step in range(100):
        fake.launched = step
        recorder.check(step / 2)
    assert 2 <= len(fake.asked) <= 50 / torch_dump.LEAST_S + 1


def test_a_job_that_goes_on_after_a_pause_is_dumped_again_soon(tmp_path: Path) -> None:
    """Or its recorder would forget what no dump holds."""
    fake = Fake()
    recorder = fake.recorder(tmp_path)
    for step in range(8):
        recorder.check(step / 2)
    before = len(fake.asked)
    for step in range(8, 24):
        fake.launched += 1
        recorder.check(step / 2)
    assert len(fake.asked) - before >= 2


def test_a_dump_that_was_costly_is_not_the_last_for_long(tmp_path: Path) -> None:
    """The first is, and the recorder holds so many operations only."""
    fake = Fake()
    recorder = fake.recorder(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch_dump, "SHARE", 1e-9)
        recorder.check(0.0)
        fake.launched = 1
        recorder.check(torch_dump.MOST_S)
    assert len(fake.asked) == 2


def test_the_folder_of_dumps_is_made_and_made_again(tmp_path: Path) -> None:
    """Whoever names a path in memory has no folder there yet."""
    fake, folder = Fake(), tmp_path / "shm" / "fr"
    recorder = fake.recorder(folder)
    for launched in (1, 2):
        fake.launched = launched
        recorder.try_check(launched * torch_dump.MOST_S)
        assert json.loads((folder / "rank_3").read_bytes()) == {"launched": launched}
        shutil.rmtree(folder)


def test_what_cannot_be_written_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And does not end the thread."""
    (tmp_path / "file").write_bytes(b"")
    fake = Fake()
    recorder = fake.recorder(tmp_path / "file")
    for step in range(8):
        recorder.try_check(step / 2)
    said = capsys.readouterr().err
    assert said.count("torch_dump: no dumps: ") == 1
    assert "rank_3" in said or "file" in said


def test_one_that_is_paused_neither_looks_nor_writes(tmp_path: Path) -> None:
    """What happened meanwhile is in the dump that follows."""
    fake = Fake()
    recorder = fake.recorder(tmp_path)
    recorder.paused = True
    recorder.try_check(0.0)
    assert fake.asked == []
    recorder.paused = False
    recorder.try_check(0.5)
    assert fake.asked == ["json"]


def test_it_does_nothing_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may call it always."""
    for name in torch_dump.BASES:
        monkeypatch.delenv(name, raising=False)
    assert torch_dump.start() is None


ABORTS = """
import ctypes, sys, threading, time
sys.path.insert(0, {folder!r})
import torch_dump
torch_dump.linger()
# As a thread of gloo's: it does not hold the interpreter.
threading.Thread(target=ctypes.CDLL(None).abort).start()
begin = time.monotonic()
while True:
    time.sleep(0.2)
    print(time.monotonic() - begin, flush=True)
"""


def test_a_process_that_aborts_lives_long_enough_for_its_last_dump() -> None:
    """Two checks and a dump take a second and a half; then it ends as it would have."""
    code = ABORTS.format(folder=str(Path(torch_dump.__file__).parent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert done.returncode == -signal.SIGABRT
    assert float(done.stdout.split()[-1]) > 3.0


HANDLED = """
import faulthandler, os, signal, sys, time
sys.path.insert(0, {folder!r})
{before}
import torch_dump
torch_dump.linger()
{after}
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("before", "after", "least_s", "most_s", "said"),
    [
        # The sleep of this thread is cut short, and it would go on.
        ("", "os.kill(os.getpid(), signal.SIGABRT)", 4.0, 30.0, ""),
        ("faulthandler.enable()", "os.abort()", 0.0, 4.0, "Fatal Python error: Aborted"),
        ("", "signal.signal(signal.SIGABRT, signal.SIG_DFL); time.sleep(8); sys.exit(0)",
         8.0, 30.0, ""),
        ("", "if os.fork(): os._exit(os.WTERMSIG(os.wait()[1]) != signal.SIGABRT)\n"
         "os.kill(os.getpid(), signal.SIGABRT)  # exit", 0.0, 4.0, ""),
    ],
    ids=["kill", "faulthandler", "default", "fork"],
)  # fmt: skip
def test_a_sent_signal_ends_the_process_and_other_handlers_stay(
    before: str, after: str, least_s: float, most_s: float, said: str
) -> None:
    """Six seconds later, or at once where something else handles it; and none without a signal."""
    folder = str(Path(torch_dump.__file__).parent)
    code = HANDLED.format(folder=folder, before=before, after=after)
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert done.returncode == (0 if "exit" in after else -signal.SIGABRT)
    assert least_s <= time.monotonic() - begin <= most_s
    assert said in done.stderr
