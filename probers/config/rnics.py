"""The settings of the agent's RNICs: `[[agent.rnic]]` tables or `--rnic` flags."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from probers.config.checks import checked_id, ip_address, ipv4_address, whole_number
from schemas.enums import Transport as TransportKind
from schemas.process.settings import ConfigError, no_such_setting
from schemas.transports import BY_WORD, CAPABILITIES, AddressForm

# Where the kernel shows RDMA devices (Documentation/ABI/stable/sysfs-class-infiniband).
INFINIBAND: Final = Path("/sys/class/infiniband")
RDMA_KEYS: Final = (
    "device", "device_port", "gid_index", "traffic_class", "service_level", "fallback",
)  # fmt: skip
_DEVICE: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaSettings:
    """How an RNIC speaks RDMA.

    `address` is the RNIC's IP address, whose RoCE v2 GID is used, None: the first that routers
    forward; `gid_index` another one.
    """

    device: str
    address: str | None
    port: int = 1
    gid_index: int | None = None
    traffic_class: int = 0
    service_level: int = 0


def checked_rdma(
    table: Mapping[str, Any], name: str, address: str | None, wrong: list[str]
) -> RdmaSettings:
    """Return the settings of one RNIC's table; what is wrong with them is noted."""
    device = str(table.get("device", ""))
    if not _DEVICE.fullmatch(device):
        wrong.append(
            f"RNIC {name}: device={device!r}: the name of an RDMA device is needed, "
            "as `rdma link` or /sys/class/infiniband shows it"
        )
    index = table.get("gid_index")
    if index is not None and index != "":
        index = whole_number("RNIC gid_index", index, (0, 511), wrong)
    return RdmaSettings(
        device=device,
        address=address,
        port=whole_number("RNIC device_port", table.get("device_port", 1), (1, 255), wrong),
        gid_index=index if isinstance(index, int) else None,
        traffic_class=whole_number(
            "RNIC traffic_class", table.get("traffic_class", 0), (0, 255), wrong
        ),
        service_level=whole_number(
            "RNIC service_level", table.get("service_level", 0), (0, 15), wrong
        ),
    )


# Where `ip netns add` keeps the names.
NAMED: Final = Path("/run/netns")
# More RNICs than any host has; a list of them is a mistake.
MAX_RNICS: Final = 64
MAX_RAIL: Final = 4_095
ENV: Final = "SKELETONHUNTER_AGENT_RNIC"
_KEYS: Final = (
    "rail", "address", "port", "gateway", "counters", "endpoint_id", "transport",
    "component", "device", "device_port", "gid_index", "traffic_class", "service_level", "fallback",
    "netns", "tunnel_address", "host_netns", "interface",
)  # fmt: skip
# Where the kernel shows network devices (Documentation/ABI/testing/sysfs-class-net).
NET: Final = Path("/sys/class/net")
# dev_valid_name() in the kernel's net/core/dev.c, without the names that are folders.
_INTERFACE: Final = re.compile(r"(?!\.{1,2}$)[^/:\s\x00-\x1f\x7f]{1,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RnicConfig:
    """One RNIC that the agent probes from.

    `address` None: that of the device, or of `interface`, is looked for when it is opened.
    `gateway` is the address of the lab's virtual switch; None on a real network.
    `counters` is the folder of its counters, or of its port; None: not sampled.
    `component` is its id in the topology; None: as labs name it, by host and rail. `rdma` is
    there where `transport` is RDMA_UD; with `fallback` UDP serves while verbs cannot be had.

    `netns` is the network namespace of the address, in which probe sockets are opened;
    `tunnel_address` the RNIC's own end of the VXLAN tunnel that carries the probes, for
    traces of what is between the tunnel's ends; `host_netns` the namespace of that end and
    of the counters below /sys. None: the agent's own, no tunnel.
    """

    rail: int
    endpoint_id: str
    address: str | None
    interface: str | None = None
    port: int = 0
    gateway: tuple[str, int] | None = None
    counters: Path | None = None
    component: str | None = None
    transport: TransportKind = TransportKind.UDP
    rdma: RdmaSettings | None = None
    fallback: bool = False
    netns: Path | None = None
    tunnel_address: str | None = None
    host_netns: Path | None = None


def namespace_path(name: str) -> Path:
    """Return the file of a namespace, given by its name or by an absolute path.

    >>> str(namespace_path("blue")), str(namespace_path("/proc/7/ns/net"))
    ('/run/netns/blue', '/proc/7/ns/net')
    """
    return NAMED / name


def parse_rnic_flag(text: str) -> dict[str, str]:
    """Split `rail=0,address=10.0.0.1,counters=/sys/…` into a table; `;` parts several.

    Raises
    ------
    ConfigError
        If a part is no `key=value`.
    """
    table: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"RNIC {text!r}: {part!r} is no key=value")
        table[key.strip()] = value.strip()
    return table


def rnic_tables(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    table: Mapping[str, Any],
    wrong: list[str],
) -> list[Mapping[str, Any]]:
    """Return the tables from flags, else from the environment, else from the file."""
    texts: Sequence[str] = flags.get("rnic") or ()
    if not texts:
        texts = [t for t in environment.get(ENV, "").split(";") if t.strip()]
    try:
        if texts:
            return [parse_rnic_flag(text) for text in texts]
    except ConfigError as error:
        wrong.append(str(error))
        return []
    tables = table.get("rnic", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        wrong.append("RNICs are given as [[agent.rnic]] tables")
        return []
    return tables


def checked_rnics(
    tables: Sequence[Mapping[str, Any]], container_id: str, wrong: list[str]
) -> tuple[RnicConfig, ...]:
    """Return the RNICs; what is wrong with them is noted."""
    if not 1 <= len(tables) <= MAX_RNICS:
        wrong.append(
            f"{len(tables)} RNICs: give 1 to {MAX_RNICS}, as [[agent.rnic]] tables or --rnic"
        )
    rnics = [_rnic(table, container_id, wrong) for table in tables[:MAX_RNICS]]
    unique: tuple[tuple[str, Callable[[RnicConfig], object]], ...] = (
        ("endpoint_id", lambda r: r.endpoint_id),
        ("component", lambda r: r.component or r.endpoint_id),
        ("address and port", lambda r: (r.netns, _place(r), r.port) if r.port else r.endpoint_id),
        ("device or interface", lambda r: (_place(r), r.address and r.endpoint_id)),
    )
    for what, of in unique:
        if len({of(r) for r in rnics}) != len(rnics):
            wrong.append(f"two RNICs have the same {what}")
    return tuple(rnics)


def _place(rnic: RnicConfig) -> str | tuple[str, int]:
    if rnic.address or rnic.interface:
        return rnic.address or str(rnic.interface)
    return ("", 0) if rnic.rdma is None else (rnic.rdma.device, rnic.rdma.port)


def _rnic(table: Mapping[str, Any], container_id: str, wrong: list[str]) -> RnicConfig:
    wrong.extend(no_such_setting("agent.rnic", k, sorted(_KEYS)) for k in table if k not in _KEYS)
    if "rail" not in table or not table.keys() & {"address", "interface", "device"}:
        wrong.append(
            f"RNIC {dict(table)!r}: rail is needed, and address, or the interface or RDMA device "
            "that has it"
        )
    rail = whole_number("RNIC rail", table.get("rail", 0), (0, MAX_RAIL), wrong)
    name = str(table.get("endpoint_id") or f"{container_id}/r{rail}")
    word = str(table.get("transport", "udp")).lower()
    if word not in BY_WORD:
        wrong.append(f"RNIC transport={word!r} must be one of {', '.join(BY_WORD)}")
    transport = BY_WORD.get(word, TransportKind.UDP)
    capabilities = CAPABILITIES[transport]
    gateway = _gateway(table.get("gateway"), wrong)
    if gateway is not None and not capabilities.gateway:
        words = " and ".join(row.word for row in CAPABILITIES.values() if row.gateway)
        wrong.append(f"RNIC {name}: only {words} goes through a gateway")
    namespaces = {key: _namespace(table, key) for key in ("netns", "host_netns")}
    tunnel = table.get("tunnel_address")
    if (namespaces["netns"] or tunnel) and (gateway or not capabilities.namespaces):
        words = " and ".join(row.word for row in CAPABILITIES.values() if row.namespaces)
        wrong.append(f"RNIC {name}: netns and tunnel_address are for {words} without gateway")
    address = table.get("address")
    if address is not None:
        address = ip_address("RNIC address", str(address), wrong)
    if gateway is not None and ":" in (address or ""):
        wrong.append(f"RNIC {name}: a gateway carries IPv4 only")
    interface = _interface(table, name, wrong)
    rdma = None
    if capabilities.address_form is AddressForm.QUEUE_PAIR:
        rdma = checked_rdma(table, name, address, wrong)
    else:
        only = [key for key in RDMA_KEYS if key in table]
        wrong.extend(f'RNIC {name}: {key} is for transport = "rdma"' for key in only)
    counters, component = table.get("counters"), table.get("component")
    if counters is None and rdma is not None:
        counters = INFINIBAND / rdma.device / "ports" / str(rdma.port)
    elif counters is None and interface is not None:
        counters = NET / interface / "statistics"
    return RnicConfig(
        rail=rail,
        endpoint_id=checked_id("endpoint_id", name, wrong),
        address=address,
        interface=interface,
        port=whole_number("RNIC port", table.get("port", 0), (0, 65_535), wrong),
        gateway=gateway,
        counters=Path(str(counters)) if counters else None,
        component=checked_id("component", str(component), wrong) if component else None,
        transport=transport,
        rdma=rdma,
        fallback=_has_fallback(table, name, transport, wrong),
        tunnel_address=ipv4_address("RNIC tunnel_address", str(tunnel), wrong) if tunnel else None,
        **namespaces,
    )


def _interface(table: Mapping[str, Any], name: str, wrong: list[str]) -> str | None:
    found = table.get("interface")
    if found is None:
        return None
    if not _INTERFACE.fullmatch(str(found)):
        wrong.append(f"RNIC {name}: interface={found!r} is no name of a network interface")
    against = table.keys() & {"address", "device", "gateway", "netns"}
    if against:
        wrong.append(
            f"RNIC {name}: interface gives the address of a network interface of the agent's own "
            f"namespace; it does not go with {', '.join(sorted(against))}"
        )
    return str(found)


def _has_fallback(
    table: Mapping[str, Any], name: str, transport: TransportKind, wrong: list[str]
) -> bool:
    fallback = CAPABILITIES[transport].fallback
    if fallback is None:
        return False
    word, given = CAPABILITIES[fallback].word, table.get("fallback", "none")
    if given not in ("none", word):
        wrong.append(f"RNIC {name}: fallback={given!r} must be none or {word}")
    return bool(given == word)


def _namespace(table: Mapping[str, Any], key: str) -> Path | None:
    name = table.get(key)
    return namespace_path(str(name)) if name else None


def _gateway(value: Any, wrong: list[str]) -> tuple[str, int] | None:
    if value is None or value == "":
        return None
    host, _, port = str(value).rpartition(":")
    return (
        ipv4_address("RNIC gateway", host, wrong),
        whole_number("RNIC gateway port", port, (1, 65_535), wrong),
    )
