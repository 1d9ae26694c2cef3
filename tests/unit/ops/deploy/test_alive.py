"""The containers' health check, on real connections of this machine."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ops.deploy.alive import complaint, has_connection, main, ports_of, runs_module
from schemas.kafka.connection import BOOTSTRAP_ENV

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0200A8C0:D431 0300A8C0:2384 01 00000000:00000000 00:00000000 00000000     0        0 2
   2: 0200A8C0:D432 0300A8C0:1F90 08 00000000:00000000 00:00000000 00000000     0        0 3
"""


def test_only_open_connections_to_the_port_count() -> None:
    """A listener of one's own and a connection that is closing are none."""
    assert has_connection(TABLE, {0x2384})
    assert not has_connection(TABLE, {0x1F90})
    assert not has_connection(TABLE, {0xD431})
    assert not has_connection("", {0x2384})
    assert not has_connection("header\nhalf a line\n", {0x2384})


def test_every_broker_of_the_list_counts() -> None:
    """A cluster is reached by any of its addresses."""
    assert ports_of("a:9092,b:9093,[::1]:9094") == {9092, 9093, 9094}


def test_module_is_told_by_the_command_line() -> None:
    """The process must be the one that was asked for, not a shell that waits for it."""
    assert runs_module(b"/usr/bin/python\0-m\0streams\0--log-json\0", "streams")
    assert not runs_module(b"/usr/bin/python\0-m\0localizer\0streams\0", "streams")
    assert not runs_module(b"sh\0-c\0python -m streams\0", "streams")


CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
sys.stdin.readline()
connection.close()
print("down", flush=True)
sys.stdin.readline()
"""


def test_process_is_well_while_it_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process with a real connection passes, and no longer once the connection is closed."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        monkeypatch.setenv(BOOTSTRAP_ENV, f"127.0.0.1:{port}")
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(port), "-m", "streams"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert complaint("streams", process.pid) is None
        assert complaint("localizer", process.pid) == f"process {process.pid} is not localizer"
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"down\n"
        assert complaint("streams", process.pid) == f"no connection to 127.0.0.1:{port}"
        process.communicate(b"\n")
        assert "cannot look at process" in str(complaint("streams", process.pid))


def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 and 1 are what a container engine understands; a wrong call is told apart."""
    del state_dir
    monkeypatch.delenv(BOOTSTRAP_ENV, raising=False)
    assert main(["streams"]) == 1
    assert "no Kafka broker known" in capsys.readouterr().out
    assert main([]) == os.EX_USAGE
