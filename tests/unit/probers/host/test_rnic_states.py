"""What changes at an RNIC, and what is told of it: on trees whose files are changed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probers.host.rnic_files import LinksRaw, RnicFiles, RnicRaw, SetupRaw
from probers.host.rnic_states import GONE, NO_PAUSES, RnicStates, gpudirect
from probers.host.states import Value, missing
from schemas.units import SECOND_NS
from tests.unit.probers.trees import Tree, build


class Looks:
    """Looks at a tree every five seconds, in full."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._files = RnicFiles(tree.port / "counters", tree.proc)
        self._states = RnicStates()
        self._now_ns = 0

    def look(self) -> dict[str, Value]:
        """Return what is told now."""
        self._now_ns += 5 * SECOND_NS
        self._files.find()
        return self._states.decide(self._files.read(links=True, setup=True), self._now_ns)


@pytest.fixture
def of(tmp_path: Path) -> Callable[[str], Looks]:
    """Return what makes looks at a tree by its name."""
    return lambda name: Looks(build(name, tmp_path))


@pytest.mark.parametrize(
    ("path", "attribute", "rate"),
    [
        ("counters/symbol_error", "crc_errors_per_s", 20),
        ("counters/port_rcv_errors", "crc_errors_per_s", 20),
        ("hw_counters/rx_icrc_encapsulated", "crc_errors_per_s", 20),
        ("device/net/ens1f0np0/statistics/rx_crc_errors", "crc_errors_per_s", 20),
        ("counters/port_xmit_discards", "discards_per_s", 20),
        ("hw_counters/out_of_buffer", "discards_per_s", 20),
        ("device/net/ens1f0np0/statistics/rx_missed_errors", "discards_per_s", 20),
        ("counters/link_downed", "link_flaps", 100),
        ("device/net/ens1f0np0/carrier_down_count", "link_flaps", 100),
    ],
)
def test_each_counter_moves_its_attribute_alone(
    of: Callable[[str], Looks], path: str, attribute: str, rate: float
) -> None:
    """100 within five seconds."""
    looks = of("connectx6")
    looks.look()
    before = looks.look()
    folder = looks.tree.device if path.startswith("device") else looks.tree.port
    file = folder / path
    file.write_text(f"{int(file.read_text()) + 100}\n")
    after = looks.look()
    # The window holds two steps by now.
    expected = rate if attribute == "link_flaps" else rate / 2
    assert after[attribute] == Value(number=expected)
    assert {a for a in after if after[a] != before[a]} == {attribute}


def test_what_nobody_wanted_is_no_discard(of: Callable[[str], Looks]) -> None:
    """`rx_dropped` counts frames of unknown protocols, on every healthy host."""
    looks = of("connectx6")
    looks.look()
    (looks.tree.netdev / "statistics" / "rx_dropped").write_text("100000\n")
    assert looks.look()["discards_per_s"] == Value(number=0.0)


def test_a_counter_that_is_full_tells_nothing(of: Callable[[str], Looks]) -> None:
    """Its attribute is unknown, unless another counter still counts."""
    looks = of("connectx6")
    (looks.tree.port / "counters" / "symbol_error").write_text("65535\n")
    looks.look()
    assert "symbol_error is full" in (looks.look()["crc_errors_per_s"].missing_reason or "")
    (looks.tree.netdev / "statistics" / "rx_crc_errors").write_text("60\n")
    assert (looks.look()["crc_errors_per_s"].number or 0) > 0


def test_of_counters_of_the_same_events_one_that_counts_is_enough(
    of: Callable[[str], Looks],
) -> None:
    """The port's own counter of flaps holds 255; the network device's goes on."""
    looks = of("connectx6")
    (looks.tree.port / "counters" / "link_downed").write_text("255\n")
    looks.look()
    assert looks.look()["link_flaps"] == Value(number=0.0)
    (looks.tree.netdev / "carrier_down_count").unlink()
    assert "link_downed is full" in (looks.look()["link_flaps"].missing_reason or "")


def test_counters_that_are_cleared_are_no_errors(of: Callable[[str], Looks]) -> None:
    """Nor is what they counted before."""
    looks = of("connectx7")
    (looks.tree.port / "counters" / "port_rcv_errors").write_text("40000\n")
    looks.look()
    looks.look()
    (looks.tree.port / "counters" / "port_rcv_errors").write_text("2\n")
    assert looks.look()["crc_errors_per_s"] == Value(number=0.0)


def test_a_device_that_vanishes_and_returns_begins_anew(of: Callable[[str], Looks]) -> None:
    """Gone says nothing else; back, its counters need two looks again."""
    looks = of("connectx6")
    looks.look()
    real, away = looks.tree.device.resolve(), looks.tree.root / "away"
    shutil.move(real, away)
    gone = looks.look()
    assert gone.pop("device") == Value("gone")
    assert {value.missing_reason for value in gone.values()} == {GONE}
    shutil.move(away, real)
    (real / "ports" / "1" / "counters" / "symbol_error").write_text("9000\n")
    back = looks.look()
    assert back["device"] == Value("present")
    assert "crc_errors_per_s" not in back
    assert looks.look()["crc_errors_per_s"] == Value(number=0.0)


@pytest.mark.parametrize(
    ("which", "width", "speed"), [("device", 8, "16.0 GT/s PCIe"), ("bridge", 16, "8.0 GT/s PCIe")]
)
def test_the_narrowest_link_up_to_the_root_counts(
    of: Callable[[str], Looks], which: str, width: int, speed: str
) -> None:
    """Its own, or that of a bridge above it."""
    looks = of("connectx6")
    folder = looks.tree.function if which == "device" else looks.tree.function.parent
    (folder / "current_link_width").write_text(f"{width}\n")
    (folder / "current_link_speed").write_text(f"{speed}\n")
    values = looks.look()
    assert values["pcie_width"] == Value(number=float(width))
    assert values["pcie_speed_gts"] == Value(number=float(speed.partition(" ")[0]))


def test_pcie_errors_of_both_ends_of_the_link_count(of: Callable[[str], Looks]) -> None:
    """The device may have seen nothing of what the bridge counts."""
    looks = of("connectx6")
    looks.look()
    (looks.tree.function / "aer_dev_correctable").write_text("TOTAL_ERR_COR 10\n")
    (looks.tree.function.parent / "aer_dev_correctable").write_text("TOTAL_ERR_COR 12\n")
    assert looks.look()["pcie_errors_per_s"] == Value(number=3.0)


@pytest.mark.parametrize("part", ["gids/3", "gid_attrs/types/3", "gids/9"])
def test_any_change_of_the_gid_table_is_seen(of: Callable[[str], Looks], part: str) -> None:
    """A GID, its type, one more further on; the same table is the same text."""
    looks = of("connectx6")
    first, second = (looks.look()["gid_table"] for _ in range(2))
    text = "RoCE v1" if "types" in part else "0000:0000:0000:0000:0000:ffff:0a00:00ff"
    (looks.tree.port / part).write_text(text + "\n")
    assert first == second != looks.look()["gid_table"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ens1f0np0/bonding_slave/mii_status": "down"}, "degraded: ens1f0np0"),
        ({"ens1f1np1/bonding_slave/mii_status": "going down"}, "degraded: ens1f1np1"),
        ({"ens1f1np1/bonding_slave/ad_aggregator_id": "2"}, "degraded: ens1f1np1"),
        ({"bond0/bonding/slaves": "ens1f0np0"}, "active"),
        ({"bond0/bonding/slaves": ""}, "down: no slaves"),
        ({"bond0/bonding/slaves": "../../etc ens1f0np0"}, "active"),
        ({"bond0/bonding/ad_aggregator": ""}, "active"),
        (
            {
                "ens1f0np0/bonding_slave/mii_status": "down",
                "ens1f1np1/bonding_slave/mii_status": "down",
            },
            "down",
        ),
    ],
)
def test_a_bond_is_as_good_as_its_slaves(
    of: Callable[[str], Looks], changes: dict[str, str], expected: str
) -> None:
    """Up, and with LACP in the aggregator that is in use."""
    looks = of("connectx7-bond")
    for path, text in changes.items():
        (looks.tree.root / "sys" / "class" / "net" / path).write_text(text + "\n")
    assert looks.look()["bond"] == Value(expected)


def test_a_slave_that_flaps_is_a_flap_of_the_rnic(of: Callable[[str], Looks]) -> None:
    """The bond itself stays up."""
    looks = of("connectx7-bond")
    looks.look()
    slave = looks.tree.root / "sys" / "class" / "net" / "ens1f1np1"
    (slave / "carrier_down_count").write_text("5\n")
    assert looks.look()["link_flaps"] == Value(number=3.0)


@pytest.mark.parametrize(
    ("role", "flags", "expected"),
    [("roce_np", "0", "off"), ("roce_rp", "0", "off"), ("roce_rp", "maybe", None)],
)
def test_dcqcn_needs_both_ends_on_one_priority(
    of: Callable[[str], Looks], role: str, flags: str, expected: str | None
) -> None:
    """What does not say on or off is unknown."""
    looks = of("connectx6")
    (looks.tree.netdev / "ecn" / role / "enable" / "3").write_text(flags + "\n")
    assert looks.look()["congestion_control"].text == expected


def config_space(*capabilities: tuple[int, bytes]) -> bytes:
    """Return a configuration space with these extended capabilities, in a list."""
    space = bytearray(0x1000)
    for number, (kind, content) in enumerate(capabilities):
        at = 0x100 + number * 0x40
        following = at + 0x40 if number + 1 < len(capabilities) else 0
        space[at : at + 4] = (kind | 1 << 16 | following << 20).to_bytes(4, "little")
        space[at + 4 : at + 4 + len(content)] = content
    return bytes(space)


def acs(control: int) -> tuple[int, bytes]:
    """Return an ACS capability with this control register."""
    return 0x0D, bytes(2) + control.to_bytes(2, "little")


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (config_space((0x01, b""), acs(0x1D)), "enabled"),
        (config_space((0x01, b""), acs(0x01)), "disabled"),
        (config_space(acs(0x5D)), "disabled"),
        (config_space((0x01, b"")), "disabled"),
        (config_space(), "disabled"),
        (config_space(acs(0x1D))[:64], None),
        (config_space(acs(0x1D))[:0x105], None),
        (b"\xff" * 0x1000, None),
        ((0x1000000D ^ 0xD | 2).to_bytes(4, "little").rjust(0x104, b"\0"), None),
    ],
)
def test_acs_is_told_where_the_bridges_configuration_can_be_read(
    of: Callable[[str], Looks], space: bytes, expected: str | None
) -> None:
    """Redirecting is on; with direct translated P2P, or without ACS, it is not.

    A list that goes round ends.
    """
    looks = of("connectx6")
    (looks.tree.function.parent / "config").write_bytes(space)
    assert looks.look()["acs"].text == expected


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "dma-buf"),
        ({"modules": "nv_peer_mem 1 0 -\nnvidia 1 0 -"}, "loaded"),
        ({"modules": "mlx5_core 1 0 -"}, None),
        ({"modules": None}, None),
        ({"kernel_release": "5.4.0-150-generic"}, "missing"),
        ({"kernel_release": ""}, "missing"),
        ({"gpu_driver": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535"}, "missing"),
        ({"gpu_driver": None}, None),
        ({"driver": "ice"}, None),
        ({"pci": False}, None),
    ],
)
def test_gpudirect_is_a_module_or_dma_buf(changed: dict[str, Any], expected: str | None) -> None:
    """Missing only where a GPU's driver is there and offers neither."""
    given: dict[str, Any] = {
        "pci": True, "driver": "mlx5_core", "kernel_release": "6.8.0", "gpu_driver": OPEN,
        "modules": "nvidia 1 0 -\nmlx5_core 1 0 -",
    } | changed  # fmt: skip
    value = gpudirect(SetupRaw(**given))
    assert value.text == expected
    assert (value.text is None) == bool(value.missing_reason)


def test_pause_frames_that_only_ethtool_is_told_make_a_rate() -> None:
    """At the looks that ask for them; a driver that tells nobody is unknown, and says so."""
    states = RnicStates()

    def look(at_s: int, pauses: int | None, *, links: bool = True) -> Value | None:
        raw = RnicRaw(present=True, links=LinksRaw(pci=False, pauses=pauses) if links else None)
        return states.decide(raw, at_s * SECOND_NS).get("pause_frames_per_s")

    assert look(0, 1_000) is None
    assert look(5, None, links=False) is None
    assert look(15, 31_000) == Value(number=2_000.0)
    assert look(30, None) == missing(NO_PAUSES)
