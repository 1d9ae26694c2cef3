"""A target to probe, and its 5-tuples. Pure."""

from dataclasses import dataclass
from typing import Final

from probers.probing.pacing import fraction
from schemas.enums import Transport as TransportKind
from schemas.ids import path_id

# VXLAN's outer source port comes from the dynamic range (RFC 7348, section 5).
ENTROPY_FIRST: Final = 49_152
ENTROPY_COUNT: Final = 16_384


@dataclass(frozen=True, slots=True)
class FlowTarget:
    """One 5-tuple of one pair, as it is probed now.

    Equal only when the address is, too: an endpoint that comes back elsewhere is
    a new target. For RDMA the address is its GID, the port the number of its queue pair.
    """

    src: str
    dst: str
    flow: int
    address: str
    port: int
    transport: TransportKind
    entropy: int
    qkey: int | None = None

    @property
    def path_id(self) -> str:
        """The pair's id."""
        return path_id(self.src, self.dst)

    @property
    def key(self) -> tuple[str, str, int]:
        """What the flow is called, wherever it answers."""
        return self.src, self.dst, self.flow

    def __str__(self) -> str:
        return f"{self.src}>{self.dst}#{self.flow}"


def entropy_of(src: str, dst: str, flow: int) -> int:
    """Return the flow number in an encapsulation: fixed per flow, spread over flows."""
    return ENTROPY_FIRST + fraction(f"{src}>{dst}#{flow}", ENTROPY_COUNT)
