"""A process that is to end ends, though its main thread hangs in a library."""

import signal
import subprocess
import sys

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


AFTER_THE_LAST_LINE = """
import time
class Client:
    def __del__(self):
        time.sleep(600)
signals.call_on_stop(lambda: None)
print("ready", flush=True)
client = Client()
client.itself = client
sys.stdin.read()
"""


def test_an_interpreter_that_hangs_while_it_ends_is_left_behind() -> None:
    """Its threads run no more then: a timer in C ends it."""
    limit = "import sys\nending.end_interpreter_within.__defaults__ = (0.4,)\n"
    with subprocess.Popen(
        [sys.executable, "-c", HANGS + limit + AFTER_THE_LAST_LINE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "Timeout" in said
