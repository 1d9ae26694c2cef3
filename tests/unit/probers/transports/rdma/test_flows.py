"""Source ports of RoCE packets, by the rules of the drivers that are known."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.probing.plan import entropy_of
from probers.transports.rdma.flows import (
    label_of,
    pair_of,
    port_of_label,
    port_of_queue_pair,
    rule_of,
)


@pytest.mark.parametrize(
    ("number", "port"),
    # number * 0x61c88647 mod 2**32, its upper 14 bits, from 0xc000 on.
    [(0, 0xC000), (1, 0xD872), (17, 0xDF94), (18, 0xF806), (0xFFFFFF, 0xF94D)],
)
def test_soft_roce_hashes_the_number_of_the_queue_pair(number: int, port: int) -> None:
    """Worked out by hand; that kernels do so is held by tests/rdma, which looks at packets."""
    assert port_of_queue_pair(number) == port


@pytest.mark.parametrize(
    ("label", "port"), [(1, 0xC001), (0x3FFF, 0xFFFF), (0x4000, 0xC001), (0x54321, 0xC334)]
)
def test_a_flow_label_is_folded_into_fourteen_bits(label: int, port: int) -> None:
    """The upper six bits are added to the lower fourteen without carry."""
    assert port_of_label(label) == port


@given(st.integers(0, 2**24 - 1), st.integers(0, 2**20 - 1))
def test_ports_are_dynamic_ones(number: int, label: int) -> None:
    """RoCE v2 takes its source ports from 49,152 on."""
    assert 0xC000 <= port_of_queue_pair(number) <= 0xFFFF
    assert 0xC000 <= port_of_label(label) <= 0xFFFF


@given(st.text(max_size=8), st.text(max_size=8), st.integers(0, 63))
def test_every_flow_has_a_label(src: str, dst: str, flow: int) -> None:
    """A label of 0 would leave the port to chance."""
    assert label_of(entropy_of(src, dst, flow)) != 0


def test_the_flows_of_a_pair_are_spread_over_the_probing_queue_pairs() -> None:
    """Number 0 answers and never probes."""
    assert [pair_of(flow, 4) for flow in range(6)] == [1, 2, 3, 4, 1, 2]


def device(folder: Path, driver: str | None) -> Path:
    """Return the folder of a device as sysfs shows it; None: it stands on no PCI function."""
    made = folder / "infiniband" / "dev_0"
    made.mkdir(parents=True)
    if driver is not None:
        (folder / "drivers" / driver).mkdir(parents=True)
        (made / "device").mkdir()
        (made / "device" / "driver").symlink_to(folder / "drivers" / driver)
    return made


def test_mlx5_goes_by_the_flow_label(tmp_path: Path) -> None:
    """Whatever the number of the queue pair is."""
    rule = rule_of(device(tmp_path, "mlx5_core"))
    assert not isinstance(rule, str)
    assert rule(17, 0x54321) == rule(99, 0x54321) == 0xC334


def test_soft_roce_goes_by_the_queue_pair(tmp_path: Path) -> None:
    """It has no driver of a bus, and names its parent."""
    folder = device(tmp_path, None)
    (folder / "parent").write_text("eth0\n", encoding="ascii")
    rule = rule_of(folder)
    assert not isinstance(rule, str)
    assert rule(17, 1) == rule(17, 2) == 0xDF94


def test_of_any_other_driver_nothing_is_guessed(tmp_path: Path) -> None:
    """The reason names the driver."""
    assert rule_of(device(tmp_path, "bnxt_en")) == (
        "driver bnxt_en: how it chooses the UDP source port is not known"
    )
    assert rule_of(tmp_path / "nothing") == "driver not known"
