"""An RNIC that loses its port, its GID or its device while an agent has it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from probers.clock import SystemClock
from probers.config.rnics import INFINIBAND, RdmaSettings, RnicConfig
from probers.host.port import Link
from probers.probing.rnic import GONE_AFTER_NS, Change, Rnic
from probers.transports.base import ProbeSettings
from schemas.enums import ProbeStatus
from schemas.enums import Transport as TransportKind
from schemas.process.eventlog import EventLog
from tests.rdma.fabric import address, run
from tests.rdma.pairs import settings
from tests.unit.probers.clocks import ManualClock


def config(rnic: int, *, rdma: RdmaSettings | None = None, fallback: bool = False) -> RnicConfig:
    """Return the configuration of an RNIC of the fabric."""
    rdma = settings(rnic) if rdma is None else rdma
    return RnicConfig(
        rail=rnic,
        endpoint_id=f"w0/r{rnic}",
        address=rdma.address,
        transport=TransportKind.RDMA_UD,
        counters=INFINIBAND / rdma.device / "ports" / "1" / "counters",
        rdma=rdma,
        fallback=fallback,
    )


@pytest.fixture
def make() -> Iterator[Callable[[RnicConfig], Rnic]]:
    """Return what makes RNICs, which are closed in the end."""
    made: list[Rnic] = []

    def one(of: RnicConfig) -> Rnic:
        made.append(
            Rnic(of, SystemClock(), probes=ProbeSettings(probe_bytes=50), log=EventLog("test"))
        )
        return made[-1]

    yield one
    for rnic in made:
        rnic.close()


def test_it_comes_with_gid_queue_pair_and_key(make: Callable[[RnicConfig], Rnic]) -> None:
    """What it registers is what others need to reach it."""
    rnic = make(config(0))
    assert rnic.look(ManualClock().now()) is Change.CAME
    responder = rnic.responder
    assert responder.kind is TransportKind.RDMA_UD
    assert responder.address == f"::ffff:{address(0)}"
    assert responder.port > 1
    assert responder.qkey is not None
    assert rnic.answering_transport().text == "rdma"
    assert rnic.trouble is None
    assert rnic.refused is None


def test_a_port_that_goes_down_is_the_own_links_trouble(
    make: Callable[[RnicConfig], Rnic],
) -> None:
    """Probes from it are LINK_DOWN without being sent, and it is back when the port is."""
    rnic, now = make(config(0)), ManualClock().now()
    rnic.look(now)
    run("ip", "link", "set", "e0", "down")
    assert rnic.look(now) is Change.NONE
    assert (rnic.link, rnic.refused) == (Link.DOWN, ProbeStatus.LINK_DOWN)
    run("ip", "link", "set", "e0", "up")
    assert rnic.look(now) is Change.NONE
    assert rnic.refused is None


def test_a_gid_that_is_gone_is_told_and_looked_for(make: Callable[[RnicConfig], Rnic]) -> None:
    """NO_GID with what the port has; the endpoint leaves after a while, and comes back anew."""
    clock = ManualClock()
    rnic = make(config(2))
    rnic.look(clock.now())
    try:
        run("ip", "address", "del", f"{address(2)}/24", "dev", "e2")
        assert rnic.look(clock.now()) is Change.NONE
        assert rnic.refused is ProbeStatus.NO_GID
        assert f"no RoCE v2 GID for {address(2)}; the port has" in (rnic.trouble or "")
        clock.advance(GONE_AFTER_NS)
        assert rnic.look(clock.now()) is Change.LEFT
        rnic.close()
        assert rnic.look(clock.now()) is Change.NONE
    finally:
        restore(2)
    assert rnic.look(clock.now()) is Change.CAME
    assert rnic.trouble is None


def test_a_gid_at_another_index_makes_it_move(make: Callable[[RnicConfig], Rnic]) -> None:
    """The table has changed under it: it closes, opens with the new index, registers anew."""
    now = ManualClock().now()
    rnic = make(config(2))
    rnic.look(now)
    before = rnic.responder
    try:
        # The freed index is given to another address first.
        run("ip", "address", "del", f"{address(2)}/24", "dev", "e2")
        run("ip", "address", "add", "10.9.0.200/24", "dev", "e2")
        run("ip", "address", "add", f"{address(2)}/24", "dev", "e2")
        assert rnic.look(now) is Change.MOVED
        rnic.close()
        assert rnic.look(now) is Change.CAME
        assert rnic.responder is not before
        assert rnic.responder.address == f"::ffff:{address(2)}"
    finally:
        run("ip", "address", "del", "10.9.0.200/24", "dev", "e2")
        restore(2)


def test_a_device_that_is_not_there_is_named_and_comes_later(
    make: Callable[[RnicConfig], Rnic],
) -> None:
    """NO_DEVICE with what the host has; once the device is there, it opens."""
    now = ManualClock().now()
    rnic = make(config(0, rdma=replace(settings(0), device="mlx5_9")))
    assert rnic.look(now) is Change.NONE
    assert rnic.refused is ProbeStatus.NO_DEVICE
    rnic = make(config(0, rdma=RdmaSettings(device="rxe7", address="10.9.0.8")))
    assert rnic.look(now) is Change.NONE
    run("ip", "link", "add", "e7", "type", "veth", "peer", "name", "q7")
    try:
        run("ip", "address", "add", "10.9.0.8/24", "dev", "e7")
        run("ip", "link", "set", "q7", "up")
        run("ip", "link", "set", "e7", "up")
        run("rdma", "link", "add", "rxe7", "type", "rxe", "netdev", "e7")
        assert rnic.look(now) is Change.CAME
        rnic.close()
        run("rdma", "link", "del", "rxe7")
        assert rnic.look(now) is Change.NONE
        assert rnic.refused is ProbeStatus.NO_DEVICE
    finally:
        run("ip", "link", "del", "e7")


def test_udp_stands_in_where_the_settings_allow_it(make: Callable[[RnicConfig], Rnic]) -> None:
    """Without a device it answers by UDP, and says on every heartbeat that this is no RDMA."""
    missing = RdmaSettings(device="mlx5_9", address=address(0))
    now = ManualClock().now()
    rnic = make(config(0, rdma=missing, fallback=True))
    rnic._links = None  # a host without the device's folder: the netdev's is another matter
    assert rnic.look(now) is Change.CAME
    assert rnic.responder.kind is TransportKind.UDP
    assert (rnic.trouble or "").startswith("w0/r0: not using RDMA: no ")
    assert rnic.refused is None


def restore(rnic: int) -> None:
    """Give an RNIC its address and its routes again."""
    own, end, table = address(rnic), f"e{rnic}", str(101 + rnic)
    run("ip", "address", "replace", f"{own}/24", "dev", end)
    network = own.rpartition(".")[0] + ".0/24"
    run("ip", "route", "replace", network, "dev", end, "src", own, "table", table)
