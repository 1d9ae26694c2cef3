"""The interface between a lab's process and its network."""

from collections.abc import Mapping
from typing import Any, Protocol

from ops.lab.faultboard import ActiveFault
from ops.lab.faults import FaultSpec
from ops.lab.truth import Truth
from schemas.records import FlowTable


class Network(Protocol):
    """The network of one kind of lab."""

    @property
    def active(self) -> Mapping[str, ActiveFault]:
        """Faults in force by id."""
        ...

    def addresses(self) -> dict[str, str]:
        """Return the addresses by which traces know nodes, and those of endpoints, by id."""
        ...

    def table(self, host: int, *, cluster: str, captured_at: int) -> FlowTable | None:
        """Return the forwarding tables of a host's virtual nodes as they are; None: no overlay."""
        ...

    def inject(self, fault_id: str, spec: FaultSpec) -> Truth:
        """Put a checked fault in; return the line of truth.

        Raises
        ------
        FaultError
            If it is none of this network's.
        """
        ...

    def heal(self, fault_id: str) -> Truth:
        """Take a fault out; return the line of truth; raises KeyError."""
        ...

    def status(self) -> dict[str, Any]:
        """Return what the network has counted: `relayed`, `dropped`, `answered`, `links`."""
        ...

    def close(self) -> None:
        """Remove everything."""
        ...
