"""The process that reads tables: with real commands, slow ones, and none at all."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.overlay.child import TableChild
from probers.overlay.reading import MAX_LINE_BYTES, Command, CommandError
from probers.overlay.wire import (
    Answer,
    Finding,
    Request,
    Way,
    pack_answer,
    pack_request,
    unpack_answer,
    unpack_request,
)
from tests.unit.probers.overlay.dumps import LOCAL, REMOTE, TO_VTEP, kernel

WAIT_S = 60.0
NEIGHBOURS = '[{"dst":"10.1.0.9","dev":"br0","lladdr":"02:00:00:00:00:09","state":["STALE"]}]'


def printing(path: Path, text: str) -> tuple[str, ...]:
    """Return a command line that prints a text."""
    path.write_text(text)
    return ("cat", str(path))


def request(commands: dict[str, tuple[str, ...]], timeout_s: float = 30.0) -> Request:
    """Return a request for flows."""
    return Request("ovs", commands, timeout_s, (REMOTE, LOCAL))


def answered(asked: Request) -> Answer:
    """Run a reading to its end; asking about it never takes long."""
    child = TableChild()
    child.start(asked, time.monotonic_ns())
    deadline = time.monotonic() + WAIT_S
    try:
        while (answer := child.poll(time.monotonic_ns())) is None:
            assert child.busy
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        child.close()
    assert not child.busy
    return answer


def test_flows_are_read_by_a_process_of_its_own(tmp_path: Path) -> None:
    """Both dumps and the neighbours, in, judged, and back."""
    titles = "flow-dump from pmd on cpu core: 3\n"
    line = kernel(TO_VTEP, said="") + "\n"
    answer = answered(
        request(
            {
                "offloaded": printing(tmp_path / "hw", titles + line),
                "software": printing(tmp_path / "sw", titles + line + "garbage\n"),
                "neigh": printing(tmp_path / "neigh", NEIGHBOURS),
            }
        )
    )
    assert answer.read
    assert answer.findings == [Finding("10.1.0.9", Way.TUNNEL, "10.9.0.9", "10.9.0.1", True)]
    assert answer.macs["10.1.0.9"] == "02:00:00:00:00:09"
    assert (answer.counts["flows"], answer.counts["lines_skipped"]) == (2, 1)
    assert answer.troubles == []


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        (("no-such-program-anywhere",), "no-such-program-anywhere: No such file or directory"),
        (("cat", "/no/such/file"), "exit code 1: cat: /no/such/file: No such file"),
        (("/etc",), "etc: Permission denied"),
        (("echo", "ovs-vswitchd: not running"), "no line of the dumps is a flow"),
        (("sleep", "60"), "no answer in time"),
    ],
)
def test_what_cannot_be_read_has_a_reason(line: tuple[str, ...], trouble: str) -> None:
    """No program, a failure with its own words, no permission, no flows, no end."""
    answer = answered(request({"software": line}, timeout_s=3.0 if "sleep" in line else 30.0))
    assert not answer.read
    assert answer.findings == []
    assert trouble in "; ".join(answer.troubles)


def test_one_dump_alone_tells_nothing(tmp_path: Path) -> None:
    """What software drops, hardware may forward: without both there are no findings."""
    answer = answered(
        request(
            {
                "offloaded": ("false",),
                "software": printing(tmp_path / "sw", kernel("drop") + "\n"),
            }
        )
    )
    assert not answer.read
    assert answer.findings == []


def test_ending_a_reading_ends_its_commands(tmp_path: Path) -> None:
    """Nothing is left behind, and nobody waits for the command."""
    mark = tmp_path / "pid"
    child = TableChild()
    script = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    child.start(request({"software": (sys.executable, "-c", script)}), time.monotonic_ns())
    deadline = time.monotonic() + WAIT_S
    while not (mark.exists() and mark.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    begin = time.monotonic()
    child.close()
    # The command takes a minute; the rest is slack for a busy machine.
    assert time.monotonic() - begin < 20
    assert not child.busy
    pid = int(mark.read_text())
    while running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Whether a process runs; one that only waits to be noticed does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_long_lines_are_cut_and_long_output_ends(tmp_path: Path) -> None:
    """A line without end is one short line; what must be whole has a bound."""
    command = printing(tmp_path / "long", "x" * (3 * MAX_LINE_BYTES) + "\nshort\n")
    lines = list(Command(command, time.monotonic() + WAIT_S).lines())
    assert lines == [b"x" * MAX_LINE_BYTES, b"short\n"]
    with pytest.raises(CommandError, match="more than 1000 bytes"):
        Command(command, time.monotonic() + WAIT_S).whole(1_000)


def test_a_large_table_is_read_in_the_memory_of_a_small_one(tmp_path: Path) -> None:
    """20,000 flows of others leave nothing behind: 6 MB of text, under 40 MB of process."""
    with open(tmp_path / "dump", "w", encoding="ascii") as file:
        for number in range(20_000):
            mac = f"06:00:00:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
            file.write(kernel(TO_VTEP, mac=mac).partition("ct_state")[0])
            file.write(f"recirc_id(0),in_port(2),eth(dst={mac}),eth_type(0x0800),ipv4(frag=no), ")
            file.write("packets:1, bytes:60, used:0.1s, actions:drop\n")
        file.write(kernel(TO_VTEP) + "\n")
    script = (
        "import sys\n"
        "from probers.overlay.__main__ import main\n"
        "main()\n"
        "status = open('/proc/self/status').read()\n"
        "print(status.partition('VmHWM:')[2].split()[0], file=sys.stderr)\n"
    )
    asked = request({"software": ("cat", str(tmp_path / "dump"))}, timeout_s=120.0)
    done = subprocess.run(
        [sys.executable, "-c", script], input=pack_request(asked), capture_output=True, check=True,
        timeout=150, env=dict(os.environ),
    )  # fmt: skip
    answer = unpack_answer(done.stdout)
    assert answer is not None
    assert answer.counts["flows"] == 20_001
    assert [f.way for f in answer.findings] == [Way.TUNNEL]
    assert int(done.stderr.split()[-1]) < 40_000


def test_requests_and_answers_come_back_as_they_went() -> None:
    """Every field of both."""
    asked = Request("fdb", {"fdb": ("bridge", "-j")}, 1.5, (REMOTE, LOCAL), ("vx0",))
    assert unpack_request(pack_request(asked)) == asked
    told = Answer(True, [Finding("10.1.0.9", Way.VTEP_DROPS)], {"a": "b"}, {"flows": 1}, ["no"])
    assert unpack_answer(pack_answer(told)) == told


@given(st.binary())
def test_any_bytes_are_an_answer_or_none(data: bytes) -> None:
    """The agent takes nothing for granted."""
    assert isinstance(unpack_answer(data), Answer | None)


@pytest.mark.parametrize(
    "text",
    [
        "[1]", "{}", '{"findings": [[1,2,3,4,5], ["a","NO",null,null,null], 7]}',
        '{"findings": 1, "macs": [], "counts": {"a": "b"}, "troubles": {}}', "[" * 100_000,
    ],
)  # fmt: skip
def test_an_answer_of_another_form_tells_nothing(text: str) -> None:
    """Wrong rows are left out."""
    answer = unpack_answer(text.encode())
    assert answer is None or (not answer.read and answer.findings == [] and answer.counts == {})
