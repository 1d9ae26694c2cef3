"""What a service manager is told, over a real datagram socket."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from probers.clock import Instant
from probers.config.health import HealthAddress
from probers.health.client import ask
from probers.health.supervision import (
    SHOWN_NS,
    LoopTurns,
    Notifier,
    Supervision,
    socket_address,
    watchdog_of,
)
from schemas.units import SECOND_NS
from tests.unit.probers.clocks import ManualClock


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Return the manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.setblocking(False)
        yield made


def said(manager: socket.socket) -> list[str]:
    """Return what has come."""
    found = []
    while True:
        try:
            found.append(manager.recv(1_024).decode())
        except BlockingIOError:
            return found


def test_a_life_as_the_manager_hears_it(manager: socket.socket) -> None:
    """Ready, three signs within the time it waits, the end."""
    environment = {
        "NOTIFY_SOCKET": manager.getsockname(),
        "WATCHDOG_USEC": "30000000",
        "WATCHDOG_PID": str(os.getpid()),
    }
    clock = ManualClock()
    supervision = Supervision("a", None, environment, clock.now())
    supervision.started()
    for _ in range(299):
        clock.advance(SECOND_NS // 10)
        supervision.serve(clock.now(), list)
    supervision.leaving()
    supervision.close()
    assert said(manager) == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"]


def test_a_status_is_one_bounded_line(manager: socket.socket) -> None:
    """What comes out of files and networks cannot say READY or STOPPING by itself."""
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()}, 0)
    notifier.status("DEGRADED: x\nSTOPPING=1 " + "y" * 1_000)
    notifier.close()
    (line,) = said(manager)
    assert line.startswith("STATUS=DEGRADED: x STOPPING=1 yyy")
    assert len(line) <= 207
    assert "\n" not in line


def test_a_manager_that_does_not_listen_is_no_matter(tmp_path: Path) -> None:
    """Neither one that is away nor one that takes nothing more."""
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}, 0).ready()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        notifier = Notifier({"NOTIFY_SOCKET": deaf.getsockname()}, 0)
        for _ in range(10_000):
            notifier.ready()
        notifier.close()


def test_without_a_manager_nothing_is_opened() -> None:
    """As under a container runtime."""
    notifier = Notifier({}, 0)
    notifier.ready()
    notifier.feed(10**18)
    assert notifier._socket is None


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": ""},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "-5"},
        {"WATCHDOG_USEC": "1e6"},
        {"WATCHDOG_USEC": "9" * 400},
        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "8"},
    ],
)
def test_no_watchdog(environment: dict[str, str]) -> None:
    """Absent, meant for another process, or no number of microseconds."""
    assert watchdog_of(environment, 7) is None


def test_abstract_names_and_others() -> None:
    """As sd_notify(3) has them."""
    assert socket_address("@") is None
    assert socket_address("relative") is None


def test_the_longest_turn_is_told_for_a_minute_or_two() -> None:
    """And then it is forgotten."""
    turns = LoopTurns(0)
    now_ns = 0
    for gap_ns in (SECOND_NS // 10, 7 * SECOND_NS, SECOND_NS // 10):
        now_ns += gap_ns
        turns.observe_turn(now_ns)
    assert turns.longest_ns == 7 * SECOND_NS
    shown_ns = now_ns
    while turns.longest_ns == 7 * SECOND_NS:
        now_ns += SECOND_NS // 10
        turns.observe_turn(now_ns)
    assert SHOWN_NS - 8 * SECOND_NS <= now_ns - shown_ns <= 2 * SHOWN_NS + SECOND_NS


def test_what_is_missing_is_asked_for_only_when_somebody_asks(tmp_path: Path) -> None:
    """An agent that nobody asks computes nothing; one that has left answers nobody."""
    address = HealthAddress(str(tmp_path / "a.sock"))
    supervision = Supervision("a", address, {}, Instant(0, 0))

    def missing() -> list[str]:
        raise AssertionError

    supervision.serve(Instant(1, 1), missing)
    supervision.close()
    with pytest.raises(OSError, match="No such file"):
        ask(address, "/readyz", 1)
