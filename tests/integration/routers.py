"""Kernel routers in network namespaces, for traces over IPv4 and IPv6."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from probers.config.rnics import namespace_path
from probers.host import netns
from probers.probing.trace import FinishedTrace, Tracer
from probers.transports.base import Completion, Probe, Transport

T = TypeVar("T")
TIMEOUT_NS = 250 * 10**6

# Marks of a module whose tests make namespaces.
NEEDS_NAMESPACES = [
    pytest.mark.root,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None,
        reason="needs root and iproute2 for network namespaces",
    ),
]


def ip(*arguments: str) -> None:
    """Run an ip command."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def inside(namespace: str, work: Callable[[], T]) -> T:
    """Do something in a network namespace; sockets opened there stay there."""
    return netns.inside(namespace_path(namespace), work)


@dataclass(frozen=True)
class Plan:
    """The addresses of one family: `network` of a link and host number, and what forwards."""

    network: str
    bits: int
    host_bits: int
    forwarding: str
    hash_policy: str
    icmp_limit: str
    flag: tuple[str, ...]

    def at(self, link: int, host: int) -> str:
        """Return the address of a link's left (1) or right (2) end."""
        return self.network.format(link, host)

    def address(self, namespace: str, interface: str, link: int, host: int) -> None:
        """Give an interface its address, and set it up."""
        # IPv6 would not use it for a second, while it looks for duplicates.
        at_once = ("nodad",) if self.flag else ()
        ip("-n", namespace, "addr", "add", f"{self.at(link, host)}/{self.bits}",
           "dev", interface, *at_once)  # fmt: skip
        ip("-n", namespace, "link", "set", interface, "up")

    @property
    def hops(self) -> list[str]:
        """Return what a trace from host a to host b shows."""
        return [self.at(link, 2) for link in range(3)]


PLANS = {
    "ipv4": Plan("10.7.{}.{}", 30, 32, "ipv4/ip_forward", "ipv4/fib_multipath_hash_policy",
                 "ipv4/icmp_ratelimit", ()),
    "ipv6": Plan(
        "fd07:8{}::{}", 64, 128,
        "ipv6/conf/all/forwarding", "ipv6/fib_multipath_hash_policy", "ipv6/icmp/ratelimit",
        ("-6",),
    ),
}  # fmt: skip


def sysctl(namespace: str, name: str, value: str) -> None:
    """Write below /proc/sys/net of a namespace."""

    def write() -> None:
        Path("/proc/sys/net", name).write_text(value, encoding="ascii")

    inside(namespace, write)


def traced(
    tracer: Tracer,
    near: Transport,
    turn: Callable[[], list[Completion]],
    timeout_ns: int = TIMEOUT_NS,
) -> list[FinishedTrace]:
    """Run a tracer until what it has begun is over."""
    tokens = 0
    under_way = 0
    finished: list[FinishedTrace] = []
    while True:
        for order in tracer.due(time.monotonic_ns()):
            tokens += 1
            under_way += 1
            tracer.sent(tokens, order)
            target = order.target
            near.send(
                Probe(
                    token=tokens,
                    address=target.address,
                    port=target.port,
                    flow=target.flow,
                    entropy=target.entropy,
                    timeout_ns=timeout_ns,
                    ttl=order.ttl,
                    qkey=target.qkey,
                )
            )
        for completion in turn():
            under_way -= 1
            tracer.completed(completion, time.monotonic_ns())
        finished.extend(tracer.finished())
        if not under_way:
            return finished
