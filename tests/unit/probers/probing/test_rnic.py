"""An RNIC at work: opened, watched, gone and back."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from probers.config.rnics import RdmaSettings, RnicConfig
from probers.host.port import Link
from probers.probing.rnic import GONE_AFTER_NS, Change, Rnic
from probers.transports.base import ProbeSettings
from schemas.enums import Transport as TransportKind
from schemas.process.eventlog import EventLog
from tests.unit.probers.clocks import ManualClock

LOOPBACK = "127.0.0.1"


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still."""
    return ManualClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the counters' folder of a port."""
    made = tmp_path / "ports" / "1" / "counters"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def rnic(clock: ManualClock, folder: Path) -> Iterator[Rnic]:
    """Return an RNIC on loopback, not yet looked at."""
    config = RnicConfig(rail=0, endpoint_id="w0/r0", address=LOOPBACK, counters=folder)
    made = Rnic(config, clock, probes=ProbeSettings(probe_bytes=50), log=EventLog("test"))
    yield made
    made.close()


def test_the_first_look_opens_it(rnic: Rnic, clock: ManualClock) -> None:
    """It comes once; the port chosen by the system is the responder's."""
    assert not rnic.open
    assert rnic.look(clock.now()) is Change.CAME
    assert rnic.look(clock.now()) is Change.NONE
    assert rnic.open
    assert rnic.responder.port > 0
    assert rnic.trouble is None


def test_a_port_that_is_down_is_trouble_but_no_leaving(
    rnic: Rnic, clock: ManualClock, folder: Path
) -> None:
    """Peers must see the loss: the endpoint stays registered while its port is down."""
    rnic.look(clock.now())
    (folder.parent / "state").write_text("1: DOWN\n")
    clock.advance(10 * GONE_AFTER_NS)
    assert rnic.look(clock.now()) is Change.NONE
    assert rnic.link is Link.DOWN
    assert rnic.trouble == "w0/r0: link down"


def test_one_that_vanished_leaves_after_a_while_and_may_come_back(
    rnic: Rnic, clock: ManualClock, folder: Path
) -> None:
    """First a fault for all to see, then a departure, then a new arrival."""
    rnic.look(clock.now())
    folder.rmdir()
    assert rnic.look(clock.now()) is Change.NONE
    clock.advance(GONE_AFTER_NS)
    assert rnic.look(clock.now()) is Change.LEFT
    rnic.close()
    assert rnic.look(clock.now()) is Change.NONE
    folder.mkdir()
    assert rnic.look(clock.now()) is Change.CAME


def test_an_address_in_use_is_told_and_tried_again(clock: ManualClock) -> None:
    """The agent lives, says what is wrong, and opens the port when it is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((LOOPBACK, 0))
        port = taken.getsockname()[1]
        config = RnicConfig(rail=0, endpoint_id="w0/r0", address=LOOPBACK, port=port)
        rnic = Rnic(config, clock, probes=ProbeSettings(probe_bytes=50), log=EventLog("test"))
        assert rnic.look(clock.now()) is Change.NONE
        assert "in use" in (rnic.trouble or "")
    assert rnic.look(clock.now()) is Change.CAME
    assert rnic.trouble is None
    rnic.close()


def test_a_second_transport_is_opened_when_a_target_needs_it(
    rnic: Rnic, clock: ManualClock
) -> None:
    """UDP answers; TCP only probes; behind a gateway there is no TCP."""
    assert rnic.transport(TransportKind.TCP) is None
    rnic.look(clock.now())
    tcp = rnic.transport(TransportKind.TCP)
    assert tcp is not None
    assert rnic.transport(TransportKind.TCP) is tcp
    assert rnic.responder.kind is TransportKind.UDP
    config = RnicConfig(rail=0, endpoint_id="w0/r0", address=LOOPBACK, gateway=(LOOPBACK, 9))
    wrapped = Rnic(config, clock, probes=ProbeSettings(probe_bytes=50), log=EventLog("test"))
    wrapped.look(clock.now())
    assert wrapped.transport(TransportKind.TCP) is None
    wrapped.close()


def test_counts_survive_a_reopening(rnic: Rnic, clock: ManualClock) -> None:
    """What was counted before a device vanished is still in the heartbeat."""
    rnic.look(clock.now())
    rnic.responder.counts.filtered = 3
    rnic.close()
    rnic.look(clock.now())
    rnic.responder.counts.filtered = 4
    assert rnic.counts().filtered == 7


@pytest.mark.parametrize("fallback", [True, False])
def test_it_says_what_answers_its_probes(
    clock: ManualClock, folder: Path, *, fallback: bool
) -> None:
    """UDP while it stands in for RDMA that cannot be had; without it nothing, which is no word."""
    config = RnicConfig(
        rail=0,
        endpoint_id="w0/r0",
        address=LOOPBACK,
        counters=folder,
        transport=TransportKind.RDMA_UD,
        rdma=RdmaSettings(device="mlx5_none", address=LOOPBACK),
        fallback=fallback,
    )
    made = Rnic(config, clock, probes=ProbeSettings(probe_bytes=50), log=EventLog("test"))
    assert made.answering_transport().text is None
    made.look(clock.now())
    said = made.answering_transport()
    assert said.text == ("udp" if fallback else None)
    assert (said.missing_reason is None) is fallback
    made.close()
