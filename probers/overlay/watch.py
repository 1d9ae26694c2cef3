"""Decides when the host's overlay tables are read, and what of them is published."""

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from probers.clock import Instant
from probers.config.overlay import OverlayConfig
from probers.host.states import ReportedStates, StateReport, Value, missing
from probers.overlay.child import TableChild
from probers.overlay.table import build_table
from probers.overlay.wire import Answer, Destination, Finding, Request
from probers.probing.plan import FlowTarget
from schemas.enums import ProbeStatus
from schemas.process.eventlog import EventLog
from schemas.records import Endpoint, FlowEntry, ProbeResult

# Least time between two readings: reading a large table takes seconds of a core.
GAP_NS: Final = 5 * 10**9
# Readings that may fail before the published tables are withdrawn. A restart of vswitchd takes half
# a minute and is no reason to withdraw them; tables that cannot be checked any more are.
FAILURES: Final = 3
# An attribute of the virtual switch in component.state.v1.
EVICTIONS: Final = "flow_evictions_per_s"
# The command that reads the hardware's flows.
_HARDWARE: Final = "offloaded"
# Statuses that tables may explain; trouble of the own link is not among them.
_LOST: Final = frozenset({ProbeStatus.TIMEOUT, ProbeStatus.UNREACHABLE, ProbeStatus.NO_ROUTE})

# 128 virtual functions on each of 8 RNICs are 1,024 endpoints.
MAX_LOCALS: Final = 4_096
# An entry that returns later than that was idle, or its job had a pause.
RETURN_NS: Final = 300 * 10**9

# Entries to publish (None: a tombstone), and when they were read.
Publication = tuple[tuple[FlowEntry, ...] | None, Instant]


class LocalEndpoints:
    """The registered endpoints of one host: of this agent and of the other agents on it."""

    def __init__(self, *, host_id: str, cluster: str) -> None:
        self._host_id = host_id
        self._cluster = cluster
        self._addresses: dict[str, str] = {}

    @property
    def addresses(self) -> dict[str, str]:
        """Address of each endpoint."""
        return self._addresses

    def registered(self, endpoint: Endpoint) -> None:
        """Add a registered endpoint of this host; remove one that has moved to another host."""
        here = endpoint.host_id == self._host_id and endpoint.cluster == self._cluster
        if not here:
            self._addresses.pop(endpoint.endpoint_id, None)
        elif endpoint.endpoint_id in self._addresses or len(self._addresses) < MAX_LOCALS:
            self._addresses[endpoint.endpoint_id] = endpoint.address

    def left(self, endpoint_id: str) -> None:
        """Remove an endpoint."""
        self._addresses.pop(endpoint_id, None)


class EvictionMeter:
    """Counts flows that have vanished from hardware and returned, from consecutive readings.

    An entry that vanishes from the offloaded table and returns was evicted or invalidated and then
    inserted again; packets between went through software. Readings are half a minute apart, and
    what happens between two of them is not seen: the rate is a lower bound.
    """

    def __init__(self) -> None:
        self._offloaded: frozenset[str] = frozenset()
        self._gone_ns: dict[str, int] = {}
        self._looked_ns: int | None = None

    def observe_reading(
        self, findings: Iterable[Finding], asked: Collection[str], now_ns: int
    ) -> float | None:
        """Return evictions per second since the last reading; None: this is the first.

        `asked` are the addresses that were looked for: of others nothing was learnt.

        >>> from probers.overlay.wire import Way
        >>> there = [Finding("10.0.0.9", Way.TUNNEL, remote="10.9.0.9", offloaded=True)]
        >>> meter, s = EvictionMeter(), 10**9
        >>> looks = ((there, 0), ([], 30), (there, 60))
        >>> [meter.observe_reading(found, {"10.0.0.9"}, at * s) for found, at in looks]
        [None, 0.0, 0.03333333333333333]
        """
        offloaded = frozenset(f.address for f in findings if f.offloaded)
        returned = [a for a in offloaded if a in self._gone_ns]
        for address in self._offloaded - offloaded:
            self._gone_ns[address] = now_ns
        self._gone_ns = {
            address: since_ns
            for address, since_ns in self._gone_ns.items()
            if address in asked and address not in offloaded and now_ns - since_ns <= RETURN_NS
        }
        before_ns, self._looked_ns, self._offloaded = self._looked_ns, now_ns, offloaded
        if before_ns is None or now_ns <= before_ns:
            return None
        return len(returned) * 10**9 / (now_ns - before_ns)


class Child(Protocol):
    """The process that reads the tables."""

    @property
    def busy(self) -> bool:
        """Whether a reading is under way."""
        ...

    def start(self, request: Request, now_ns: int) -> None:
        """Begin a reading."""
        ...

    def poll(self, now_ns: int) -> Answer | None:
        """Return the answer; None: not yet."""
        ...

    def close(self) -> None:
        """End what is under way."""
        ...


class OverlayWatch:
    """Reads the tables at an interval and soon after a flow was lost; returns what has changed."""

    def __init__(
        self,
        config: OverlayConfig,
        *,
        host_id: str,
        cluster: str,
        log: EventLog,
        child: Child | None = None,
    ) -> None:
        self._config = config
        self._log = log
        self._locals = LocalEndpoints(host_id=host_id, cluster=cluster)
        self._child: Child = TableChild() if child is None else child
        self._due_ns = 0
        self._started: Instant | None = None
        self._in_use: dict[str, str] = {}
        self._asked: frozenset[str] = frozenset()
        self._macs: dict[str, str] = {}
        self._evictions = EvictionMeter()
        self._reported = ReportedStates()
        self._reports: list[StateReport] = []
        self._software: frozenset[str] = frozenset()
        self._lost: frozenset[tuple[str, str]] = frozenset()
        self._failures = 0
        # Hash of the entries published last, and when (monotonic nanoseconds).
        self._last: tuple[int, int] | None = None
        # Why the tables cannot be read, or only in part.
        self.trouble: str | None = None

    @property
    def published(self) -> bool:
        """Whether tables of ours are on the topic."""
        return self._last is not None

    def registered(self, endpoint: Endpoint) -> None:
        """Process a registration."""
        self._locals.registered(endpoint)

    def left(self, endpoint_id: str) -> None:
        """Process the tombstone of a registration."""
        self._locals.left(endpoint_id)

    def probed(self, results: Iterable[ProbeResult], now: Instant) -> None:
        """Process the results of a round: a pair that is newly lost is a reason to read soon."""
        lost = frozenset((r.src, r.dst) for r in results if r.status in _LOST)
        if lost - self._lost:
            earliest_ns = 0 if self._started is None else self._started.monotonic_ns + GAP_NS
            self._due_ns = min(self._due_ns, max(now.monotonic_ns, earliest_ns))
        self._lost = lost

    def poll(self, flows: tuple[FlowTarget, ...], now: Instant) -> list[Publication]:
        """Begin a reading when it is time; return what there is to publish."""
        if self._child.busy:
            answer = self._child.poll(now.monotonic_ns)
            return [] if answer is None else self._accept(answer, now)
        if now.monotonic_ns >= self._due_ns:
            self._start(flows, now)
        return []

    def take_reports(self) -> list[StateReport]:
        """Return the states of the virtual switch to report, once."""
        reports, self._reports = self._reports, []
        return reports

    def close(self) -> None:
        """End a reading that is under way."""
        self._child.close()

    def _start(self, flows: tuple[FlowTarget, ...], now: Instant) -> None:
        self._due_ns = now.monotonic_ns + self._config.interval_ns
        self._in_use = {flow.dst: flow.address for flow in flows}
        addresses = dict.fromkeys(self._in_use.values(), False)
        addresses.update(dict.fromkeys(self._locals.addresses.values(), True))
        if not addresses:
            return
        self._asked = frozenset(addresses)
        request = Request(
            source=self._config.source,
            commands=self._config.commands,
            timeout_s=self._config.timeout_ns / 10**9,
            devices=self._config.devices,
            destinations=tuple(
                Destination(address, local, self._macs.get(address))
                for address, local in addresses.items()
            ),
        )
        self._started = now
        try:
            self._child.start(request, now.monotonic_ns)
        except OSError as error:
            self._log_trouble(f"no process: {error.strerror}")
            self._failures += 1

    def _accept(self, answer: Answer, now: Instant) -> list[Publication]:
        self._log_trouble("; ".join(answer.troubles) or None)
        if not answer.read:
            self._failures += 1
            if self._failures == FAILURES:
                self._report(missing("the flow tables cannot be read"), now)
            if self._failures < FAILURES or self._last is None:
                return []
            self._last = None
            self._log.warning("overlay.withdrawn", reason=self.trouble)
            return [(None, now)]
        self._failures = 0
        self._macs = answer.macs
        rate_hz = self._evictions.observe_reading(answer.findings, self._asked, now.monotonic_ns)
        if rate_hz is not None:
            self._report(Value(number=float(f"{rate_hz:.3g}")), now)
        table = build_table(
            {finding.address: finding for finding in answer.findings},
            in_use=self._in_use,
            locals_=self._locals.addresses,
            config=self._config,
            software_before=self._software,
        )
        self._software = table.software
        content = hash(table.entries)
        changed = self._last is None or self._last[0] != content
        if changed:
            counts = {**answer.counts, **table.counts}
            shown = " ".join(f"{what}={count}" for what, count in sorted(counts.items()))
            self._log.info("overlay.changed", entries=len(table.entries), counts=shown)
        elif self._last and now.monotonic_ns < self._last[1] + self._config.republish_ns:
            return []
        self._last = (content, now.monotonic_ns)
        return [(table.entries, self._started or now)]

    def _report(self, value: Value, now: Instant) -> None:
        if _HARDWARE in self._config.commands:
            self._reports += self._reported.observe(self._config.vswitch, {EVICTIONS: value}, now)

    def _log_trouble(self, trouble: str | None) -> None:
        """Log a trouble once, until it is another one or over."""
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble is None:
            self._log.info("overlay.readable")
        else:
            self._log.warning("overlay.unreadable", reason=trouble)
