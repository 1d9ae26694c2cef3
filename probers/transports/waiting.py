"""Waits until one of the agent's descriptors has something.

Where the work per packet is in C, packets are taken in and probes answered while the agent sleeps.
It wakes for what Python has to do: another descriptor, errors, a flood, a probe that was not
answered as it should. Probes that were answered wait until it wakes anyway. Counters are sampled
meanwhile as well: each of ten times a second that Python wakes is a tenth of a millisecond or two.
"""

import select
import selectors
from typing import TYPE_CHECKING

from probers.host.sampling import Tick, Ticks
from probers.transports.base import Transport
from probers.transports.datagrams import native
from probers.transports.udp import UdpTransport

if TYPE_CHECKING:
    from probers.transports._datagrams import Datagrams


class Waiter:
    """Descriptors, each of a transport, or of something else (None)."""

    def __init__(self) -> None:
        self._transports: dict[int, Transport | None] = {}
        # Those whose packets C takes in.
        self._datagrams: dict[int, Datagrams] = {}
        self._epoll = None if native is None else select.epoll()
        self._selector = selectors.DefaultSelector() if native is None else None

    @property
    def samples(self) -> bool:
        """Whether it can sample counters while it waits."""
        return self._epoll is not None

    def watch(self, descriptor: int, transport: Transport | None) -> None:
        """Wait for that descriptor as well from now on."""
        self._transports[descriptor] = transport
        if self._selector is not None:
            self._selector.register(descriptor, selectors.EVENT_READ)
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLIN)
            if isinstance(transport, UdpTransport) and isinstance(
                transport.datagrams, native.Datagrams
            ):
                self._datagrams[descriptor] = transport.datagrams

    def forget(self, descriptor: int) -> None:
        """Wait for it no more; before it is closed."""
        del self._transports[descriptor]
        self._datagrams.pop(descriptor, None)
        if self._selector is not None:
            self._selector.unregister(descriptor)
        if self._epoll is not None:
            self._epoll.unregister(descriptor)

    def wait(
        self, wait_ns: int, ticks: Ticks | None = None
    ) -> tuple[list[Transport | None], list[Tick]]:
        """Wait so long at most, and sample counters meanwhile.

        Parameters
        ----------
        ticks : when to sample, and which files; None: nothing is sampled. Only for where
            `samples`

        Returns
        -------
        Whose descriptors Python has to look at, and what the counters said at each tick. A wait
        ends with the second, too, and with a tick that Python has to look at.
        """
        ready: list[int] = []
        taken: list[Tick] = []
        if self._epoll is not None:
            ready, taken = native.wait(self._epoll.fileno(), self._datagrams, wait_ns, ticks)
        elif self._selector is not None:
            ready = [key.fd for key, _ in self._selector.select(wait_ns / 1e9)]
        return [self._transports[descriptor] for descriptor in ready], taken

    def close(self) -> None:
        """Close what waits; the descriptors stay open."""
        if self._epoll is not None:
            self._epoll.close()
        if self._selector is not None:
            self._selector.close()
