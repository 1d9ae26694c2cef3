"""A process that is to end ends, though its main thread hangs in a library."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# A mutex that is locked twice is waited for in C, where Python runs no handler of a signal.
HANGS = """
import ctypes, os, threading
from schemas.process import ending, signals

def hang():
    c, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    c.pthread_mutex_lock(mutex)
    c.pthread_mutex_lock(mutex)

"""
BY_SIGNAL = """
signals.call_on_stop(lambda: None)
print("ready", flush=True)
hang()
"""
IN_CLOSING = """
print("ready", flush=True)
with ending.ending(0.2):
    pass
with ending.ending(0.2):
    hang()
"""


@pytest.mark.parametrize("code", [BY_SIGNAL, IN_CLOSING], ids=["told to", "by itself"])
def test_what_hangs_is_left_behind_and_named(code: str) -> None:
    """After the limit it ends with code 3, and says where its threads were."""
    limit = "ending.end_within_after.__defaults__ = (0.2,)\n"
    with subprocess.Popen(
        [sys.executable, "-c", HANGS + limit + code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM if code is BY_SIGNAL else 0)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "left behind" in said
    assert "in hang" in said


END = """
import sys
from schemas.process.ending import end_with
class Client:
    def __del__(self):
        print("Python's end has run", file=sys.stderr)
client = Client()
client.itself = client
def main():
    print("last words", end="")
    {last}
end_with(main)
"""


@pytest.mark.parametrize(
    ("last", "code", "said"),
    [
        ("return 3", 3, ""),
        ("return None", 0, ""),
        ("sys.exit(4)", 4, ""),
        ("sys.exit('why')", 1, "why\n"),
        ("raise ValueError(7)", 1, "ValueError: 7\n"),
        ("raise KeyboardInterrupt", 130, ""),
    ],
)
def test_a_process_ends_at_once_with_its_code(last: str, code: int, said: str) -> None:
    """All output is written; what Python does at its own end is not done."""
    process = subprocess.run(
        [sys.executable, "-c", END.format(last=last)], capture_output=True, text=True, check=False
    )
    assert process.returncode == code
    assert process.stdout == "last words"
    assert process.stderr.endswith(said)
    assert "Python's end" not in process.stderr


def test_output_that_cannot_be_written_is_no_success() -> None:
    """As with Python's own end."""
    program = END.format(last="return 0")
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = subprocess.run(
            [sys.executable, "-c", program], stdout=full, env=buffered, check=False
        )
    assert process.returncode == 120


@pytest.mark.parametrize("closed", ["sys.stdout.close()", "sys.stdout = None"])
def test_a_stream_that_is_closed_is_not_written(closed: str) -> None:
    """As of a command that was started with `>&-`."""
    program = END.format(last=f"{closed}; return 3")
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (process.returncode, process.stderr) == (3, b"")
