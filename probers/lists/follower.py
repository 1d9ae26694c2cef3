"""Follows the agent's ping list: which lists are accepted, and which targets are active. Pure.

A target becomes active when its endpoint has registered. Until then it is not probed and raises
no false alarm (SkeletonHunter's initialization phase). A list is accepted or refused as a whole.
A single target that cannot be probed is left out and counted: one bad line does not stop an
agent.
"""

import ipaddress
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from probers.config.checks import unicast
from probers.lists.directory import Directory
from probers.probing.plan import FlowTarget, entropy_of
from schemas.ids import check_id
from schemas.records import Endpoint, PingList, PingTarget
from schemas.transports import CAPABILITIES, AddressForm

# 2,048 RNICs probed full-mesh per rail from 8 RNICs are 2,040 targets; eight
# times that is a mistake, and the memory of an agent is 35 MB.
MAX_TARGETS: Final = 16_384
# The skeleton job counts versions from 1, a list an agent a second at most.
MAX_VERSION: Final = 2**31 - 1
# How far a version may lie ahead of the one before: lists that were published meanwhile, which an
# agent that was away has not read, and some more.
MAX_JUMP: Final = 10_000
JUMPS_HZ: Final = 10
# Numbers of queue pairs have 24 bits, Q_Keys 32 (IBTA volume 1, sections 9.2 and 9.3).
MAX_QPN: Final = 2**24 - 1
MAX_QKEY: Final = 2**32 - 1


class Refusal(StrEnum):
    """Why a list, a target or a registration was refused."""

    OTHER_CLUSTER = "OTHER_CLUSTER"
    OTHER_AGENT = "OTHER_AGENT"
    # A copy that came late; the list in force was published after it.
    OLDER_VERSION = "OLDER_VERSION"
    # Published after the list in force: somebody moved the version past what the job counts.
    VERSION_WENT_BACK = "VERSION_WENT_BACK"
    IMPLAUSIBLE_VERSION = "IMPLAUSIBLE_VERSION"
    TOO_MANY_TARGETS = "TOO_MANY_TARGETS"
    # Not decodable, or a field is out of bounds: a dead letter.
    UNREADABLE = "UNREADABLE"
    BAD_TARGET = "BAD_TARGET"
    NOT_OUR_ENDPOINT = "NOT_OUR_ENDPOINT"
    BAD_REGISTRATION = "BAD_REGISTRATION"


class PingListFollower:
    """The accepted list, and the registrations that make its targets active.

    Parameters
    ----------
    endpoints : ids of the agent's own RNICs
    max_flows : 5-tuples probed per pair at most, whatever the list asks for
    """

    def __init__(
        self,
        *,
        cluster: str,
        agent_id: str,
        endpoints: frozenset[str],
        max_flows: int,
        directory: Directory | None = None,
    ) -> None:
        self._cluster = cluster
        self._agent_id = agent_id
        self._endpoints = endpoints
        self._max_flows = max_flows
        self._directory = Directory() if directory is None else directory
        # Takes the place of the directory when registrations have been read anew.
        self._next: Directory | None = None
        self._targets: tuple[PingTarget, ...] = ()
        self._active: tuple[FlowTarget, ...] | None = None
        self._pairs_active = 0
        self._lacking = False
        self._settled = False
        self.version: int | None = None
        # Traces at once because of loss, as the list in force tells it; None: it does not.
        self.trace_budget: int | None = None
        # When the list in force was accepted, monotonic nanoseconds, and when it was published.
        self._accepted_ns = 0
        self._updated_us = 0
        # Whether the next list may have any version.
        self._any_version = False
        # Targets on the list in force, those that cannot be probed among them.
        self.targets_listed = 0
        self.lists_refused = 0
        self.refused: Counter[Refusal] = Counter()

    @property
    def targets_active(self) -> int:
        """Pairs probed now."""
        self.flows()
        return self._pairs_active

    @property
    def targets_waiting(self) -> int:
        """Pairs on the list whose endpoint has not registered."""
        return len(self._targets) - self.targets_active

    @property
    def lacking(self) -> bool:
        """Whether registrations were forgotten that the list may need: read them again."""
        return self._lacking

    def flows(self) -> tuple[FlowTarget, ...]:
        """Return all 5-tuples to probe, by src, dst and flow; the same object until it changes.

        Empty before the topics have been read to their end once: what stands
        before the end may be of lists and endpoints long gone.
        """
        if self._active is None:
            self._active = self._activate()
        return self._active

    def offer(
        self, ping_list: PingList, now_ns: int = 0, *, trace_budget: int | None = None
    ) -> Refusal | None:
        """Accept a list, or return the reason why it is refused.

        Parameters
        ----------
        now_ns
            Monotonic.
        trace_budget
            What the list's header tells.
        """
        refusal = self._refusal(ping_list, now_ns)
        if refusal is not None:
            self.refused[refusal] += 1
            self.lists_refused += 1
            return refusal
        self._targets = self._checked(ping_list.targets)
        self._any_version = False
        self.version = ping_list.version
        self.trace_budget = trace_budget
        self.targets_listed = len(ping_list.targets)
        self._accepted_ns = now_ns
        self._updated_us = ping_list.updated_at
        self._want()
        return None

    def unreadable(self) -> Refusal:
        """Count a list that could not be decoded; the one in force stays."""
        self.refused[Refusal.UNREADABLE] += 1
        self.lists_refused += 1
        return Refusal.UNREADABLE

    def topic_restarted(self) -> None:
        """Process that the topic began anew: the job counts versions anew; the list stays."""
        self._any_version = True

    def withdraw(self) -> None:
        """Process a tombstone of the list: no targets, and the next list may have any version."""
        self._targets = ()
        self.version = self.trace_budget = None
        self.targets_listed = 0
        self._want()

    def registered(self, endpoint: Endpoint, *, replayed: bool = False) -> Refusal | None:
        """Process a registration; return the reason if it is refused."""
        refusal = self._bad_registration(endpoint)
        if refusal is not None:
            self.refused[refusal] += 1
            return refusal
        if self._filling.add_registration(endpoint, replayed=replayed):
            self._active = None
        return None

    def left(self, endpoint_id: str, *, replayed: bool = False) -> None:
        """Process the tombstone of a registration."""
        if self._filling.remove_registration(endpoint_id, replayed=replayed):
            self._active = None

    def rereading(self) -> None:
        """To be called when registrations are read from the beginning again."""
        self._lacking = False

    def begin_anew(self) -> None:
        """To be called before registrations are read anew, perhaps from another topic.

        Until they have been read to the end, those that are known stay in force.
        """
        self._next = self._directory.emptied()
        self._lacking = False

    def read_to_end(self) -> None:
        """To be called when both topics have been read to their end, each time."""
        if self._next is not None:
            self._directory, self._next = self._next, None
            self._active = None
        if self._directory.read_to_end() or not self._settled:
            self._active = None
        self._settled = True

    @property
    def _filling(self) -> Directory:
        return self._directory if self._next is None else self._next

    def _want(self) -> None:
        wanted = frozenset(t.dst for t in self._targets)
        self._lacking = self._directory.set_wanted(wanted)
        if self._next is not None:
            self._lacking = self._next.set_wanted(wanted)
        self._active = None

    def _refusal(self, ping_list: PingList, now_ns: int) -> Refusal | None:
        if ping_list.cluster != self._cluster:
            return Refusal.OTHER_CLUSTER
        if ping_list.agent_id != self._agent_id:
            return Refusal.OTHER_AGENT
        newest = None if self._any_version else self.version
        if newest is not None and ping_list.version < newest:
            later = ping_list.updated_at > self._updated_us
            return Refusal.VERSION_WENT_BACK if later else Refusal.OLDER_VERSION
        if not 0 <= ping_list.version <= self._greatest_version(now_ns):
            return Refusal.IMPLAUSIBLE_VERSION
        if len(ping_list.targets) > MAX_TARGETS:
            return Refusal.TOO_MANY_TARGETS
        return None

    def _greatest_version(self, now_ns: int) -> int:
        """Return the greatest version that the job can have published by now."""
        if self.version is None or self._any_version:
            return MAX_VERSION
        passed_s = (now_ns - self._accepted_ns) // 10**9
        return min(MAX_VERSION, self.version + MAX_JUMP + JUMPS_HZ * passed_s)

    def _checked(self, targets: tuple[PingTarget, ...]) -> tuple[PingTarget, ...]:
        good: dict[tuple[str, str], PingTarget] = {}
        for target in targets:
            if target.src not in self._endpoints:
                self.refused[Refusal.NOT_OUR_ENDPOINT] += 1
            elif target.flows < 1 or target.src == target.dst or not _is_id(target.dst):
                self.refused[Refusal.BAD_TARGET] += 1
            else:
                # Two jobs may share a pair; probing it once serves both.
                known = good.get((target.src, target.dst))
                if known is None or known.flows < target.flows:
                    good[target.src, target.dst] = target
        return tuple(good[pair] for pair in sorted(good))

    def _bad_registration(self, endpoint: Endpoint) -> Refusal | None:
        if endpoint.cluster != self._cluster:
            return Refusal.OTHER_CLUSTER
        capabilities = CAPABILITIES.get(endpoint.transport)
        good = capabilities is not None and _IS_ADDRESS[capabilities.address_form](endpoint)
        return None if good else Refusal.BAD_REGISTRATION

    def _activate(self) -> tuple[FlowTarget, ...]:
        flows: list[FlowTarget] = []
        self._pairs_active = 0
        for target in self._targets if self._settled else ():
            endpoint = self._directory.get(target.dst)
            if endpoint is None:
                continue
            self._pairs_active += 1
            address = _spelled(endpoint)
            flows.extend(
                FlowTarget(
                    target.src,
                    target.dst,
                    flow,
                    address,
                    endpoint.port,
                    endpoint.transport,
                    entropy_of(target.src, target.dst, flow),
                    endpoint.qkey,
                    endpoint.host_id,
                )
                for flow in range(min(target.flows, self._max_flows))
            )
        return tuple(flows)


def _is_id(text: str) -> bool:
    try:
        check_id("dst", text)
    except ValueError:
        return False
    return True


def _is_ip_port(endpoint: Endpoint) -> bool:
    """Whether probes may go there: a hostile registration must not make agents broadcast."""
    try:
        unicast(endpoint.address)
    except ValueError:
        return False
    return 1 <= endpoint.port <= 65_535


def _spelled(endpoint: Endpoint) -> str:
    """Return the address as replies and hops will spell it; a GID is what it is."""
    if CAPABILITIES[endpoint.transport].address_form is AddressForm.QUEUE_PAIR:
        return endpoint.address
    return unicast(endpoint.address)


def _is_queue_pair(endpoint: Endpoint) -> bool:
    try:
        gid = ipaddress.IPv6Address(endpoint.address)
    except ValueError:
        return False
    addressed = not (gid.is_multicast or gid.is_unspecified)
    # 0 and 1 are the management queue pairs.
    numbered = 2 <= endpoint.port <= MAX_QPN
    return addressed and numbered and endpoint.qkey is not None and 0 <= endpoint.qkey <= MAX_QKEY


_IS_ADDRESS: Final[Mapping[AddressForm, Callable[[Endpoint], bool]]] = {
    AddressForm.IP_PORT: _is_ip_port,
    AddressForm.QUEUE_PAIR: _is_queue_pair,
}
