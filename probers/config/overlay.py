"""The settings of the overlay tables: `[agent.overlay]`."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from probers.config.checks import checked_id, ipv4_address, whole_number
from schemas.process.settings import no_such_setting
from schemas.units import SECOND_NS

OVS: Final = "ovs"
FDB: Final = "fdb"
NONE: Final = "none"
# Placeholder of the address in `vtep_ids`.
ADDRESS: Final = "{address}"
MAX_ARGUMENTS: Final = 64
MAX_VTEPS: Final = 65_536
MAX_DEVICES: Final = 64

# By purpose; what `offloaded` names is read before `software`.
COMMANDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    OVS: {
        "offloaded": ("ovs-appctl", "dpctl/dump-flows", "-m", "type=offloaded"),
        "software": ("ovs-appctl", "dpctl/dump-flows", "-m", "type=ovs"),
        "neigh": ("ip", "-j", "neigh", "show"),
    },
    FDB: {
        "fdb": ("bridge", "-j", "fdb", "show"),
        "neigh": ("ip", "-j", "neigh", "show"),
    },
}
# Commands that may be left out by an empty list.
_OPTIONAL: Final = frozenset({"offloaded", "neigh"})
_NUMBERS: Final = {
    "interval_s": (30, 5, 3_600),
    "timeout_s": (20, 1, 300),
    "republish_s": (600, 30, 86_400),
}
_KEYS: Final = frozenset(
    {"source", "vswitch", "vtep_addresses", "vtep_ids", "vteps", "devices", *_NUMBERS}
    | {f"{name}_command" for commands in COMMANDS.values() for name in commands}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayConfig:
    """Where the host's overlay tables are read, and what their addresses are called.

    `vtep_addresses` are the host's own VTEPs, the first being the one meant where a
    table does not say which. `vteps` names components by address, `vtep_ids` makes
    the id of any other from its address; None: others are unknown.
    """

    source: str
    vswitch: str
    vtep_addresses: tuple[str, ...]
    vtep_ids: str | None
    vteps: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...]
    commands: Mapping[str, tuple[str, ...]]
    interval_ns: int
    timeout_ns: int
    republish_ns: int

    def vtep_id(self, address: str) -> str | None:
        """Return the component that has the address; None where the settings do not say."""
        named = self.vteps.get(address)
        if named is not None or self.vtep_ids is None:
            return named
        return self.vtep_ids.replace(ADDRESS, address)


def checked_overlay(table: object, wrong: list[str]) -> OverlayConfig | None:
    """Return the settings; None: nothing is to be read. What is wrong is noted."""
    if table is None:
        return None
    if not isinstance(table, Mapping):
        wrong.append("the overlay tables are given as an [agent.overlay] table")
        return None
    wrong.extend(
        no_such_setting("agent.overlay", key, sorted(_KEYS)) for key in table.keys() - _KEYS
    )
    source = table.get("source", NONE)
    if source not in (*COMMANDS, NONE):
        wrong.append(f"[agent.overlay] source={source!r} must be ovs, fdb or none")
    if source not in COMMANDS:
        return None
    if sys.platform != "linux":
        wrong.append(f"[agent.overlay] source={source}: tables are read on Linux only")
    numbers = {
        name: whole_number(f"[agent.overlay] {name}", table.get(name, default), (low, high), wrong)
        for name, (default, low, high) in _NUMBERS.items()
    }
    devices = _texts("devices", table.get("devices", []), MAX_DEVICES, wrong)
    if source == FDB and not devices:
        wrong.append("[agent.overlay] devices: name the VXLAN devices, e.g. ['vxlan0']")
    config = OverlayConfig(
        source=source,
        vswitch=checked_id("[agent.overlay] vswitch", str(table.get("vswitch", "")), wrong),
        vtep_addresses=_own_vteps(table, wrong),
        vtep_ids=_pattern(table.get("vtep_ids"), wrong),
        vteps=_named(table.get("vteps", {}), wrong),
        devices=devices,
        commands=_commands(source, table, wrong),
        interval_ns=numbers["interval_s"] * SECOND_NS,
        timeout_ns=numbers["timeout_s"] * SECOND_NS,
        republish_ns=numbers["republish_s"] * SECOND_NS,
    )
    wrong.extend(
        f"[agent.overlay] vtep_addresses: {address} has no id in vteps, and vtep_ids is not given"
        for address in config.vtep_addresses
        if config.vtep_id(address) is None
    )
    return config


def _own_vteps(table: Mapping[str, Any], wrong: list[str]) -> tuple[str, ...]:
    addresses = _texts("vtep_addresses", table.get("vtep_addresses", []), MAX_DEVICES, wrong)
    if not addresses:
        wrong.append("[agent.overlay] vtep_addresses: the underlay addresses of this host's VTEPs")
    return tuple(ipv4_address("[agent.overlay] vtep_addresses", a, wrong) for a in addresses)


def _pattern(value: object, wrong: list[str]) -> str | None:
    if value is None:
        return None
    text = str(value)
    if text.count(ADDRESS) != 1:
        wrong.append(f"[agent.overlay] vtep_ids={text!r} must hold {ADDRESS} once")
    checked_id("[agent.overlay] vtep_ids", text, wrong)
    return text


def _named(value: object, wrong: list[str]) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > MAX_VTEPS:
        wrong.append(f"[agent.overlay] vteps: a table of at most {MAX_VTEPS} ids by address")
        return {}
    return {
        ipv4_address("[agent.overlay] vteps", str(address), wrong): checked_id(
            f"[agent.overlay] vteps {address}", str(name), wrong
        )
        for address, name in value.items()
    }


def _commands(
    source: str, table: Mapping[str, Any], wrong: list[str]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, default in COMMANDS[source].items():
        key = f"{name}_command"
        line = _texts(key, table[key], MAX_ARGUMENTS, wrong) if key in table else default
        if line:
            found[name] = line
        elif name not in _OPTIONAL:
            wrong.append(f"[agent.overlay] {key} must name a program")
    return found


def _texts(key: str, value: object, at_most: int, wrong: list[str]) -> tuple[str, ...]:
    if (
        not isinstance(value, list)
        or len(value) > at_most
        or not all(isinstance(t, str) and t and "\0" not in t for t in value)
    ):
        wrong.append(f"[agent.overlay] {key} must be a list of at most {at_most} texts")
        return ()
    return tuple(value)
