"""Texts of sysfs: what is not as documented is unknown, whatever it is."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probers.config.checks import pages_of
from probers.host import port, sysfs_text
from probers.host.counters import CounterFiles
from probers.host.port import Link, LinkFiles
from probers.host.rnic_files import RnicFiles
from probers.host.rnic_states import ATTRIBUTES, RnicStates
from probers.host.sysfs import PAGE_BYTES, names_in, read_bytes, read_text
from tests.unit.probers.trees import build

PARSERS = (
    sysfs_text.number, sysfs_text.port_state, sysfs_text.operational_state, sysfs_text.lanes,
    sysfs_text.transfers_gts, sysfs_text.rate_gbps, sysfs_text.aer_total, sysfs_text.gid,
    sysfs_text.version, sysfs_text.module_names, sysfs_text.kernel_version, pages_of,
    port.valid_name,
)  # fmt: skip


@given(st.text(max_size=300))
def test_no_text_breaks_a_parser(text: str) -> None:
    """Any text gives a value or None."""
    for parse in PARSERS:
        parse(text)
    flags = sysfs_text.flags_on([text])
    assert flags[0] in (True, False, None)


@given(st.binary(max_size=600), st.integers(0, 0x110))
def test_no_configuration_space_breaks_the_walk(content: bytes, before: int) -> None:
    """A list of capabilities may point anywhere, and round and round."""
    space = bytes(before) + content
    assert sysfs_text.acs_redirects(lambda at, count: space[at : at + count]) in (True, False, None)


@given(st.text(max_size=30))
def test_a_name_that_leads_elsewhere_is_no_network_device(name: str) -> None:
    """It becomes part of a path."""
    valid = port.valid_name(name)
    if valid is not None:
        assert os.path.normpath(f"/sys/class/net/{valid}") == f"/sys/class/net/{valid}"
        assert "\0" not in valid


def garbage(draw: st.DrawFn) -> bytes:
    """Draw contents: bytes, large numbers, or words of the kernel at the wrong place."""
    return draw(
        st.one_of(
            st.binary(max_size=80),
            st.integers(-(2**70), 2**70).map(lambda n: f"{n}\n".encode()),
            st.sampled_from(
                [b"", b"N/A (no PMA)\n", b"4: ACTIVE\n", b"0x1\n", b"..\n", b"\xff" * 9000]
            ),
        )
    )


@settings(max_examples=40)  # some hundred files are written each time
@given(st.composite(garbage)(), st.composite(garbage)(), st.sampled_from(["connectx6", "rxe"]))
def test_no_content_of_any_file_breaks_a_look(
    tmp_path_factory: pytest.TempPathFactory, first: bytes, second: bytes, name: str
) -> None:
    """All files hold garbage, and other garbage at the next look."""
    tree = build(name, tmp_path_factory.mktemp(name))
    files, states = RnicFiles(tree.port, tree.proc), RnicStates()
    counters = CounterFiles(tree.port)
    for now_ns, content in ((1, first), (2, second)):
        for path in tree.root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.write_bytes(content)
        files.find()
        values = states.decide(files.read(links=True, setup=True), now_ns)
        assert values.keys() <= set(ATTRIBUTES)
        for value in values.values():
            assert [value.text, value.number, value.missing_reason].count(None) == 2
            assert value.number is None or value.number >= 0
            assert len(value.text or "") < 200
        reading = counters.read()
        assert (reading.tx_bytes is None) == (reading.missing_reason is not None)
    counters.close()


def test_a_file_without_end_is_read_no_further_than_its_limit(tmp_path: Path) -> None:
    """And one that is a folder, a pipe, or not there is nothing."""
    assert len(read_text("/dev/zero") or "") == PAGE_BYTES
    assert len(read_text("/dev/zero", 3 * PAGE_BYTES) or "") == 3 * PAGE_BYTES
    os.mkfifo(tmp_path / "pipe")
    assert not read_text(str(tmp_path / "pipe"))
    assert read_text(str(tmp_path)) is read_text(str(tmp_path / "nothing")) is None
    assert read_text("a\0b") is None
    assert read_bytes(str(tmp_path / "nothing"), 0, 4) == b""
    assert names_in(str(tmp_path / "nothing"), 4) == []


def test_links_that_go_round_are_no_device(tmp_path: Path) -> None:
    """A look ends, and finds nothing."""
    device = tmp_path / "class" / "infiniband" / "mlx5_0"
    (device / "ports" / "1").mkdir(parents=True)
    (device / "device").symlink_to("device")
    files = RnicFiles(device / "ports" / "1", str(tmp_path))
    files.find()
    raw = files.read(links=True, setup=True)
    assert raw.present
    assert raw.links is not None
    assert not raw.links.pci
    assert LinkFiles(device / "ports" / "1").read() is Link.UP
