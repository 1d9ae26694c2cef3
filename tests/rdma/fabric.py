"""Soft-RoCE RNICs on one switch, made inside the guest. Run there as root, with iproute2.

All RNICs are in the guest's first network namespace: Soft-RoCE of these kernels works in no other;
the switch is a bridge in a namespace of its own. So that packets between two addresses of one
host go over the wire, each address has its own routing table, and local delivery is
decided by where a packet came in.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SWITCH: Final = "fab"
NETWORK: Final = "10.9.0"
_SETTINGS: Final = (
    "net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.all.accept_dad=0",
    "net.ipv4.conf.all.rp_filter=0",
)  # fmt: skip
# Before ARP entries of dead peers are given up, the kernel asks three times, a second apart.
_OF_INTERFACE: Final = ("accept_local=1", "rp_filter=0", "arp_ignore=1", "arp_announce=2")


def run(*command: str) -> str:
    """Run a command and return what it printed.

    Raises
    ------
    RuntimeError
        If it fails; with its own words.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def address(number: int) -> str:
    """Return the address of an RNIC."""
    return f"{NETWORK}.{number + 1}"


def make_fabric(rnics: int) -> None:
    """Make rxe0 … on e0 …, joined by p0 … of the switch."""
    _set(_SETTINGS)
    run("ip", "netns", "add", SWITCH)
    run("ip", "-n", SWITCH, "link", "add", "br0", "type", "bridge")
    run("ip", "-n", SWITCH, "link", "set", "br0", "up")
    for number in range(rnics):
        _join(number)
    run("ip", "rule", "add", "pref", "100", "lookup", "local")
    run("ip", "rule", "del", "pref", "0")
    for number in range(rnics):
        run("rdma", "link", "add", f"rxe{number}", "type", "rxe", "netdev", f"e{number}")


def shape(interface: str, *discipline: str, switch: bool = False) -> None:
    """Give an interface a queueing discipline (`netem delay 20ms`); none: take it away.

    Taken away and put there anew: a change of netem loses what it counted.
    """
    where = ("ip", "netns", "exec", SWITCH) if switch else ()
    subprocess.run([*where, "tc", "qdisc", "del", "dev", interface, "root"], check=False,
                   capture_output=True)  # fmt: skip
    if discipline:
        run(*where, "tc", "qdisc", "add", "dev", interface, "root", *discipline)


def dropped(interface: str, *, switch: bool = False) -> int:
    """Return how many packets an interface's discipline has dropped."""
    where = ("ip", "netns", "exec", SWITCH) if switch else ()
    told = run(*where, "tc", "-s", "qdisc", "show", "dev", interface)
    return int(told.split("dropped ")[1].split(",")[0])


def _join(number: int) -> None:
    end, port, own = f"e{number}", f"p{number}", address(number)
    mac = f"02:00:00:00:00:{number + 1:02x}"
    run("ip", "link", "add", end, "address", mac, "type", "veth", "peer", "name", port,
        "netns", SWITCH)  # fmt: skip
    _set([f"net.ipv4.conf.{end}.{setting}" for setting in _OF_INTERFACE])
    run("ip", "-n", SWITCH, "link", "set", port, "master", "br0", "up")
    run("ip", "address", "add", f"{own}/24", "dev", end)
    run("ip", "link", "set", end, "up")
    table = str(101 + number)
    run("ip", "rule", "add", "pref", "5", "iif", end, "lookup", "local")
    run("ip", "rule", "add", "pref", "10", "from", own, "lookup", table)
    run("ip", "route", "add", f"{NETWORK}.0/24", "dev", end, "src", own, "table", table)


def _set(settings: Sequence[str]) -> None:
    for setting in settings:
        name, _, value = setting.partition("=")
        Path("/proc/sys", *name.split(".")).write_text(value, encoding="ascii")
