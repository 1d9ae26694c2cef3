"""The `[agent.overlay]` table."""

import tomllib
from typing import Any

import pytest

from probers.config.overlay import OverlayConfig
from probers.config.settings import build_config
from schemas.process.settings import ConfigError
from tests import ROOT

AGENT = {"host_id": "h0", "rnic": [{"rail": 0, "address": "10.0.0.1"}]}
OVS = """
source = "ovs"
vswitch = "vswitch:h0"
vtep_addresses = ["10.9.0.1"]
vtep_ids = "vtep:{address}"
interval_s = 60
offloaded_command = []
software_command = ["nsenter", "-t", "1", "-n", "-m", "ovs-appctl", "dpctl/dump-flows", "-m"]

[vteps]
"10.9.0.9" = "rnic:h9/r0"
"""


def build(overlay: object) -> OverlayConfig | None:
    """Return the overlay settings of an agent."""
    return build_config({}, {}, {**AGENT, "overlay": overlay}).overlay


def test_a_whole_table_is_read() -> None:
    """Commands are lists, times become nanoseconds, defaults fill the rest."""
    found = build(tomllib.loads(OVS))
    assert found is not None
    assert (found.source, found.vswitch) == ("ovs", "vswitch:h0")
    assert found.commands["software"][0] == "nsenter"
    assert "offloaded" not in found.commands
    assert found.commands["neigh"] == ("ip", "-j", "neigh", "show")
    assert (found.interval_ns, found.timeout_ns) == (60 * 10**9, 20 * 10**9)
    assert found.vtep_id("10.9.0.9") == "rnic:h9/r0"
    assert found.vtep_id("10.9.0.1") == "vtep:10.9.0.1"


def test_without_a_table_or_a_source_nothing_is_read() -> None:
    """The default, and what switches it off."""
    assert build_config({}, {}, AGENT).overlay is None
    assert build({"source": "none", "vswitch": "v0"}) is None
    assert build({}) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"source": "ebpf"}, "must be ovs, fdb or none"),
        ({"vswitch": ""}, "[agent.overlay] vswitch"),
        ({"vtep_addresses": []}, "underlay addresses"),
        ({"vtep_addresses": ["h9"]}, "must be an IPv4 address"),
        ({"vtep_ids": None, "vteps": {}}, "10.9.0.1 has no id"),
        ({"vtep_ids": "vtep"}, "must hold {address} once"),
        ({"vteps": {"10.9.0.9": "a b"}}, "white space"),
        ({"vteps": []}, "a table of at most"),
        ({"software_command": "ovs-appctl dpctl/dump-flows"}, "must be a list"),
        ({"software_command": []}, "must name a program"),
        ({"software_command": ["a\0b"]}, "must be a list"),
        ({"interval_s": 1}, "interval_s=1: a whole number from 5 to 3600"),
        ({"source": "fdb"}, "name the VXLAN devices"),
        ({"shell": "sh"}, "[agent.overlay] shell: no such setting; there are "),
    ],
)
def test_what_is_wrong_is_told(change: dict[str, Any], told: str) -> None:
    """With the rest of the agent's settings, before it starts."""
    table = {k: v for k, v in {**tomllib.loads(OVS), **change}.items() if v is not None}
    with pytest.raises(ConfigError, match=told.replace("[", "\\[").replace("{", "\\{")):
        build(table)


def test_a_table_that_is_none_is_told() -> None:
    """`overlay = "ovs"` is a mistake."""
    with pytest.raises(ConfigError, match="table"):
        build("ovs")


def test_the_page_shows_settings_that_work() -> None:
    """Each example of docs/guide/overlay.md is taken as it stands."""
    page = (ROOT / "docs" / "guide" / "overlay.md").read_text(encoding="utf-8")
    examples = [b.partition("```")[0] for b in page.split("```toml\n")[1:]]
    tables = [tomllib.loads(e).get("agent", {}).get("overlay") for e in examples]
    sources = [found.source for t in tables if t is not None and (found := build(t)) is not None]
    assert sources == ["ovs", "fdb"]
