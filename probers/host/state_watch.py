"""Reads the states of RNICs and host in turn, and returns what is to be reported.

One reading of an RNIC opens some tens of files, and some of them ask its firmware, while probes
are due all the time. So each RNIC, and the host, has its own moment within the interval.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from probers.clock import Instant, IntervalTimer
from probers.config.rnics import RnicConfig
from probers.config.settings import AgentConfig
from probers.host import sysfs_text
from probers.host.rnic_files import RnicFiles
from probers.host.rnic_states import GONE, RnicStates
from probers.host.states import ReportedStates, StateReport, Value, missing
from probers.host.sysfs import read_text

# Links, GIDs and PCIe change seldom and are many files: every third look, at 15 s by default,
# which is well within the 30 s after which a change counts as another matter (localizer).
LINKS_EVERY: Final = 3
# Versions, modules, ACS: every twelfth look, once a minute by default.
SETUP_EVERY: Final = 12
_NEVER_NS: Final = 2**63 - 1
_HOST_PREFIX: Final = "host:"


class Item(Protocol):
    """One thing to look at."""

    def look(self, reported: ReportedStates, now: Instant) -> list[StateReport]:
        """Look at it; return what is to be reported."""
        ...


class RnicItem:
    """One RNIC: looked at again in full when it comes back.

    `answering` returns the transport that answers its probes; None: it is not reported, since the
    settings of the RNIC do not ask for RDMA.
    """

    def __init__(
        self, component_id: str, files: RnicFiles, answering: Callable[[], Value] | None = None
    ) -> None:
        self._component_id = component_id
        self._files = files
        self._answering = answering
        self._states = RnicStates()
        self._present = False
        self._turn = 0

    def look(self, reported: ReportedStates, now: Instant) -> list[StateReport]:
        """Look at it; return what is to be reported."""
        links = not self._present or self._turn % LINKS_EVERY == 0
        setup = not self._present or self._turn % SETUP_EVERY == 0
        self._turn += 1
        if setup:
            self._files.find()
        raw = self._files.read(links=links, setup=setup)
        self._present = raw.present
        values = self._states.decide(raw, now.monotonic_ns)
        if self._answering is not None:
            values["transport"] = self._answering() if raw.present else missing(GONE)
        return reported.observe(self._component_id, values, now)


@dataclass(frozen=True, slots=True)
class HostRaw:
    """Texts of the host; `pages` by size in kB, of the sizes that were asked for."""

    kernel: str | None
    gpu_driver: str | None
    pages: Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class HostFiles:
    """Reads the host's files; `sysfs` and `proc` are where those are mounted."""

    sysfs: str
    proc: str
    wanted: Mapping[int, int] | None

    def read(self) -> HostRaw:
        """Look at the host."""
        pages = f"{self.sysfs}/kernel/mm/hugepages"
        return HostRaw(
            read_text(f"{self.proc}/sys/kernel/osrelease"),
            read_text(f"{self.sysfs}/module/nvidia/version"),
            {kb: read_text(f"{pages}/hugepages-{kb}kB/nr_hugepages") for kb in self.wanted or ()},
        )


def host_values(raw: HostRaw) -> dict[str, Value]:
    """Return the values of the host's attributes."""
    kernel, driver = sysfs_text.version(raw.kernel), sysfs_text.version(raw.gpu_driver)
    return {
        "kernel_version": Value(kernel) if kernel else missing("the release cannot be read"),
        "gpu_driver_version": Value(driver) if driver else missing("no GPU driver known here"),
    }


def hugepages(raw: HostRaw, wanted: Mapping[int, int] | None) -> Value:
    """Return whether the host has the hugepages that it should: `match` or `mismatch`.

    >>> hugepages(HostRaw(None, None, {2048: "512"}), {2048: 1024}).text
    'mismatch'
    """
    if wanted is None:
        return missing("the settings do not say what the host should have")
    for size_kb, least in wanted.items():
        count = sysfs_text.number(raw.pages.get(size_kb))
        if count is None:
            return missing(f"no hugepages of {size_kb} kB in sysfs")
        if count < least:
            return Value("mismatch")
    return Value("match")


class HostItem:
    """The host and its virtual switch."""

    def __init__(self, host_id: str, vswitch_id: str, files: HostFiles) -> None:
        self._host_id = host_id
        self._vswitch_id = vswitch_id
        self._files = files
        self._turn = 0

    def look(self, reported: ReportedStates, now: Instant) -> list[StateReport]:
        """Look at it; return what is to be reported."""
        self._turn += 1
        if self._turn % LINKS_EVERY != 1:
            return []
        raw, wanted = self._files.read(), self._files.wanted
        reports = reported.observe(self._host_id, host_values(raw), now)
        if wanted is not None:
            reports += reported.observe(
                self._vswitch_id, {"hugepages": hugepages(raw, wanted)}, now
            )
        return reports


class StateWatch:
    """Reads the states of all items in turn.

    Parameters
    ----------
    items : what to look at
    interval_ns : time between two readings of one of them; 0: none is read
    slack_ns : how much too early is well while the process is awake anyway
    """

    def __init__(
        self, items: list[Item], interval_ns: int, now: Instant, slack_ns: int = 0
    ) -> None:
        self._items = items
        self._next = 0
        self._reported = ReportedStates()
        self._every = (
            IntervalTimer(interval_ns // len(items), now.monotonic_ns, slack_ns)
            if items and interval_ns
            else None
        )

    @property
    def due_ns(self) -> int:
        """When to look next, on the monotonic clock."""
        return _NEVER_NS if self._every is None else self._every.due_ns

    def expired(self, now_ns: int) -> bool:
        """Return whether it is time to look; if so, set the next time."""
        return self._every is not None and self._every.expired(now_ns)

    def look(self, now: Instant) -> list[StateReport]:
        """Look at the next thing; return what is to be reported."""
        item = self._items[self._next]
        self._next = (self._next + 1) % len(self._items)
        return item.look(self._reported, now)


def build_state_watch(
    config: AgentConfig,
    now: Instant,
    slack_ns: int = 0,
    answering: Mapping[str, Callable[[], Value]] | None = None,
) -> StateWatch:
    """Return what looks at the RNICs of the settings and at their host.

    `answering` says by endpoint what answers probes of those that are to speak RDMA.
    """
    items: list[Item] = [
        RnicItem(
            rnic_component(rnic, config.host_id),
            RnicFiles(rnic.counters, config.procfs),
            (answering or {}).get(rnic.endpoint_id),
        )
        for rnic in config.rnics
        if rnic.counters is not None
    ]
    host = HostFiles(config.sysfs, config.procfs, config.hugepages)
    items.append(HostItem(config.host_id, vswitch_component(config), host))
    return StateWatch(items, config.states_ns, now, slack_ns)


def rnic_component(rnic: RnicConfig, host_id: str) -> str:
    """Return the id that `topology.v1` has for an RNIC.

    As the settings say; else `rnic:<host>/r<rail>`, as labs and arena name them.
    """
    return rnic.component or f"rnic:{host_id.removeprefix(_HOST_PREFIX)}/r{rnic.rail}"


def vswitch_component(config: AgentConfig) -> str:
    """Return the id that `topology.v1` has for the host's virtual switch."""
    return config.vswitch_id or f"vsw:{config.host_id.removeprefix(_HOST_PREFIX)}"
