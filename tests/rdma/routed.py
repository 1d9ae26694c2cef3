"""Two more Soft-RoCE RNICs inside the guest, one routed hop apart, over IPv4 and IPv6.

Their switch ports stand beside the bridge of `fabric`, in the same namespace, which forwards
between them; as there, each address has its own routing table.
"""

from typing import Final

from tests.rdma.fabric import SWITCH, run

RNICS: Final = (3, 4)
# By family: what `ip` takes, the settings that make a router, and how much of an address is net.
_FLAGS: Final = {"ipv4": (), "ipv6": ("-6",)}
_SETTINGS: Final = {
    "ipv4": ("net/ipv4/ip_forward=1", "net/ipv4/icmp_ratelimit=0"),
    "ipv6": ("net/ipv6/conf/all/forwarding=1", "net/ipv6/icmp/ratelimit=0"),
}
_BITS: Final = {"ipv4": 24, "ipv6": 64}
_INTERFACE: Final = (
    "ipv4/conf/{}/accept_local=1", "ipv4/conf/{}/rp_filter=0", "ipv4/conf/{}/arp_ignore=1",
)  # fmt: skip


def routed_address(number: int, family: str) -> str:
    """Return the address of an RNIC."""
    return f"10.9.1{number}.1" if family == "ipv4" else f"fd09:1{number}::1"


def gateway(number: int, family: str) -> str:
    """Return the address of the router before an RNIC."""
    return f"10.9.1{number}.254" if family == "ipv4" else f"fd09:1{number}::fe"


def make_routed() -> None:
    """Make rxe3 on e3 and rxe4 on e4; `make_fabric` comes first."""
    run("ip", "-6", "rule", "add", "pref", "100", "lookup", "local")
    run("ip", "-6", "rule", "del", "pref", "0")
    for settings in _SETTINGS.values():
        _set(settings, switch=True)
    for number in RNICS:
        end, port = f"e{number}", f"p{number}"
        mac = f"02:00:00:00:00:{number + 1:02x}"
        run("ip", "link", "add", end, "address", mac, "type", "veth", "peer", "name", port,
            "netns", SWITCH)  # fmt: skip
        _set(tuple("net/" + setting.format(end) for setting in _INTERFACE), switch=False)
        run("ip", "-n", SWITCH, "link", "set", port, "up")
        run("ip", "link", "set", end, "up")
        for family in _FLAGS:
            _address(number, family)
        run("rdma", "link", "add", f"rxe{number}", "type", "rxe", "netdev", end)


def _address(number: int, family: str) -> None:
    end, port, table = f"e{number}", f"p{number}", str(101 + number)
    own, router, bits = routed_address(number, family), gateway(number, family), _BITS[family]
    flag = _FLAGS[family]
    at_once = ("nodad",) if flag else ()
    run("ip", "-n", SWITCH, "address", "add", f"{router}/{bits}", "dev", port, *at_once)
    run("ip", "address", "add", f"{own}/{bits}", "dev", end, *at_once)
    run("ip", *flag, "rule", "add", "pref", "5", "iif", end, "lookup", "local")
    run("ip", *flag, "rule", "add", "pref", "10", "from", own, "lookup", table)
    run("ip", *flag, "route", "add", f"{router}/{32 if not flag else 128}", "dev", end,
        "table", table)  # fmt: skip
    run("ip", *flag, "route", "add", "default", "via", router, "dev", end, "src", own,
        "table", table)  # fmt: skip


def _set(settings: tuple[str, ...], *, switch: bool) -> None:
    where = ("ip", "netns", "exec", SWITCH) if switch else ()
    for setting in settings:
        name, _, value = setting.partition("=")
        run(*where, "sh", "-c", f"echo {value} > /proc/sys/{name}")
