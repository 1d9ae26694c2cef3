"""A device that is reset or gone while it is open: its port says so, and ends no agent.

No RNIC that can be pulled is at hand: the queue pairs here are played.
"""

from types import SimpleNamespace
from typing import Any

from probers.transports.rdma.port import Port, PortSettings, _Pair


class PlayedError(Exception):
    """What pyverbs raises."""


class PlayedQueue:
    """A queue pair whose device is away at first."""

    def __init__(self) -> None:
        self.away = True
        self.posted = 0

    def modify(self, _attributes: Any, _mask: int) -> None:
        """Bring it to another state."""
        self._ask()

    def to_rts(self, _attributes: Any) -> None:
        """Bring it to work."""
        self._ask()

    def post_recv(self, _request: Any) -> None:
        """Take a buffer."""
        self._ask()
        self.posted += 1

    def _ask(self) -> None:
        if self.away:
            raise PlayedError


def _port(queue: PlayedQueue) -> tuple[Port, _Pair]:
    port = Port.__new__(Port)
    port._lib = SimpleNamespace(  # type: ignore[assignment]
        enums=SimpleNamespace(IBV_QPS_RESET=0, IBV_QP_STATE=1),
        qp=SimpleNamespace(QPAttr=lambda **_: SimpleNamespace()),
        error=PlayedError,
    )
    port._settings = PortSettings(device="d", port=1, gid_index=0, slot_bytes=50)
    pair = _Pair(queue, 0, 50, 4, 7)
    pair.receives = [object()] * 4
    port._pairs = [pair]
    return port, pair


def test_a_queue_pair_that_cannot_be_renewed_is_tried_again() -> None:
    """Nothing is raised while the device is away; then all its buffers are there again."""
    queue = PlayedQueue()
    port, pair = _port(queue)
    pair.broken = True
    port._renew_broken()
    assert pair.broken
    queue.away = False
    port._renew_broken()
    assert not pair.broken
    assert queue.posted == len(pair.receives)
