"""The messages between the agent and the child that reads the tables: JSON. Pure.

Both ends are this program, but answers are made from the output of other programs. So the agent
accepts what has the right form and drops the rest.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

# 20,000 destinations of 60 bytes; more is no answer of ours.
MAX_ANSWER_BYTES: Final = 4 * 2**20
MAX_TROUBLE_CHARS: Final = 200


class Way(StrEnum):
    """Where a host's tables send packets to an address."""

    TUNNEL = "TUNNEL"
    LOCAL = "LOCAL"
    # The virtual switch has an entry that drops, or the VTEP none for the address.
    VSWITCH_DROPS = "VSWITCH_DROPS"
    VTEP_DROPS = "VTEP_DROPS"


@dataclass(frozen=True, slots=True)
class Destination:
    """An address that is in use; `local`: on this host. `mac` as it was known last."""

    address: str
    local: bool = False
    mac: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What to read: command lines by purpose, and for which destinations.

    `devices` are the VXLAN devices of the forwarding database.
    """

    source: str
    commands: Mapping[str, tuple[str, ...]]
    timeout_s: float
    destinations: tuple[Destination, ...]
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Where packets to an address go; what is not known is no finding.

    `remote` is the VTEP they are sent to, `local` the one that sends them.
    """

    address: str
    way: Way
    remote: str | None = None
    local: str | None = None
    offloaded: bool | None = None


@dataclass(slots=True)
class Answer:
    """What was read; `troubles`: what could not be.

    `read` says whether the tables were read whole: only then do findings count.
    """

    read: bool = False
    findings: list[Finding] = field(default_factory=list)
    macs: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)


def pack_request(request: Request) -> bytes:
    """Return the bytes of a request."""
    return json.dumps(
        {
            "source": request.source,
            "commands": dict(request.commands),
            "timeout_s": request.timeout_s,
            "devices": request.devices,
            "destinations": [[d.address, d.local, d.mac] for d in request.destinations],
        }
    ).encode()


def unpack_request(data: bytes) -> Request:
    """Return the request.

    Raises
    ------
    ValueError, KeyError, TypeError
        If the agent wrote something else: a mistake of ours.
    """
    found = json.loads(data)
    return Request(
        source=found["source"],
        commands={name: tuple(line) for name, line in found["commands"].items()},
        timeout_s=float(found["timeout_s"]),
        devices=tuple(found["devices"]),
        destinations=tuple(Destination(*d) for d in found["destinations"]),
    )


def pack_answer(answer: Answer) -> bytes:
    """Return the bytes of an answer."""
    return json.dumps(
        {
            "read": answer.read,
            "findings": [
                [f.address, f.way, f.remote, f.local, f.offloaded] for f in answer.findings
            ],
            "macs": answer.macs,
            "counts": answer.counts,
            "troubles": [t[:MAX_TROUBLE_CHARS] for t in answer.troubles],
        }
    ).encode()


def unpack_answer(data: bytes) -> Answer | None:
    """Return the answer; None where it is none."""
    if len(data) > MAX_ANSWER_BYTES:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    rows = found.get("findings")
    findings = [_finding(row) for row in rows] if isinstance(rows, list) else []
    troubles = found.get("troubles")
    return Answer(
        read=found.get("read") is True,
        findings=[f for f in findings if f is not None],
        macs={k: v for k, v in _table(found.get("macs")).items() if isinstance(v, str)},
        counts={k: v for k, v in _table(found.get("counts")).items() if isinstance(v, int)},
        troubles=[str(t) for t in troubles] if isinstance(troubles, list) else [],
    )


def _finding(row: object) -> Finding | None:
    if not isinstance(row, list) or len(row) != 5:
        return None
    address, way, remote, local, offloaded = row
    texts = isinstance(address, str) and all(
        t is None or isinstance(t, str) for t in (remote, local)
    )
    if not texts or way not in list(Way) or not (offloaded is None or isinstance(offloaded, bool)):
        return None
    return Finding(address, Way(way), remote, local, offloaded)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
