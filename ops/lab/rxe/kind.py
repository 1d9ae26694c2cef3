"""What an rxe lab needs of this machine, and where its agents find the brokers."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from ops.lab.errors import LabError
from ops.lab.netns.plan import underlay_address
from ops.lab.preflight import broker_addresses
from ops.lab.rxe.plan import MAX_RNICS, device
from ops.lab.shape import EndpointSpec, LabShape, ShapeError
from ops.lab.vm.packages import GUEST_PYTHON, why_no_machine
from schemas.kafka.connection import KafkaSettings

# Three pods, so that the cable of each can be told from those of the others; one spine:
# paths of RDMA pairs are known from the topology, which knows them where there is one.
SHAPE: Final = LabShape(hosts=6, rails=1, pods=3, leaves=1, spines=1)
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
# Emulated: an agent answers within some ms, and within some hundred when others are busy.
OPTIONS: Final[Mapping[str, Any]] = {
    # Five answers in a window of 10 s: with fewer than four it tells nothing of delay.
    "interval_ms": 2_000,
    "timeout_ms": 2_000,
    # All the time there is: thirty probes at once would wait for each other.
    "spread_ms": 2_000,
    "heartbeat_ms": 4_000,
    "flows": 1,
    "probe_bytes": 1_024,
    # Ten samples a second are more than half of what an agent costs.
    "counters_hz": 0,
    # A GID is looked at every third time: a verdict that is still young learns of it.
    "states_s": 4,
}


def why_no_rxe() -> str | None:
    """Return why this machine cannot have a lab of Soft-RoCE; None: at a first look it can."""
    if not sys.platform.startswith("linux"):
        return "the machine is made of Debian's packages: Linux is needed"
    if sys.version_info[:2] != GUEST_PYTHON:
        wanted = ".".join(map(str, GUEST_PYTHON))
        return f"agents in the machine need Python {wanted}, as its pyverbs; this is another one"
    return why_no_machine()


def checked_shape(shape: LabShape) -> None:
    """Refuse what an emulated processor cannot carry.

    Raises
    ------
    ShapeError
        If there are too many RNICs.
    """
    if len(shape.endpoints) > MAX_RNICS:
        raise ShapeError(
            f"{len(shape.endpoints)} RNICs: an rxe lab has {MAX_RNICS} at most, "
            "whose agents share one emulated processor"
        )


def rnic_table(e: EndpointSpec) -> dict[str, str | int]:
    """Return the `[[agent.rnic]]` table of an endpoint."""
    return {
        "rail": e.rail,
        "address": underlay_address(e),
        "transport": "rdma",
        "device": device(e),
        "endpoint_id": e.endpoint_id,
    }


def forwarded_ports(settings: KafkaSettings) -> tuple[int, ...]:
    """Return the ports of this host's loopback that agents in the machine are to reach.

    Raises
    ------
    LabError
        If broker or registry are elsewhere.
    """
    addresses = [_split(one) for one in settings.bootstrap.split(",")]
    addresses += broker_addresses(settings)
    if settings.registry_url is not None:
        url = urlsplit(settings.registry_url)
        addresses.append((url.hostname or "", url.port or (443 if url.scheme == "https" else 80)))
    return _on_loopback(addresses)


def _on_loopback(addresses: Iterable[tuple[str, int]]) -> tuple[int, ...]:
    found = sorted(set(addresses))
    for host, port in found:
        if host not in LOOPBACK_HOSTS:
            raise LabError(
                f"{host}:{port}: agents of an rxe lab reach only what listens on this host's "
                "loopback; `skeletonhunter broker run` starts such a broker"
            )
    return tuple(sorted({port for _, port in found}))


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.strip().rpartition(":")
    return host.strip("[]"), int(port)
