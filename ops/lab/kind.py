"""The kinds of lab: what each needs of the machine, and how its agents are configured."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ops.lab.counters import counters_dir
from ops.lab.errors import LabUsageError
from ops.lab.fabric import LOOPBACK
from ops.lab.fault_kinds import LOOPBACK_LAB, NETNS_LAB, RXE_LAB
from ops.lab.faults import near
from ops.lab.netns.commands import refusal
from ops.lab.netns.plan import (
    AGENT_PORT,
    namespace_name,
    overlay_address,
    prefix_of,
    underlay_address,
)
from ops.lab.ports import free_udp_ports
from ops.lab.rxe import kind as rxe
from ops.lab.shape import EndpointSpec, LabShape

# Larger than what a port lets through whose MTU is wrong, smaller than the overlay's MTU.
NETNS_PROBE_BYTES: Final = 1_024

# A small machine can run it. With two leaves in a pod, a spine that has lost one cable
# still forwards something: with one leaf, the two could not be told apart.
SUITE_SHAPE: Final = LabShape(hosts=4, rails=2, pods=2, leaves=2, spines=2)

HARD_BAR_S: Final = 3.0

RnicTable = Mapping[str, str | int]


def why_no_netns() -> str | None:
    """Return why this machine cannot have a lab of namespaces; None: it can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "bridge", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: install iproute2"
    return refusal(f"skh-try-{os.getpid()}")


def always() -> str | None:
    """Say that nothing is missing."""
    return None


@dataclass(frozen=True, slots=True)
class LabKind:
    """A kind of lab.

    `missing` says why this machine cannot have one. `ports` chooses where endpoints
    listen. `rnic` makes the `[[agent.rnic]]` table of an endpoint, given the lab's folder,
    the ports and the fabric's addresses. `options` are for its agents.

    `shape` is what it has unless told otherwise, `suite` that of `lab suite`. With `machine`,
    agents run in a machine of their own, which takes longer to come up and is fetched first.
    `hard_bar_s` is how soon hard faults are to be opened in the median; None: measured only.
    Verdicts are waited for `patience` times as long as in a lab that is not emulated.
    """

    name: str
    missing: Callable[[], str | None]
    ports: Callable[[LabShape], dict[str, int]]
    rnic: Callable[[EndpointSpec, Path, Mapping[str, int], Mapping[str, str]], RnicTable]
    options: Mapping[str, Any]
    shape: LabShape = field(default_factory=LabShape)
    suite: LabShape = SUITE_SHAPE
    machine: bool = False
    hard_bar_s: float | None = HARD_BAR_S
    patience: float = 1.0


def _loopback_ports(shape: LabShape) -> dict[str, int]:
    free = free_udp_ports(len(shape.endpoints))
    return {e.endpoint_id: port for e, port in zip(shape.endpoints, free, strict=True)}


def _loopback_rnic(
    e: EndpointSpec, folder: Path, ports: Mapping[str, int], addresses: Mapping[str, str]
) -> RnicTable:
    return {
        "rail": e.rail,
        "address": LOOPBACK,
        "port": ports[e.endpoint_id],
        "gateway": addresses[e.vswitch_id],
        "counters": str(counters_dir(folder / "sys", e.host, e.rail)),
        "endpoint_id": e.endpoint_id,
    }


def _netns_ports(shape: LabShape) -> dict[str, int]:
    return {e.endpoint_id: AGENT_PORT for e in shape.endpoints}


def _netns_rnic(
    e: EndpointSpec, folder: Path, ports: Mapping[str, int], _addresses: Mapping[str, str]
) -> RnicTable:
    prefix = prefix_of(folder)
    return {
        "rail": e.rail,
        "address": overlay_address(e),
        "port": ports[e.endpoint_id],
        "counters": f"/sys/class/net/r{e.rail}/statistics",
        "endpoint_id": e.endpoint_id,
        "netns": namespace_name(prefix, e.container_id),
        "tunnel_address": underlay_address(e),
        "host_netns": namespace_name(prefix, e.host_id),
    }


def _rxe_ports(shape: LabShape) -> dict[str, int]:
    """Return no ports: queue pairs have numbers of their own, which endpoints register."""
    rxe.checked_shape(shape)
    return {}


def _rxe_rnic(
    e: EndpointSpec, _folder: Path, _ports: Mapping[str, int], _addresses: Mapping[str, str]
) -> RnicTable:
    return rxe.rnic_table(e)


LAB_KINDS: Final[dict[str, LabKind]] = {
    kind.name: kind
    for kind in (
        LabKind(LOOPBACK_LAB, always, _loopback_ports, _loopback_rnic, {}),
        LabKind(
            NETNS_LAB,
            why_no_netns,
            _netns_ports,
            _netns_rnic,
            {"probe_bytes": NETNS_PROBE_BYTES},
        ),
        LabKind(
            RXE_LAB,
            rxe.why_no_rxe,
            _rxe_ports,
            _rxe_rnic,
            rxe.OPTIONS,
            shape=rxe.SHAPE,
            suite=rxe.SHAPE,
            machine=True,
            # Agents that are emulated are late by themselves.
            hard_bar_s=None,
            patience=3.0,
        ),
    )
}


def lab_kind(name: str) -> LabKind:
    """Return the kind of that name.

    Raises
    ------
    LabUsageError
        If there is none.
    """
    kind = LAB_KINDS.get(name)
    if kind is None:
        raise LabUsageError(f"no kind of lab {name!r}; {near(name, list(LAB_KINDS))}")
    return kind
