"""Lines of dumps of flows, as Open vSwitch prints them, and destinations that they are about."""

from probers.overlay.flows import FlowIndex
from probers.overlay.megaflow import Flow, parse_line
from probers.overlay.wire import Destination, Finding

WILD = (
    "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),"
    "{recirc}dp_hash(0/0),in_port({port}),packet_type(ns=0/0,id=0/0),"
    "eth(src=02:00:00:00:00:01,dst={mac}),eth_type(0x0800),"
    "ipv4(src=0.0.0.0/0.0.0.0,dst={ip},proto=0/0,tos=0/0,ttl=0/0,frag=no)"
)
UFID = "ufid:ae7ab84e-142c-4def-b037-e808e4a9ddec, "
REMOTE = Destination("10.1.0.9", mac="02:00:00:00:00:09")
LOCAL = Destination("10.1.0.1", local=True, mac="02:00:00:00:00:01")
TO_VTEP = "set(tunnel(tun_id=0x2a,src=10.9.0.1,dst=10.9.0.9,ttl=64,tp_dst=4789,flags(df|key))),4"
# A DPDK datapath writes the outer header itself.
PUSH = (
    "tnl_push(tnl_port(5),header(size=50,type=4,eth(dst=0c:42:a1:00:00:02,src=0c:42:a1:00:00:01,"
    "dl_type=0x0800),ipv4(src=10.9.0.1,dst=10.9.0.9,proto=17,tos=0,ttl=64,frag=0x4000),"
    "udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x2a)),out_port(1))"
)


def kernel(
    actions: str,
    *,
    mac: str = "02:00:00:00:00:09",
    ip: str = "0.0.0.0/0.0.0.0",
    recirc: int = 0,
    tunnel: bool = False,
    said: str = "dp:ovs, ",
    used: str = "0.260s",
) -> str:
    """Return a line as `-m` prints it for the kernel's datapath and for TC."""
    key = "tunnel(tun_id=0x2a,src=10.9.0.9,dst=10.9.0.1,ttl=0/0,tp_dst=4789,flags(+key))," * tunnel
    key += f"recirc_id({recirc:#x})," if recirc else "recirc_id(0),"
    match = WILD.format(recirc=key, port="vf0_rep", mac=mac, ip=ip)
    return f"{UFID}{match}, packets:9, bytes:882, used:{used}, {said}actions:{actions}"


def flow(line: str) -> Flow:
    """Return the flow of a line, which has to be one."""
    found = parse_line(line)
    assert isinstance(found, Flow), found
    return found


def find(
    destination: Destination, *software: str, offloaded: tuple[str, ...] = ()
) -> Finding | None:
    """Return what the flows of both tables say of a destination."""
    index = FlowIndex([REMOTE, LOCAL])
    for hardware, lines in ((True, offloaded), (False, software)):
        for line in lines:
            index.add(flow(line), hardware=hardware)
    return index.find(destination)
