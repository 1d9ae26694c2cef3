"""What is told of each kind of RNIC, from a tree of files as its driver shows it."""

from pathlib import Path

import pytest

from probers.host.counters import CounterFiles
from probers.host.port import Link, LinkFiles
from probers.host.rnic_files import RnicFiles
from probers.host.rnic_states import ATTRIBUTES, RnicStates
from probers.host.states import Value
from schemas.units import SECOND_NS
from tests import ROOT
from tests.unit.probers.trees import NAMES, build

# Not told here, for a reason; what it says is in `reasons`.
UNKNOWN = None

EXPECTED: dict[str, dict[str, str | float | None]] = {
    "connectx6": {
        "device": "present", "port_state": "active", "bond": "none", "link_flaps": 0,
        "crc_errors_per_s": 0, "discards_per_s": 0, "pause_frames_per_s": UNKNOWN,
        "pcie_width": 16, "pcie_speed_gts": 16, "pcie_errors_per_s": 0,
        "gid_table": "4 GIDs", "congestion_control": "on", "port_rate_gbps": 100,
        "priority_buffers": "0,0,0,1,0,0,0,0", "gpudirect": "loaded", "acs": UNKNOWN,
        "firmware_version": "22.35.2000", "driver_version": "mlx5_core 5.8-3.0.7",
    },
    "connectx7": {
        "device": "present", "port_state": "active", "bond": "none", "link_flaps": 0,
        "crc_errors_per_s": 0, "discards_per_s": 0, "pause_frames_per_s": UNKNOWN,
        "pcie_width": 16, "pcie_speed_gts": 16, "pcie_errors_per_s": 0,
        "gid_table": "1 GIDs", "congestion_control": UNKNOWN, "port_rate_gbps": 400,
        "priority_buffers": UNKNOWN, "gpudirect": "dma-buf", "acs": UNKNOWN,
        "firmware_version": "28.39.1002", "driver_version": "mlx5_core 6.8.0-31-generic",
    },
    "connectx7-bond": {
        "device": "present", "port_state": "active", "bond": "active", "link_flaps": 0,
        "crc_errors_per_s": 0, "discards_per_s": UNKNOWN, "pause_frames_per_s": UNKNOWN,
        "pcie_width": 16, "pcie_speed_gts": 32, "pcie_errors_per_s": UNKNOWN,
        "gid_table": "2 GIDs", "congestion_control": UNKNOWN, "port_rate_gbps": 200,
        "priority_buffers": UNKNOWN, "gpudirect": UNKNOWN, "acs": UNKNOWN,
        "firmware_version": "28.39.1002", "driver_version": "mlx5_core 5.15.0-91-generic",
    },
    "bluefield3": {
        "device": "present", "port_state": "active", "bond": "none", "link_flaps": 0,
        "crc_errors_per_s": 0, "discards_per_s": 0, "pause_frames_per_s": UNKNOWN,
        "pcie_width": 8, "pcie_speed_gts": 32, "pcie_errors_per_s": 0,
        "gid_table": "1 GIDs", "congestion_control": UNKNOWN, "port_rate_gbps": 200,
        "priority_buffers": UNKNOWN, "gpudirect": "missing", "acs": UNKNOWN,
        "firmware_version": "32.41.1000", "driver_version": "mlx5_core 24.04-0.6.6",
    },
    "broadcom": {
        "device": "present", "port_state": "active", "bond": "none", "link_flaps": 0,
        "crc_errors_per_s": 0, "discards_per_s": 0, "pause_frames_per_s": UNKNOWN,
        "pcie_width": 16, "pcie_speed_gts": 32, "pcie_errors_per_s": 0,
        "gid_table": "2 GIDs", "congestion_control": "on", "port_rate_gbps": 400,
        "priority_buffers": UNKNOWN, "gpudirect": UNKNOWN, "acs": UNKNOWN,
        "firmware_version": "229.0.138.0", "driver_version": "bnxt_en 6.8.0-31-generic",
    },
    "broadcom-old": {
        "device": "present", "port_state": "down", "bond": "none", "link_flaps": UNKNOWN,
        "crc_errors_per_s": 0, "discards_per_s": UNKNOWN, "pause_frames_per_s": UNKNOWN,
        "pcie_width": 8, "pcie_speed_gts": 8, "pcie_errors_per_s": UNKNOWN,
        "gid_table": "0 GIDs", "congestion_control": UNKNOWN, "port_rate_gbps": 2.5,
        "priority_buffers": UNKNOWN, "gpudirect": UNKNOWN, "acs": UNKNOWN,
        "firmware_version": UNKNOWN, "driver_version": "bnxt_en 1.8.0",
    },
    "irdma": {
        "device": "present", "port_state": "active", "bond": "none", "link_flaps": 0,
        "crc_errors_per_s": 0, "discards_per_s": UNKNOWN, "pause_frames_per_s": UNKNOWN,
        "pcie_width": 16, "pcie_speed_gts": 16, "pcie_errors_per_s": UNKNOWN,
        "gid_table": "1 GIDs", "congestion_control": "off", "port_rate_gbps": 100,
        "priority_buffers": UNKNOWN, "gpudirect": UNKNOWN, "acs": UNKNOWN,
        "firmware_version": "1.60", "driver_version": "ice 6.8.0-31-generic",
    },
    "rxe": {
        "device": "present", "port_state": "active", "bond": "none", "link_flaps": 0,
        "crc_errors_per_s": 0, "discards_per_s": 0, "pause_frames_per_s": UNKNOWN,
        "pcie_width": UNKNOWN, "pcie_speed_gts": UNKNOWN, "pcie_errors_per_s": UNKNOWN,
        "gid_table": "2 GIDs", "congestion_control": UNKNOWN, "port_rate_gbps": 2.5,
        "priority_buffers": UNKNOWN, "gpudirect": UNKNOWN, "acs": UNKNOWN,
        "firmware_version": UNKNOWN, "driver_version": UNKNOWN,
    },
}  # fmt: skip
# Bytes sent and received, and bits of the counter.
BYTES = {
    "connectx6": (4_000, 8_000, 64),
    "connectx7": (20_000_000_000, 24_000_000_000, 64),
    "connectx7-bond": (2_800, 3_200, 64),
    "bluefield3": (1_200, 1_600, 64),
    "broadcom": (102_400, 204_800, 64),
    "broadcom-old": (70, 80, 64),
    "irdma": (240, 130, 64),
    "rxe": (4_096, 8_192, 64),
}


def told(counters: Path, proc: str) -> dict[str, Value]:
    """Return what two looks tell."""
    files, states = RnicFiles(counters, proc), RnicStates()
    values: dict[str, Value] = {}
    files.find()
    for now_ns in (SECOND_NS, 6 * SECOND_NS):
        values |= states.decide(files.read(links=True, setup=True), now_ns)
    return values


def shown(value: Value) -> str | float | None:
    """Return word or number."""
    return value.number if value.text is None else value.text


def test_every_tree_is_expected() -> None:
    """A new tree needs its lines here."""
    assert set(NAMES) == set(EXPECTED) == set(BYTES)


@pytest.mark.parametrize("name", NAMES)
def test_each_attribute_is_told_or_has_a_reason(name: str, tmp_path: Path) -> None:
    """What a driver does not show is unknown, with a reason, and never 0."""
    tree = build(name, tmp_path)
    values = told(tree.port / "counters", tree.proc)
    assert set(values) == set(ATTRIBUTES) == set(EXPECTED[name])
    for attribute, expected in EXPECTED[name].items():
        value = values[attribute]
        if attribute == "gid_table":
            assert str(value.text).startswith(f"{expected} ")
        elif expected is UNKNOWN:
            assert shown(value) is None, attribute
        else:
            assert shown(value) == expected, attribute
        assert (shown(value) is None) == bool(value.missing_reason), attribute


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["", "counters", "hw_counters"])
def test_bytes_are_found_from_any_folder_of_the_port(name: str, part: str, tmp_path: Path) -> None:
    """In counters, in hw_counters, or in the network device's statistics."""
    files = CounterFiles(build(name, tmp_path).port / part)
    reading = files.read()
    assert (reading.tx_bytes, reading.rx_bytes, reading.bits) == BYTES[name]
    files.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_state_of_the_port_is_found_from_its_folder(name: str, tmp_path: Path) -> None:
    """As from the counters' folder, whether that is there or not."""
    port = build(name, tmp_path).port
    up = Link.DOWN if EXPECTED[name]["port_state"] == "down" else Link.UP
    assert LinkFiles(port).read() is LinkFiles(port / "counters").read() is up


@pytest.mark.parametrize("part", ["", "statistics"])
def test_a_network_device_alone_tells_what_it_has(part: str, tmp_path: Path) -> None:
    """No RDMA device: state, errors and PCIe; no GIDs."""
    tree = build("connectx6", tmp_path)
    values = told(tree.netdev / part, tree.proc)
    assert values["port_state"] == Value("up")
    assert values["pcie_width"] == Value(number=16.0)
    assert values["gid_table"].missing_reason == values["gpudirect"].missing_reason
    assert values["crc_errors_per_s"] == Value(number=0.0)
    assert CounterFiles(tree.netdev / part).read().tx_bytes == 111


def test_every_attribute_stands_in_the_documentation() -> None:
    """With its sources."""
    page = (ROOT / "docs" / "reference" / "host-states.md").read_text("utf-8")
    for attribute in (*ATTRIBUTES, "hugepages", "kernel_version", "gpu_driver_version"):
        assert f"| `{attribute}` |" in page, attribute


def test_a_folder_like_the_labs_tells_that_it_is_there_and_no_more(tmp_path: Path) -> None:
    """Counters alone: no fault is made of what is not told."""
    counters = tmp_path / "h0" / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    (counters / "port_xmit_data").write_text("1\n")
    values = told(counters, str(tmp_path))
    assert values.pop("device") == Value("present")
    assert {shown(value) for value in values.values()} == {None}
