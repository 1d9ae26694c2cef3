"""Parses a line of `ovs-appctl dpctl/dump-flows`: what the flow matches and what it does. Pure.

Open vSwitch prints datapath flows of the kernel, of TC and of DPDK in one format: a list of
matches with nested parentheses, then statistics, then `actions:`. Only what says where packets to
an address go is kept. Any line is accepted: what is no flow is one of `Skipped`, and nothing is
raised.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from probers.overlay.address import Masked, ipv4_number, masked_ipv4, masked_mac

# A flow with every match of IPv4 spelled out has some 800 characters, one that floods
# to a hundred ports some thousands.
MAX_LINE_CHARS: Final = 16_384

# Matches, statistics and actions of one line, or arguments of one of them.
MAX_FIELDS: Final = 512
# set(tunnel(…flags(…))) in check_pkt_len in clone is 6 deep.
MAX_DEPTH: Final = 12
MAX_NUMBER_CHARS: Final = 18
_STRUCTURE: Final = re.compile(r"[(),]")
_FLOW: Final = re.compile(r"(?:ufid:|recirc_id\(|tunnel\(|ct_|skb_|dp_hash\(|in_port\()")
_PORT: Final = re.compile(r"[A-Za-z0-9_.@:-]+\Z")
# Actions without arguments that are no ports, and lead nowhere.
_BARE: Final = frozenset({"ct", "ct_clear", "pop_vlan", "pop_eth", "pop_nsh", "drop"})
# A probe is a small packet: it takes this branch.
_SMALL_PACKETS: Final = "le"


class Skipped(Enum):
    """Why a line is no flow."""

    # An empty line, or a title such as the name of a thread.
    TITLE = auto()
    TOO_LONG = auto()
    MALFORMED = auto()


class Kind(Enum):
    """What becomes of a packet."""

    # Encapsulated, for the VTEP `remote`, by `local` where that is said.
    TUNNEL = auto()
    # Out of a port as it is.
    PORT = auto()
    # Through the tables again, as `recirc_id`, with `mac` as destination where that is set.
    AGAIN = auto()
    # Handed to vswitchd, or something that is not understood.
    UNKNOWN = auto()


class Step(NamedTuple):
    """One thing that becomes of a packet or of a copy of it."""

    kind: Kind
    remote: int | None = None
    local: int | None = None
    recirc_id: int = 0
    mac: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A datapath flow, as far as it says where packets to an address go.

    A match that is None is not looked at by the flow. No `steps`: dropped. `used_s`
    is how long ago it was last used; None: never.
    """

    recirc_id: int
    decapsulated: bool
    eth_type: int | None
    eth_dst: Masked | None
    ip_dst: Masked | None
    ip_proto: int | None
    used_s: float | None
    offloaded: bool | None
    steps: tuple[Step, ...]


def parse_line(line: str) -> Flow | Skipped:
    """Return the flow of a line of a dump."""
    if len(line) > MAX_LINE_CHARS:
        return Skipped.TOO_LONG
    text = line.strip()
    if _FLOW.match(text) is None:
        return Skipped.TITLE if not text or text.startswith("flow-dump from") else Skipped.MALFORMED
    try:
        return _flow(split(text))
    except MalformedError:
        return Skipped.MALFORMED


def _flow(fields: list[str]) -> Flow:
    matches: dict[str, str] = {}
    statistics: dict[str, str] = {}
    actions: list[str] | None = None
    for field in fields:
        name, colon, value = field.partition(":")
        if actions is not None:
            if not field.startswith("dp-extra-info:"):
                actions.append(field)
        elif name == "actions" and colon:
            actions = [value.strip()]
        elif field.endswith(")"):
            matches.update(_matches(field))
        elif colon:
            statistics[name] = value
    if actions is None:
        raise MalformedError
    ipv4 = pairs(matches.get("ipv4", ""))
    eth_dst = pairs(matches.get("eth", "")).get("dst")
    return Flow(
        recirc_id=number(matches.get("recirc_id", "0")) or 0,
        decapsulated=bool(matches.get("tunnel")),
        eth_type=exact(matches.get("eth_type")),
        eth_dst=_known(masked_mac(eth_dst)) if eth_dst is not None else None,
        ip_dst=_known(masked_ipv4(ipv4["dst"])) if "dst" in ipv4 else None,
        ip_proto=exact(ipv4.get("proto")),
        used_s=seconds(statistics.get("used", "")),
        offloaded=_offloaded(statistics.get("offloaded"), statistics.get("dp")),
        steps=tuple(_Packet().run(actions)),
    )


def _matches(field: str) -> dict[str, str]:
    name, _, arguments = field[:-1].partition("(")
    if name != "encap":
        return {name: arguments}
    # What a VLAN tag is in front of.
    inner = (part.removesuffix(")").partition("(") for part in split(arguments))
    return {name: arguments for name, parenthesis, arguments in inner if parenthesis}


class _Packet:
    """Follows the actions of one packet, and those of its copies."""

    def __init__(self, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise MalformedError
        self.steps: list[Step] = []
        self._depth = depth
        self._tunnel: Step | None = None
        self._mac: int | None = None
        # The userspace datapath has written the outer header already.
        self._pushed = False

    def run(self, actions: list[str]) -> list[Step]:
        """Return what becomes of the packet."""
        acts: dict[str, Callable[[str], None]] = {
            "set": self._set,
            "recirc": self._again,
            "lb_output": self._out,
            "tnl_push": self._push,
            "clone": self._copy,
            "check_pkt_len": self._by_length,
            "userspace": self._unknown,
            "tnl_pop": self._unknown,
        }
        for action in actions:
            name, parenthesis, rest = action.partition("(")
            if name in acts:
                acts[name](rest.removesuffix(")"))
            elif not parenthesis and action not in _BARE:
                act = self._out if _PORT.match(action) else self._unknown
                act(action)
        if not self.steps and "drop" not in actions:
            # What we do not know may well forward: only what says that it drops, does.
            self._unknown("")
        return self.steps

    def _set(self, arguments: str) -> None:
        name, _, rest = arguments.partition("(")
        values = pairs(rest.removesuffix(")"))
        if name == "tunnel":
            self._tunnel = _encapsulated(values)
        elif name == "eth":
            mac = masked_mac(values.get("dst", ""))
            self._mac = self._mac if mac is None else mac.value

    def _again(self, arguments: str) -> None:
        recirc_id = number(arguments)
        if self._pushed:
            self._pushed = False
        elif recirc_id is None:
            self._unknown(arguments)
        else:
            self.steps.append(Step(Kind.AGAIN, recirc_id=recirc_id, mac=self._mac))

    def _out(self, _: str) -> None:
        if self._pushed:
            # The encapsulated packet leaves by the port of the underlay.
            self._pushed = False
        elif self._tunnel is not None:
            # Ports after this one get the packet as it is.
            self.steps.append(self._tunnel)
            self._tunnel = None
        else:
            self.steps.append(Step(Kind.PORT))

    def _push(self, arguments: str) -> None:
        self.steps.append(_pushed(arguments))
        self._pushed = True

    def _copy(self, arguments: str) -> None:
        self.steps.extend(_Packet(self._depth + 1).run(split(arguments)))

    def _by_length(self, arguments: str) -> None:
        for field in split(arguments):
            name, _, rest = field.partition("(")
            if name == _SMALL_PACKETS and rest.endswith(")"):
                self._copy(rest[:-1])
                return
        self._unknown(arguments)

    def _unknown(self, _: str) -> None:
        self.steps.append(Step(Kind.UNKNOWN))


def _pushed(arguments: str) -> Step:
    """Read the outer header that a tunnel port of the userspace datapath writes."""
    for field in split(arguments):
        if field.startswith("header("):
            for part in split(field.removeprefix("header(").removesuffix(")")):
                if part.startswith("ipv4("):
                    return _encapsulated(pairs(part.removeprefix("ipv4(").removesuffix(")")))
    return Step(Kind.UNKNOWN)


def _encapsulated(outer: Mapping[str, str]) -> Step:
    remote = ipv4_number(outer.get("dst", ""))
    if remote is None:
        return Step(Kind.UNKNOWN)  # over IPv6, say
    return Step(Kind.TUNNEL, remote=remote, local=ipv4_number(outer.get("src", "")))


def _known(masked: Masked | None) -> Masked | None:
    """Return a match; None where its mask lets everything pass.

    Raises
    ------
    MalformedError
        If it is no address: taken for a wildcard, it would match what it must not.
    """
    if masked is None:
        raise MalformedError
    return masked if masked.mask else None


def _offloaded(said: str | None, datapath: str | None) -> bool | None:
    """Return what the line itself says; `partial` still costs the host's CPU every packet.

    Versions that name the datapath leave out `offloaded:` where it would be "no".
    """
    if said is not None:
        return said == "yes" if said in ("yes", "no", "partial") else None
    return None if datapath is None else False


class MalformedError(Exception):
    """The text breaks off, nests too deep, or is not what it has to be."""


def split(text: str) -> list[str]:
    """Part a list at its commas, but not within parentheses.

    Raises
    ------
    MalformedError
        If parentheses do not pair, or there are more of them or of fields than any flow has.

    Examples
    --------
    >>> split("in_port(2),set(tunnel(dst=10.0.0.9,flags(df|key))),3")
    ['in_port(2)', 'set(tunnel(dst=10.0.0.9,flags(df|key)))', '3']
    """
    parts: list[str] = []
    depth = start = 0
    for found in _STRUCTURE.finditer(text):
        sign, at = found.group(), found.start()
        if sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
        elif depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        if not 0 <= depth <= MAX_DEPTH or len(parts) >= MAX_FIELDS:
            raise MalformedError
    if depth:
        raise MalformedError
    parts.append(text[start:].strip())
    return parts


def pairs(arguments: str) -> dict[str, str]:
    """Return the `name=value` parts of a list.

    >>> pairs("src=10.0.0.1,dst=10.0.0.9/24,flags(+key)")
    {'src': '10.0.0.1', 'dst': '10.0.0.9/24'}
    """
    parts = (field.partition("=") for field in split(arguments)) if arguments else ()
    return {name: value for name, equals, value in parts if equals}


def exact(text: str | None) -> int | None:
    """Return a number that is matched in full; None: it is not looked at."""
    if text is None:
        return None
    value, slash, mask = text.partition("/")
    whole = number(value)
    if whole is None or (slash and number(mask) is None):
        raise MalformedError
    return None if slash and number(mask) == 0 else whole


def number(text: str) -> int | None:
    """Return a decimal number, or a hexadecimal one after 0x."""
    digits = text.strip()
    if not 0 < len(digits) <= MAX_NUMBER_CHARS or not digits.isascii() or not digits.isalnum():
        return None
    try:
        return int(digits, 16 if digits[:2] in ("0x", "0X") else 10)
    except ValueError:
        return None


def seconds(text: str) -> float | None:
    """Return `0.260s` as a number; None for anything else, `never` among it."""
    digits = text.removesuffix("s")
    whole, _, part = digits.partition(".")
    if len(digits) > MAX_NUMBER_CHARS or not (whole + part).isascii() or not whole.isdigit():
        return None
    return float(digits) if not part or part.isdigit() else None
