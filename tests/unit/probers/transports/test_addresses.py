"""Which address an RNIC has, from this machine's interfaces and from trees as sysfs has them."""

import errno
import sys
from pathlib import Path

import pytest

from probers.config.rnics import RdmaSettings, RnicConfig
from probers.transports import addresses
from probers.transports.addresses import own_address
from schemas.enums import Transport

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux")


def rdma(device: str) -> RnicConfig:
    """Return an RNIC that names its device only."""
    return RnicConfig(
        rail=0, endpoint_id="h0/r0", address=None, transport=Transport.RDMA_UD,
        rdma=RdmaSettings(device=device, address=None),
    )  # fmt: skip


def test_an_interface_has_an_address_or_a_reason() -> None:
    """The loopback's is known; of others it is said what they lack."""
    config = RnicConfig(rail=0, endpoint_id="h0/r0", address=None, interface="lo")
    assert own_address(config) == "127.0.0.1"
    missing = RnicConfig(rail=0, endpoint_id="h0/r0", address=None, interface="none0")
    with pytest.raises(OSError, match="no interface none0") as caught:
        own_address(missing)
    assert caught.value.errno == errno.ENODEV


def test_a_device_has_the_address_of_its_gid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked each time: one that is missing, or has no address yet, may come later."""
    monkeypatch.setattr(addresses, "INFINIBAND", tmp_path)
    with pytest.raises(OSError, match="no RDMA device mlx5_0") as caught:
        own_address(rdma("mlx5_0"))
    assert caught.value.errno == errno.ENODEV
    port = tmp_path / "mlx5_0" / "ports" / "1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs" / "types").mkdir(parents=True)
    with pytest.raises(OSError, match="the port's table is empty") as caught:
        own_address(rdma("mlx5_0"))
    assert caught.value.errno == errno.EADDRNOTAVAIL
    (port / "gids" / "3").write_text("0000:0000:0000:0000:0000:ffff:0a00:0011\n")
    (port / "gid_attrs" / "types" / "3").write_text("RoCE v2\n")
    assert own_address(rdma("mlx5_0")) == "10.0.0.17"
